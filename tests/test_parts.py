"""Which part of `make test` a test runs in, what `make test-long` has, and what the shape hook checks."""

import itertools
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from jaxtyping import Float, TypeCheckError, jaxtyped
from torch import Tensor, zeros

import conftest
from tests import parts
from tests.shape_hook import checked

ROOT = Path(__file__).parents[1]
PYTHON = sorted((ROOT / "tests").rglob("*.py"))
ROWS = [("sdpa", 1), ("flex", 1), ("flash", 2)]


class Case:
    """A stand-in for a case of a test."""

    path, originalname = "test_x.py", "test_x"

    def __init__(self, marks, params, values):
        self.marks, self.callspec, self.values = marks, SimpleNamespace(params=params), values

    def iter_markers(self, name):
        return [mark for mark in self.marks if mark.name == name]


class Item:
    """A stand-in for a test in a file, with some marks."""

    def __init__(self, path, marks):
        self.path, self.marks, self.config = path, marks, SimpleNamespace(rootpath=ROOT)

    def iter_markers(self, name):
        return [mark for mark in self.marks if mark == name]


def is_collected(path, part):
    """Whether a part looks into a file, and into the folders around it."""
    options = {"jaxtyping_packages": "sightline" if part == "shaped" else None, "--part": part}
    config = SimpleNamespace(rootpath=ROOT, getoption=lambda name, default=None: options.get(name, default))
    around = [path, *path.parents][: len(path.relative_to(ROOT).parts)]
    return not any(conftest.pytest_ignore_collect(place, config) for place in around)


@pytest.mark.parametrize(
    "marks", [(), ("plain",), ("bad_input",), ("gpu", "combinations"), ("long", "plain")]
)
def test_every_test_runs_in_one_part_that_is_run(marks):
    assert set(conftest.PARTS) <= set(parts.COMMANDS)
    for path in PYTHON:
        if path.name.startswith("test_"):
            part = conftest.part_of(Item(path, marks))
            assert part == "long" if "long" in marks else is_collected(path, part), path


def test_a_part_that_fails_is_shown_and_the_others_run_all_the_same(tmp_path, monkeypatch, capsys):
    fails, skips = "import sys; print('wrong'); sys.exit(3)", "print('09.py 0.1 s skipped: no weights')"
    lines = {"types": fails, "examples": skips}
    monkeypatch.setattr(parts, "COMMANDS", {name: [sys.executable, "-c", x] for name, x in lines.items()})
    assert sorted(parts.together(tmp_path / "new", jobs=1)) == [0, 3]
    out = capsys.readouterr().out
    assert "== types, exit code 3\nwrong\n" in out
    assert out.endswith("== not tested here, how many and why\n      1 no weights\n")


def test_parts_are_run_a_few_at_a_time(tmp_path, monkeypatch, capsys):
    waits = f"import pathlib, sys, time; here = pathlib.Path({str(tmp_path)!r}); "
    waits += """(here / {0!r}).touch()
for _ in range(6000):
    if len(list(here.glob("part-*"))) == 2:
        sys.exit()
    time.sleep(0.01)
sys.exit(1)"""
    names = ["part-a", "part-b"]
    monkeypatch.setattr(parts, "COMMANDS", {x: [sys.executable, "-c", waits.format(x)] for x in names})
    assert parts.together(tmp_path / "out", jobs=2) == [0, 0]  # each waits for the other


def test_no_test_hides_where_none_is_looked_for_or_asks_which_part_it_is_in():
    """A test that the shape hook keeps from working is marked plain; to skip it there would leave it out."""
    for path in PYTHON:
        text = path.read_text(encoding="utf-8")
        assert path.name.startswith("test_") or not re.search(
            r"^ *def test_|^class Test", text, re.MULTILINE
        ), path
        assert path == Path(__file__) or "jaxtyping_packages" not in text, path


def cases(*axes, marked=True):
    """The cases of a test with these parameters, in every combination."""
    marks = [pytest.mark.parametrize(names, values).mark for names, values in axes]
    marks += [pytest.mark.combinations.mark] * marked
    found = []
    for row in itertools.product(*(values for _, values in axes)):
        params = {}
        for (names, _), value in zip(axes, row, strict=True):
            params |= dict(zip(names.split(","), value, strict=True)) if "," in names else {names: value}
        found.append(Case(marks, params, row))
    return found


def kept_of(every):
    further = conftest._further_combinations(every)
    return [case.values for case in every if case not in further]


def test_two_parameters_have_each_value_and_none_has_nearly_all():
    kept = kept_of(cases(("padded", [False, True]), ("which,way", ROWS)))
    assert sorted(way for _, way in kept) == sorted(ROWS)
    assert {padded for padded, _ in kept} == {False, True}
    kept = kept_of(cases(("n", list(range(1000, 1011))), ("padded", ["no", "yes"])))
    assert [sum(padded == x for _, padded in kept) for x in ("no", "yes")] in ([5, 6], [6, 5])


def test_parameters_of_fixtures_count_too():
    every = cases(("padded", ["no", "yes"]), ("model", ["bert", "gpt2", "llama"]))
    for case in every:
        case.marks = [mark for mark in case.marks if "model" not in mark.args]
    assert {model for _, model in kept_of(every)} == {"bert", "gpt2", "llama"}


def test_three_parameters_have_every_pair_of_values():
    axes = [("a", ["p", "q", "r"]), ("b", ["s", "t"]), ("c", ["u", "v"])]
    every = cases(*axes)
    kept = kept_of(every)
    assert len(kept) < len(every) == 12
    for (i, (_, one)), (j, (_, other)) in itertools.combinations(enumerate(axes), 2):
        assert {(values[i], values[j]) for values in kept} == set(itertools.product(one, other))


def test_other_tests_keep_all_their_cases():
    every = cases(("padded", [False, True]), ("which,way", ROWS), marked=False)
    assert conftest._further_combinations(every) == []


def inner(annotation, *, default=False):
    """A function inside a function, checked by its annotation."""

    if default:

        def both(x: annotation, y: annotation = None):
            return x, y
    else:

        def both(x: annotation, y: annotation):
            return x, y

    return jaxtyped(both, typechecker=checked)


def test_functions_inside_functions_are_checked_each_by_its_own_signature():
    for _ in range(2):
        inner(Float[Tensor, "T D"])(zeros(5, 3), zeros(5, 3))
        with pytest.raises(TypeCheckError, match="T D"):
            inner(Float[Tensor, "T D"])(zeros(5, 3), zeros(5, 7))
        inner(Float[Tensor, "T _"])(zeros(5, 3), zeros(5, 7))
        with pytest.raises(TypeError, match="missing a required argument"):
            inner(Float[Tensor, "T D"])(zeros(5, 3))
        inner(Float[Tensor, "T D"], default=True)(zeros(5, 3))


def test_beartype_sees_a_function_inside_another_once():
    def made(annotation):
        def f(x: annotation):
            pass

        return checked(f)

    assert made(int) is made(int)
    assert made(int) is not made(str)
