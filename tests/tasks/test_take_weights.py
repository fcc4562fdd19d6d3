"""``--from RUN``: what fits is taken, words and classes by their names."""

import logging
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from sightline.models.run_folder import WEIGHTS
from sightline.models.weights_file import write_weights
from sightline.tasks import training
from sightline.tasks.task import Prepared
from tests.train.toy import ToyObjective

OLD, NEW = ("<pad>", "red", "blue", "ring"), ("<pad>", "ring", "green", "red", "dog")


def model(n_words, width=3, seed=0):
    torch.manual_seed(seed)
    return nn.ModuleDict({"words": nn.Embedding(n_words, width), "body": nn.Linear(width, 2)})


@pytest.fixture
def saved(tmp_path, monkeypatch):
    """A run with four words."""
    old = model(len(OLD), seed=5)
    write_weights(tmp_path / WEIGHTS, old.state_dict())
    predictor = SimpleNamespace(row_names=lambda: {"words.weight": OLD})
    monkeypatch.setattr(training, "open_run", lambda folder, device: SimpleNamespace(predictor=predictor))
    return old, tmp_path


@pytest.mark.parametrize("names", [NEW, NEW[:4]], ids=["more words", "as many words"])
def test_words_are_taken_by_their_names(saved, names, caplog):
    old, folder = saved
    new = model(len(names), seed=7)
    before = new["words"].weight.clone()
    prepared = Prepared(model=new, objective=ToyObjective(), row_names={"words.weight": names})
    with caplog.at_level(logging.INFO, "sightline"):
        training.take_weights(prepared, folder)
    assert torch.equal(new["body"].weight, old["body"].weight)
    for i, name in enumerate(names):
        expected = old["words"].weight[OLD.index(name)] if name in OLD else before[i]
        assert torch.equal(new["words"].weight[i], expected), name
    n_new = sum(name not in OLD for name in names)
    assert f"{n_new} of {len(names)} rows of words.weight" in caplog.text


@pytest.mark.bad_input
def test_a_run_of_which_nothing_fits_is_refused(saved):
    _, folder = saved
    prepared = Prepared(model=model(4, width=5), objective=ToyObjective(), row_names={"words.weight": OLD})
    prepared.model["body"] = nn.Linear(5, 3)
    with pytest.raises(ValueError, match="not one of the 3 in"):
        training.take_weights(prepared, folder)
