"""What a run folder is kept from: other data, two trainings at once, weights chosen by a tie."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file

from sightline.train import Stage, TrainConfig, fit
from tests.train.toy import Toy, ToyObjective


class Scored(ToyObjective):
    """A task whose scores are given, one evaluation after the other."""

    def __init__(self, scores):
        super().__init__()
        self.scores = iter(scores)

    def evaluate(self, model):
        return next(self.scores)


class Named(ToyObjective):
    def __init__(self, name):
        super().__init__()
        self.name = name

    def digest(self):
        return self.name


def config(**changed):
    return TrainConfig(**{"epochs": 3, "tensorboard": False, "log_every": 97, "device": "cpu"} | changed)


def _state(out):
    """What the last checkpoint says of the run."""
    folder = out / "checkpoints/main"
    return folder / json.loads((folder / "latest.json").read_text())["checkpoint"] / "state.json"


def _edit_state(out, *dropped, **changed):
    """Write the state anew as an earlier version did, whose states had no checksum of their own."""
    path = _state(out)
    told = json.loads(path.read_text()) | changed
    path.write_text(json.dumps({key: told[key] for key in told if key not in (*dropped, "state_sha256")}))


@pytest.mark.bad_input
@pytest.mark.parametrize("edit", [{"step": 4}, {"batch": 1}, {"epoch": 0}, {"done": False}, {"best": 0.9}])
def test_a_state_that_was_edited_is_noticed(tmp_path, edit):
    fit(Toy(), ToyObjective(), config(steps=5), tmp_path / "run", shown=False)
    path = _state(tmp_path / "run")
    told = json.loads(path.read_text())
    assert told | edit != told
    path.write_text(json.dumps(told | edit))
    with pytest.raises(ValueError, match=r"is damaged: the checksum of state\.json is wrong"):
        fit(Toy(), ToyObjective(), config(steps=5), tmp_path / "run", resume=True, shown=False)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "edit",
    [{"step": "x"}, {"epoch": None}, {"best": []}, {"rows": [7]}, {"rows": [{"step": 3}]}, {"sums": 3}],
)
def test_a_state_without_a_checksum_has_values_of_its_types(tmp_path, edit):
    fit(Toy(), ToyObjective(), config(steps=5), tmp_path / "run", shown=False)
    _edit_state(tmp_path / "run", **edit)
    with pytest.raises(ValueError, match=rf"is damaged: ({next(iter(edit))} must be|a row of the curve has)"):
        fit(Toy(), ToyObjective(), config(steps=5), tmp_path / "run", resume=True, shown=False)


@pytest.mark.bad_input
def test_a_run_that_ended_has_weights(tmp_path):
    out = tmp_path / "run"
    fit(Toy(), ToyObjective(), config(steps=5), out, shown=False)
    for path in (
        out / "model.safetensors",
        out / "checkpoints/main/model.safetensors",
        out / "manifest.json",
    ):
        path.unlink()
    with pytest.raises(ValueError, match=r"that has ended has weights, .*run' has none"):
        fit(Toy(), ToyObjective(), config(steps=5), out, resume=True, shown=False)


@pytest.mark.bad_input
def test_a_folder_that_is_removed_during_a_training_is_noticed(tmp_path):
    class Removing(ToyObjective):
        def evaluate(self, model):
            shutil.rmtree(tmp_path / "run")
            return super().evaluate(model)

    with pytest.raises(OSError, match=r"was moved or emptied during the training: its config\.json"):
        fit(Toy(), Removing(), config(epochs=1), tmp_path / "run", shown=False)
    assert not (tmp_path / "run").exists()


@pytest.mark.bad_input
def test_a_run_goes_on_with_the_files_it_vouches_for(tmp_path):
    out = tmp_path / "run"
    fit(Toy(), ToyObjective(), config(steps=5), out, shown=False)
    config_file = out / "config.json"
    config_file.write_text(config_file.read_text() + " ")
    with pytest.raises(ValueError, match=r"not those that were written: 'config\.json' has .* bytes, not"):
        fit(Toy(), ToyObjective(), config(steps=9), out, resume=True, shown=False)
    (out / "manifest.json").unlink()
    fit(Toy(), ToyObjective(), config(steps=9), out, resume=True, shown=False)
    assert (out / "manifest.json").is_file()


def kept_after(tmp_path, scores, **changed):
    """The number of the evaluation whose weights were kept."""
    every = []

    class Watched(Scored):
        def evaluate(self, model):
            every.append([weight.clone() for weight in model.parameters()])
            return super().evaluate(model)

    model = Toy()
    fit(model, Watched(scores), config(epochs=len(scores), **changed), tmp_path / "run", shown=False)
    kept = load_file(tmp_path / "run" / "model.safetensors")
    names = [name for name, _ in model.named_parameters()]
    same = [all(map(torch.equal, weights, [kept[name] for name in names])) for weights in every]
    return same.index(True)


@pytest.mark.parametrize(
    ("metric", "scores", "kept"),
    [
        ("accuracy", [(0.0, 3.0), (0.0, 2.0), (0.0, 2.5)], 1),
        ("accuracy", [(0.1, 2.0), (0.0, 1.0), (0.1, 3.0)], 0),
        ("accuracy", [(0.1, 2.0), (0.2, 5.0), (0.1, 1.0)], 1),
        ("loss", [(0.3, 2.0), (0.2, 1.0), (0.1, 1.0)], 1),
    ],
    ids=["zeros", "worse", "better", "by_loss"],
)
def test_of_equal_scores_the_lower_loss_is_kept(tmp_path, metric, scores, kept):
    told = [{"accuracy": accuracy, "loss": loss} for accuracy, loss in scores]
    assert kept_after(tmp_path, told, metric=metric) == kept


def test_a_score_alone_is_enough_where_a_task_has_no_loss(tmp_path):
    assert kept_after(tmp_path, [{"hits": 2.0}, {"hits": 2.0}, {"hits": 3.0}], metric="hits") == 2


def test_a_run_does_not_go_on_with_other_data(tmp_path):
    fit(Toy(), Named("one"), config(steps=5), tmp_path / "run", shown=False)
    _edit_state(tmp_path / "run", done=False)
    with pytest.raises(ValueError, match=r"began with, named one in .*, and these are named two.*--out"):
        fit(Toy(), Named("two"), config(steps=5), tmp_path / "run", resume=True, shown=False)
    fit(Toy(), Named("one"), config(steps=5), tmp_path / "run", resume=True, shown=False)


def test_where_a_run_goes_on_may_change_but_not_what_it_learns(tmp_path):
    fit(Toy(), ToyObjective(), config(steps=2), tmp_path / "run", shown=False)
    elsewhere = config(steps=2, threads=0, log_every=5, device="auto")
    fit(Toy(), ToyObjective(), elsewhere, tmp_path / "run", resume=True, shown=False)
    with pytest.raises(ValueError, match=r"lr was 0\.0005"):
        fit(Toy(), ToyObjective(), config(steps=2, lr=0.1), tmp_path / "run", resume=True, shown=False)


@pytest.mark.parametrize(
    ("metric", "kept"),
    [("accuracy", "first"), ("loss", "second")],
    ids=["a tie with a higher loss", "another metric"],
)
def test_a_stage_beats_what_it_starts_from_or_begins_to_count_anew(tmp_path, metric, kept):
    # The second evaluates what it starts from where the metric is another, hence one score more.
    first = [{"accuracy": 0.5, "loss": 2.0}]
    second = [{"accuracy": 0.5, "loss": 3.0}, {"accuracy": 0.5, "loss": 2.9}]
    weights = []

    class Watched(Scored):
        def evaluate(self, model):
            weights.append(model.last.weight.clone())
            return super().evaluate(model)

    stage = Stage(
        name="more", objective=Watched(second), config=config(epochs=1 + (kept == "first"), metric=metric)
    )
    out = tmp_path / "run"
    fit(Toy(), Watched(first), config(epochs=1, metric="accuracy"), out, then=[stage], shown=False)
    found = load_file(out / "model.safetensors")["last.weight"]
    assert torch.equal(found, weights[0 if kept == "first" else -1])


def test_a_checkpoint_of_an_earlier_version_loses_no_tie(tmp_path):
    out, scores = tmp_path / "run", [{"accuracy": 0.5, "loss": 2.0}] * 2
    fit(Toy(), Scored(scores[:1]), config(epochs=1, metric="accuracy"), out, shown=False)
    before = load_file(out / "model.safetensors")
    _edit_state(out, "best_loss", "digest", done=False)
    path = out / "config.json"
    path.write_text(path.read_text().replace('"epochs": 1', '"epochs": 2'))
    (out / "manifest.json").unlink()
    fit(Toy(), Scored(scores), config(epochs=2, metric="accuracy"), out, resume=True, shown=False)
    after = load_file(out / "model.safetensors")
    assert all(torch.equal(before[name], after[name]) for name in before)
