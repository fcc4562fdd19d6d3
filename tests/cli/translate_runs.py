"""Tiny translation runs, trained once for a module of tests."""

import pytest

from sightline.cli import main

SMALL = ["--n-train", "60", "--n-val", "7", "--n-test", "11", "--epochs", "1", "--no-tensorboard"]
RECURRENT = ["--d-model", "8", "--d-attn", "6"]
TRANSFORMER = ["--d-model", "8", "--n-heads", "2", "--d-ff", "12"]


def run(*arguments):
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return ended.value.code


def make_runs(folder):
    """A recurrent run and a Transformer's, by their names."""
    made = {}
    for model, size in (("recurrent", RECURRENT), ("transformer", TRANSFORMER)):
        made[model] = folder / model
        common = ["--data", "dates", "--model", model, "--out", made[model], "--device", "cpu"]
        assert run("train", "translate", *common, *SMALL, *size) == 0
    return made
