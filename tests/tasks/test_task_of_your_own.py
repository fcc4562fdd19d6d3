"""A task of one's own: short, by public names alone, and registered by one line."""

import ast

import pytest

import sightline as sl
from sightline.tasks import Task, kinds, register, task_of, unregister
from tests.tasks.cases import OWN_TASK

PUBLIC = {"sightline", "sightline.cli", "sightline.settings", "sightline.tasks", "sightline.train"}


def test_the_example_is_short_and_uses_public_names_alone():
    text = OWN_TASK.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 120
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sightline"):
            assert node.module in PUBLIC
            assert not any(name.name.startswith("_") for name in node.names)
        if isinstance(node, ast.Attribute):
            assert not node.attr.startswith("_") or node.attr == "__init__"


def test_a_task_may_be_registered_again_but_not_under_a_name_that_is_taken():
    known = task_of("sort")
    assert register(known) is known
    with pytest.raises(ValueError, match="'caption' is taken; choose another name"):
        register(Task(kind="caption", summary="", parts=(), prepare=print, open=print, dataset=print))


def test_a_forgotten_task_is_unknown_and_ours_stay():
    known = task_of("sort")
    try:
        unregister("sort")
        unregister("caption")
        assert kinds() == ("caption", "translate", "classify")
        with pytest.raises(ValueError, match="unknown kind of task 'sort'"):
            sl.tasks.train("sort", out="nowhere")
    finally:
        register(known)
