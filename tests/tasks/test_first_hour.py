"""What a newcomer meets in the first hour: few examples of their own, and waits."""

import logging

import pytest

from sightline.tasks.caption.prepare import prepare_captioner
from sightline.tasks.configure import Request, configure
from sightline.tasks.registry import task_of


@pytest.mark.parametrize("kind", ["caption", "translate", "classify"])
def test_few_examples_of_ones_own_are_gone_through_until_something_is_learned(tmp_path, kind):
    task = task_of(kind)
    assert configure(task, Request(data=str(tmp_path)))["train"].min_steps == 1000
    asked = Request(data=str(tmp_path), fields={"train": {"epochs": 2}})
    assert configure(task, asked)["train"].min_steps is None


def test_the_wait_for_drawn_scenes_is_named(caplog):
    given = {"n_train": 5, "n_val": 3, "n_test": 2}
    settings = configure(task_of("caption"), Request(data="scenes", preset="tiny", fields={"data": given}))
    with caplog.at_level(logging.INFO, logger="sightline"):
        prepare_captioner(settings, None)
    assert "drawing 10 scenes" in caplog.text
