"""What every doctest may use without importing it, a fixed seed, and the parts of `make test`."""

import gc
import itertools
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest
import torch

import tests.shape_hook  # noqa: F401 - by this name the hook has it, which begins with the next line

# isort: split
import sightline as sl

pytest_plugins = ["tests.skips"]

_N_MODULES = pytest.StashKey[int]()
PARTS = ("commands", "shaped", "plain", "kernels")  # each a process of its own, see tests/parts.py
SHAPED_ROOMS = {
    "attention",
    "decode",
    "edit",
    "evaluate",
    "layers",
    "look",
    "models",
    "positions",
    "show",
    "watch",
}


@pytest.fixture(autouse=True)
def _names(doctest_namespace: dict[str, object]) -> None:
    doctest_namespace.update(torch=torch, nn=torch.nn, sl=sl)
    torch.manual_seed(0)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--part`: the tests that `--jaxtyping-packages` leaves out, by their rooms."""
    parts = [part for part in PARTS if part != "shaped"]
    parser.addoption("--part", choices=parts, help="of what `make test` runs without the shape hook")


def chosen_part(config: pytest.Config) -> str | None:
    """The part of `make test` that this is; None for all tests, the long ones too."""
    return "shaped" if config.getoption("jaxtyping_packages", None) else config.getoption("--part")


def parts_of(path: Path) -> set[str]:
    """The parts that a file or a folder has tests of, from its path inside the repository."""
    room = path.parts[1] if len(path.parts) > 1 else ""
    if "kernels" in path.parts:  # the hook rewrites functions whose source Triton must read
        return {"kernels"}
    if room == "zoo":  # other people's models, and nothing in them has our shapes
        return {"plain"}
    if room not in SHAPED_ROOMS:  # tasks, training and commands call what the other rooms' own tests call
        return {"commands"}
    return {"shaped", "plain"} | (set() if path.suffix else {"kernels"})


def part_of(item: pytest.Item) -> str:
    """The one part of `make test` that a test runs in, or `long`, which is `make test-long`."""
    if any(item.iter_markers("long")):
        return "long"
    parts = parts_of(item.path.relative_to(item.config.rootpath))
    if parts == {"shaped", "plain"}:
        is_plain = any(item.iter_markers("plain")) or any(item.iter_markers("bad_input"))
        return "plain" if is_plain else "shaped"
    (part,) = parts
    return part


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files that have no test of this part, and examples that run elsewhere."""
    not_examples = ("docs/lookup/api.md", "sightline/seeds.py")  # those of the docstrings; a name that was
    if collection_path in [config.rootpath / path for path in not_examples]:
        return True
    part, path = chosen_part(config), collection_path.relative_to(config.rootpath)
    is_of_a_room = len(path.parts) > 1 and (collection_path.is_dir() or path.name.startswith("test_"))
    return True if part and is_of_a_room and part not in parts_of(path) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose the tests of this part of `make test`; without one, a plain `pytest`, all of them."""
    for item in _further_combinations(items):
        item.add_marker(pytest.mark.long)
    part = chosen_part(config)
    if part is not None:
        config.hook.pytest_deselected(items=[item for item in items if part_of(item) != part])
        items[:] = [item for item in items if part_of(item) == part]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Leave what is imported out of the garbage collections of `make test`: a million objects that stay.

    Not elsewhere, for `gc.get_objects`, by which workshop/mutation finds functions, leaves it out too.
    """
    _leave_imported_out(session.config)


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """The same for what tests import, where that is much."""
    _leave_imported_out(item.config)


def _leave_imported_out(config: pytest.Config) -> None:
    before = config.stash.get(_N_MODULES, 0)
    if len(sys.modules) > before + 100 and (chosen_part(config) or hasattr(config, "workerinput")):
        config.stash[_N_MODULES] = len(sys.modules)
        gc.collect()
        gc.freeze()


def pytest_sessionfinish() -> None:
    """Give it back: what Triton's bindings hold would be told of as leaked."""
    gc.unfreeze()


def _further_combinations(items: list[pytest.Item]) -> list[pytest.Item]:
    """Of the tests marked `combinations`, the cases that bring nothing that others have not."""
    functions = defaultdict(list)
    for item in items:
        if any(item.iter_markers("combinations")):
            functions[item.path, item.originalname].append(item)  # type: ignore[attr-defined]
    further: list[pytest.Item] = []
    for cases in functions.values():
        values = {case: _values(case) for case in cases}
        brings = {case: _pairs(own) for case, own in values.items()}
        missing, used = set[object]().union(*brings.values()), Counter[object]()
        while missing:  # the case that brings most; of equals the one whose values were taken least
            case = max(brings, key=lambda x: (len(brings[x] & missing), -sum(used[v] for v in values[x])))
            missing -= brings.pop(case)
            used.update(values[case])
        further += brings
    return further


def _values(item: pytest.Item) -> list[tuple[object, ...]]:
    """The values of a case: one for each `parametrize`, and one for each fixture that has parameters."""
    params = item.callspec.params  # type: ignore[attr-defined]
    names = [mark.args[0] for mark in item.iter_markers("parametrize")]
    rows = [x.replace(" ", "").split(",") if isinstance(x, str) else list(x) for x in names]
    rows += [[name] for name in params if not any(name in row for row in rows)]
    return [tuple((name, id(params[name])) for name in row) for row in rows]


def _pairs(values: list[tuple[object, ...]]) -> set[object]:
    """What a case has to bring: its values, or pairs of them where there are more than two."""
    return set(values) if len(values) <= 2 else set(itertools.combinations(values, 2))
