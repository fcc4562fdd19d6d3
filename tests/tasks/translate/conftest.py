"""Tiny translation runs, trained once, and what commands print."""

import pytest

from sightline.tasks.run import open_run
from tests.command import run as run_command

SIZES = ["--n-train", "60", "--n-val", "7", "--n-test", "11", "--epochs", "1", "--no-tensorboard"]
WIDTHS = {
    "recurrent": ["--d-model", "8", "--d-attn", "6"],
    "transformer": ["--d-model", "8", "--n-heads", "2", "--d-ff", "12"],
}


@pytest.fixture(scope="session")
def command():
    """Runs a command and tells how it ended."""
    return run_command


@pytest.fixture(scope="session")
def train_dates():
    """Trains a tiny translator of dates with a command."""

    def train(model, out, *more):
        common = ["--data", "dates", "--model", model, "--out", out, "--device", "cpu"]
        ended = run_command("train", "translate", *common, *SIZES, *WIDTHS[model], *more)
        assert ended.code == 0, ended.err
        return out

    return train


@pytest.fixture(scope="session")
def folders(tmp_path_factory, train_dates):
    """A recurrent run and a Transformer's, by their names."""
    place = tmp_path_factory.mktemp("translators")
    return {model: train_dates(model, place / model) for model in WIDTHS}


@pytest.fixture(params=list(WIDTHS))
def folder(request, folders):
    """The folder of each of the two."""
    return folders[request.param]


@pytest.fixture
def run(folder):
    """Each of the two, opened."""
    return open_run(folder, "cpu")


@pytest.fixture
def transformer(folders):
    """The Transformer's run, opened."""
    return open_run(folders["transformer"], "cpu")
