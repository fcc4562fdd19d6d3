"""The command line against its golden files: flags, help texts, and the keys of every ``--json``.

A change that is meant is written by ``python tests/golden/make.py``, and its difference is read before it is
committed. ``flags.json`` and ``json.json`` are promises to those who call Sightline from scripts: a name goes
only with a line in the change log. ``help.json`` is there so that no text changes unseen.
"""

import importlib.util
import json
from pathlib import Path

import pytest

from sightline.tasks import kinds, register, task_of, unregister
from tests.pins import skip_unless_pinned

GOLDEN = Path(__file__).parents[1] / "golden"
_spec = importlib.util.spec_from_file_location("golden_make", GOLDEN / "make.py")
make = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(make)


@pytest.fixture(autouse=True)
def only_our_tasks():
    """Without the task that other tests have registered."""
    own = [task_of(kind) for kind in kinds() if not task_of(kind).prepare.__module__.startswith("sightline.")]
    for task in own:
        unregister(task.kind)
    yield
    for task in own:
        register(task)


@pytest.mark.parametrize("name", ["flags", "help", "json"])
def test_the_command_line_is_as_written_down(name):
    if name == "flags":
        skip_unless_pinned("typer")  # it says what the flags are
    golden = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    now = json.loads(make.written(make.MAKERS[name]()))
    assert now.keys() == golden.keys()
    for entry, expected in golden.items():
        assert now[entry] == expected, entry


def test_a_shape_keeps_keys_and_types_and_no_values():
    found = make.shape(
        {"a": [1, 2], "b": None, "guesses": {"cat": 0.5, "dog": 0.25}, "c": [1, "x"], "d": True}
    )
    assert found == {
        "a": ["int"],
        "b": "null",
        "guesses": {"*": "float"},
        "c": [{"any of": ["int", "str"]}],
        "d": "bool",
    }
