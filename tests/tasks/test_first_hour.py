"""What a newcomer meets in the first hour: few examples of their own, and waits."""

import logging
import shutil
from pathlib import Path

import pytest
from PIL import Image

from sightline.cli.next_steps import print_next_steps
from sightline.data.classes import read_classes
from sightline.tasks.caption.prepare import prepare_captioner
from sightline.tasks.configure import Request, configure
from sightline.tasks.registry import task_of
from sightline.tasks.training import SuggestedCommands


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


def test_the_next_command_names_a_split_that_is_there(tmp_path, capsys):
    for split, shown in (("test", "evaluate RUN\n"), ("val", "evaluate RUN --split val\n")):
        print_next_steps(task_of("caption"), Path("RUN"), SuggestedCommands("a b.jpg", split))
        out, err = capsys.readouterr()
        assert out == "RUN\n"
        assert shown in err
        assert "look RUN 'a b.jpg'" in err


def test_a_set_of_classes_is_dealt_the_same_in_a_zip(tmp_path):
    for name in ("cat", "dog"):
        for i in range(13):
            path = tmp_path / "animals" / name / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (8, 8), (20 * i, 9, 7)).save(path)
    shutil.make_archive(str(tmp_path / "packed"), "zip", tmp_path, "animals")  # animals/cat/0.png, ...
    kept, packed = (read_classes(tmp_path / x, image_size=8, val=0.2) for x in ("animals", "packed.zip"))
    for split in ("train", "val", "test"):
        ends = [
            {key.split("/", key.count("/") - 1)[-1] for key in s.split(split).keys} for s in (kept, packed)
        ]
        assert ends[0] == ends[1], split
