"""Checkpoints that were damaged, and what a killed training left: a run goes on, or says why not."""

import json
import os
import shutil

import pytest
import torch
from safetensors.torch import load_file

from sightline.train import TrainConfig, fit
from tests.train.toy import Toy, ToyConfig, ToyObjective

CONFIG = TrainConfig(device="cpu", epochs=3, lr=1e-2, tensorboard=False, threads=0, save_steps=2)


class StopError(Exception):
    pass


class Stopping(ToyObjective):
    """Stops as a killed process does: in step 8, after the checkpoints of steps 5 and 6."""

    def load(self, indices, epoch):
        if epoch == 1 and indices == self.plan(1)[2]:
            raise StopError
        return super().load(indices, epoch)


def trained(out, objective=None, *, resume=False):
    torch.manual_seed(7)
    fit(Toy(), objective or ToyObjective(), CONFIG, out, resume=resume, shown=False)
    return [(out / name).read_bytes() for name in ("model.safetensors", "metrics.csv")]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """What a training leaves that was never stopped."""
    return trained(tmp_path_factory.mktemp("whole") / "run")


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A training that was stopped; not to be changed."""
    out = tmp_path_factory.mktemp("kept") / "run"
    with pytest.raises(StopError):
        trained(out, Stopping())
    return out


@pytest.fixture
def stopped(kept, tmp_path):
    """A copy of the stopped training, and its two checkpoints, the older first."""
    shutil.copytree(kept, tmp_path / "run")
    checkpoints = sorted((tmp_path / "run/checkpoints/main").glob("0*"))
    assert [json.loads((x / "state.json").read_text())["step"] for x in checkpoints] == [5, 6]
    return tmp_path / "run", checkpoints


def flipped(data):
    """One bit near the end is another."""
    return data[:-3] + bytes([data[-3] ^ 4]) + data[-2:]


DAMAGES = {
    "tensors, empty": ("tensors.safetensors", lambda _: b"", "has 0 bytes where"),
    "tensors, cut": ("tensors.safetensors", lambda x: x[:-1], "bytes where"),
    "tensors, a bit": ("tensors.safetensors", flipped, "the checksum of tensors.safetensors is wrong"),
    "tensors, longer": ("tensors.safetensors", lambda x: x + b"\0", "bytes where"),
    "tensors, gone": ("tensors.safetensors", None, "tensors.safetensors"),
    "state, empty": ("state.json", lambda _: b"", "state.json"),
    "state, a list": ("state.json", lambda _: b"[]", "must tell the length and the checksum"),
    "state, nothing": ("state.json", lambda _: b"{}", "must tell the length and the checksum"),
    "state, a number": (
        "state.json",
        lambda x: x.replace(b'"step": 6', b'"step": 7'),
        "checksum of state.json",
    ),
    "state, gone": ("state.json", None, "state.json"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_where_the_newest_is_damaged_the_one_before_is_taken(stopped, whole, caplog, name):
    out, (older, newer) = stopped
    file, change, sentence = DAMAGES[name]
    if change is None:
        (newer / file).unlink()
    else:
        (newer / file).write_bytes(change((newer / file).read_bytes()))
    assert trained(out, resume=True) == whole
    said = [x for x in caplog.messages if "is damaged" in x]
    assert len(said) == 1
    assert f"{newer.name}' is damaged: " in said[0]
    assert sentence in said[0]
    assert said[0].endswith(f"; going on from {older.name}")


def test_what_is_no_file_is_not_waited_for(stopped, whole, caplog):
    out, (_, newer) = stopped
    (newer / "tensors.safetensors").unlink()
    os.mkfifo(newer / "tensors.safetensors")
    assert trained(out, resume=True) == whole
    assert f"{newer.name}' is damaged: " in caplog.text


def test_without_its_pointer_the_newest_is_taken(stopped, whole, caplog):
    out, (_, newer) = stopped
    steps = []

    class Counting(ToyObjective):
        def load(self, indices, epoch):
            steps.append(epoch)
            return super().load(indices, epoch)

    (newer.parent / "latest.json").write_text("{")
    assert trained(out, Counting(), resume=True) == whole
    assert len(steps) == 9  # of 15, six are done
    assert "damaged" not in caplog.text


@pytest.mark.bad_input
def test_where_all_are_damaged_a_sentence_says_so(stopped):
    out, checkpoints = stopped
    for checkpoint in checkpoints:
        (checkpoint / "tensors.safetensors").write_bytes(b"")
    with pytest.raises(ValueError, match=r"main/\d+' is damaged: .* 0 bytes .*every other \(2 in all\)"):
        trained(out, resume=True)


def test_what_a_killed_training_left_is_swept(stopped, whole):
    """Also a folder that a process with the number of this one had half written."""
    out, (_, newer) = stopped
    half = newer.parent / f".new-{int(newer.name) + 1:06d}-{os.getpid()}"
    half.mkdir()
    (half / "shard-00002.safetensors").write_text("half")
    (newer.parent / ".model-1.safetensors").write_text("half")
    (newer.parent / ".new-000001-1").mkdir()
    assert trained(out, resume=True) == whole
    left = sorted(x.name for x in newer.parent.iterdir())
    assert [name for name in left if name.startswith(".")] == []
    assert len([name for name in left if name.isdecimal()]) == 2
    last = newer.parent / json.loads((newer.parent / "latest.json").read_text())["checkpoint"]
    assert sorted(x.name for x in last.iterdir()) == ["state.json", "tensors.safetensors"]


@pytest.mark.bad_input
def test_weights_of_another_model_are_refused(stopped):
    out, _ = stopped
    config = out / "config.json"
    config.write_text(config.read_text().replace('"width": 7', '"width": 5'))
    with pytest.raises(ValueError, match=r"are not those that it was trained with|of another model"):
        fit(Toy(ToyConfig(width=5)), ToyObjective(), CONFIG, out, resume=True, shown=False)


@pytest.mark.bad_input
def test_what_a_model_raises_is_raised(tmp_path):
    class Failing(ToyObjective):
        def loss(self, model, batch):
            raise RuntimeError("the shapes do not fit")

    with pytest.raises(RuntimeError, match=r"^the shapes do not fit$"):
        trained(tmp_path / "run", Failing())


def test_tied_weights_are_kept_under_each_name(tmp_path):
    class Tied(Toy):
        def __init__(self):
            super().__init__(dropout=0.0)
            self.again = torch.nn.Linear(7, 3, bias=False)
            self.again.weight = self.last.weight

    for resume in (False, True):
        torch.manual_seed(7)
        model = Tied()
        fit(model, ToyObjective(), CONFIG, tmp_path / "run", resume=resume, shown=False)
        assert model.again.weight is model.last.weight
    found = load_file(tmp_path / "run/model.safetensors")
    assert torch.equal(found["again.weight"], found["last.weight"])
    assert torch.equal(found["again.weight"], model.last.weight)
