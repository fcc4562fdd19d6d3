"""The tasks that keep the contract, each with the smallest training that shows it."""

import itertools
import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from examples.task_of_your_own import SORT

__all__ = ["CASES", "DATA", "OWN_TASK", "Case", "in_turn"]

DATA = Path(__file__).parents[1] / "fixtures" / "written_by_0_1" / "data"
OWN_TASK = Path(__file__).parents[2] / "examples" / "task_of_your_own.py"
_COMMON = "--device cpu --threads 0 --no-tensorboard --metric loss --epochs 4 --save-steps 3"


@dataclass(frozen=True, kw_only=True)
class Case:
    """A task with a tiny training.

    Attributes:
        name: Of the case.
        kind: Of the task.
        embedded: Settings of a training on an embedded set.
        folder: Data on disk that the task takes as well; None: it takes none.
        settings: Further settings, for either.
        inputs: To be predicted.
        extra: Scores that an evaluation on the embedded set has besides the task's.
        foreign: An option of `evaluate` that belongs to another task, with the value it has there anyway.
    """

    name: str
    kind: str
    embedded: str
    settings: str
    inputs: tuple[str, ...]
    foreign: tuple[str, str]
    folder: Path | None = None
    extra: tuple[str, ...] = ()

    def train(self, out, *more):
        """The words of a training on the embedded set."""
        return [
            "train",
            self.kind,
            *f"{self.embedded} {self.settings} {_COMMON}".split(),
            "--out",
            out,
            *more,
        ]

    def fields(self):
        """The same as keywords of ``sl.tasks.train``."""
        words = f"{self.embedded} {self.settings} {_COMMON}".split()
        found = {}
        for word, following in itertools.zip_longest(words, words[1:], fillvalue="--"):
            if word.startswith("--no-"):
                found[word[5:].replace("-", "_")] = False
            elif word.startswith("--"):
                found[word[2:].replace("-", "_")] = _value(following)
        return found

    def train_on(self, data, out, *more):
        """The words of a training on other data."""
        words = f"{self.settings} {_COMMON}".split()
        return ["train", self.kind, "--data", data, *words, "--out", out, *more]


# Another model of a task; `make test` has it as a run of 0.1 that goes on, and in test_translate_commands.py.
_LONG = {"translate-recurrent"}


def in_turn(cases):
    """Cases as the parameters of a test."""
    return [pytest.param(x, marks=[pytest.mark.long] if x.name in _LONG else [], id=x.name) for x in cases]


def _value(text):
    try:
        return None if text == "none" else json.loads(text)
    except ValueError:
        return text


_SCENES = ("attribute_accuracy", "grounding", "grounding_chance")
_DATES = ("exact_match", "alignment_accuracy")
_SENTENCES = ("3 May 1999", "13.5.1999")
_DRAWN = "--data dates --n-train 41 --n-val 13 --n-test 11"

CASES = [
    Case(
        name="classify",
        kind="classify",
        embedded="--data digits --folds 11 --val 0.03 --evaluate-every 1",
        settings="--image-size 8 --channels 1 --patch 2 --d-model 8 --n-heads 2 --n-layers 2 --d-ff 11 "
        "--stem patches --batch-size 331 --ema none",
        inputs=(str(DATA / "digits/three/0.png"), str(DATA / "digits/seven/1.png")),
        foreign=("--beam", "5"),
        folder=DATA / "digits",
        extra=("ink", "ink_chance", "ink_ratio"),
    ),
    Case(
        name="sort",
        kind=SORT.kind,
        embedded="--data numbers --rows 97",
        settings="--length 5 --largest 11 --d-model 6 --n-heads 3 --n-layers 2 --batch-size 23",
        inputs=("5 3 11 0 7", "1 1 2 3 5"),
        foreign=("--beam", "5"),
    ),
    Case(
        name="caption",
        kind="caption",
        embedded="--preset default --data scenes --n-train 23 --n-val 7 --n-test 5 --n-convs 1",
        settings="--image-size 24 --patch 4 --d-model 6 --n-heads 3 --n-layers 2 --d-ff 11 --max-length 11 "
        "--batch-size 5 --ema none",
        inputs=(str(DATA / "pictures/00.png"), str(DATA / "pictures/05.png")),
        foreign=("--source", "en"),
        folder=DATA / "pictures",
        extra=_SCENES,
    ),
    Case(
        name="translate",
        kind="translate",
        embedded=f"--preset default {_DRAWN} --vocabulary 160",
        settings="--d-model 6 --n-heads 3 --n-layers 1 --d-ff 11 --max-length 41 --batch-size 7 --ema none",
        inputs=_SENTENCES,
        foreign=("--no-such-thing", "1"),
        folder=DATA / "pairs",
        extra=_DATES,
    ),
    Case(
        name="translate-recurrent",
        kind="translate",
        embedded=f"{_DRAWN} --model recurrent",
        settings="--model recurrent --d-model 6 --n-layers 1 --max-length 41 --batch-size 7",
        inputs=_SENTENCES,
        foreign=("--no-such-thing", "1"),
        folder=DATA / "pairs",
        extra=_DATES,
    ),
]
