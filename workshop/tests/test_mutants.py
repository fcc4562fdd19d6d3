"""Mistakes are made where they are said to be, in the functions that live."""

import importlib.util
import sys

import pytest

from workshop.mutation.mutants import Living, shown, sites

SOURCE = '''"""A module."""
import functools

LIMIT = 3


def first(x: "int | None", y=5, *, z=7):
    """Left alone: 3 < 4."""
    if x < 10:
        return x + y * z
    return LIMIT


class Some:
    width: int = 13

    @functools.cache
    def second(self, items):
        self.seen = [i for i in items if i in (1, 2) and not i == 2]
        items.append(17)
        if len(items) > 3:
            raise ValueError(f"too many, {len(items)}, at most {LIMIT + 1}" "three")
        return max(items)


def outer():
    def inner(a=1):
        return a or 2

    return inner()
'''


@pytest.fixture
def module(tmp_path):
    path = tmp_path / "mistaken.py"
    path.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("mistaken", path)
    sys.modules["mistaken"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["mistaken"]


def found(path="x.py"):
    return {(site.line, site.kind, shown(site, SOURCE)[1]): site for site in sites(path, SOURCE)}


def test_the_sites_of_a_module():
    assert {(line, kind) for line, kind, _ in found()} == {
        (4, "constant"),
        (7, "default"),
        (9, "condition"),
        (9, "comparison"),
        (9, "constant"),
        (10, "return"),
        (10, "arithmetic"),
        (11, "return"),
        (19, "removed"),
        (19, "condition"),
        (19, "boolean"),
        (19, "comparison"),
        (19, "constant"),
        (20, "removed"),
        (20, "constant"),
        (21, "condition"),
        (21, "comparison"),
        (21, "constant"),
        (22, "removed"),
        (22, "arithmetic"),
        (22, "constant"),
        (23, "return"),
        (28, "return"),
        (28, "boolean"),
        (28, "constant"),
        (30, "return"),
    }
    assert len(found()) == 32


@pytest.mark.parametrize(
    ("line", "kind", "after", "ask", "before", "now"),
    [
        (4, "constant", "LIMIT = 4", lambda m: m.first(10), 3, 4),
        (7, "default", "def first(x: 'int | None', y=6, *, z=7):", lambda m: m.first(1), 36, 43),
        (7, "default", "def first(x: 'int | None', y=5, *, z=8):", lambda m: m.first(1), 36, 41),
        (9, "condition", "if not x < 10:", lambda m: m.first(1), 36, 3),
        (9, "comparison", "if x <= 10:", lambda m: m.first(10), 3, 45),
        (10, "arithmetic", "return x - y * z", lambda m: m.first(1), 36, -34),
        (10, "return", "return None", lambda m: m.first(1), 36, None),
        (23, "return", "return None", lambda m: m.Some.second.__wrapped__(m.Some(), [4]), 17, None),
        (20, "removed", "pass", lambda m: m.Some.second.__wrapped__(m.Some(), [4]), 17, 4),
        (28, "boolean", "return a and 2", lambda m: m.outer(), 1, 2),
    ],
)
def test_a_mistake_is_in_who_held_the_function_before(module, line, kind, after, ask, before, now):
    living = Living({module.__file__})
    assert ask(module) == before
    living.install(found(module.__file__)[line, kind, after], SOURCE)
    assert ask(module) == now


def test_statements_note_that_they_ran(module):
    numbers, hits = {}, bytearray(100)
    Living({module.__file__}).instrument(module.__file__, SOURCE, numbers, hits)

    def ran(call):
        hits[:] = bytes(100)
        call()
        return {line for (_, line, _), number in numbers.items() if hits[number]}

    assert ran(lambda: module.first(1)) == {8, 9, 10}
    assert ran(lambda: module.first(11)) == {8, 9, 11}
    assert ran(module.outer) == {27, 28, 30}
