import json
import os
import resource

import pytest
import torch

from sightline.train.checkpoint import Checkpoints, load_weights, read_tensors, weights_of, write_tensors
from sightline.train.config import TrainConfig
from sightline.train.loop import fit
from tests import sandbox
from tests.train.toy import Toy, ToyObjective

TENSORS = {"a": torch.arange(7.0), "b/c": torch.tensor(3), "half": torch.ones(2, 3, dtype=torch.bfloat16)}


def saved(folder, *steps):
    checkpoints = Checkpoints(folder)
    for step in steps:
        checkpoints.save({**TENSORS, "step": torch.tensor(step)}, {"step": step})
    return checkpoints


def test_what_is_saved_comes_back(tmp_path):
    saved(tmp_path, 3, 5)
    tensors, state = Checkpoints(tmp_path).latest()
    assert state["step"] == 5
    assert tensors.keys() == {*TENSORS, "step"}
    for name, tensor in TENSORS.items():
        assert torch.equal(tensors[name], tensor)
        assert tensors[name].dtype == tensor.dtype
    assert Checkpoints(tmp_path / "none").latest() is None


def test_the_last_two_are_kept_and_the_leavings_of_the_killed_are_not(tmp_path):
    checkpoints = saved(tmp_path, 1, 2)
    (tmp_path / ".new-000003-1").mkdir()
    (tmp_path / ".model-1.safetensors").write_text("half")
    checkpoints.save(TENSORS, {"step": 3})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000002", "000003", "latest.json"]


def test_a_killed_run_that_had_the_same_process_number_is_no_obstacle(tmp_path):
    """In a container every run may be process 1: it finds the folder that the killed one was writing."""
    saved(tmp_path, 1)
    leaving = tmp_path / f".new-000002-{os.getpid()}"
    leaving.mkdir()
    (leaving / "shard-00002.safetensors").write_text("half")
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.latest().state["step"] == 1
    checkpoints.save(TENSORS, {"step": 2})
    assert sorted(path.name for path in (tmp_path / "000002").iterdir()) == [
        "state.json",
        "tensors.safetensors",
    ]
    assert Checkpoints(tmp_path).latest().state["step"] == 2


@pytest.mark.parametrize("cut", [0, 10, -1])
@pytest.mark.parametrize("file", ["tensors.safetensors", "state.json"])
def test_a_damaged_one_is_named_and_the_one_before_taken(tmp_path, caplog, file, cut):
    saved(tmp_path, 1, 2)
    path = tmp_path / "000002" / file
    path.write_bytes(path.read_bytes()[:cut])
    assert Checkpoints(tmp_path).latest().state["step"] == 1
    said = caplog.text
    assert "000002' is damaged" in said
    assert "going on from 000001" in said


@pytest.mark.parametrize("content", ["{}", "[]", "7"])
def test_a_state_that_says_nothing_is_damage(tmp_path, caplog, content):
    checkpoints = Checkpoints(tmp_path)
    for step in (1, 2):
        checkpoints.save({"x": torch.ones(3)}, {"step": step})
    (tmp_path / "000002" / "state.json").write_text(content)
    assert Checkpoints(tmp_path).latest().state["step"] == 1
    assert "000002' is damaged: state.json must tell the length" in caplog.text


def test_a_flipped_bit_is_damage(tmp_path, caplog):
    saved(tmp_path, 1, 2)
    path = tmp_path / "000002" / "tensors.safetensors"
    data = bytearray(path.read_bytes())
    data[-3] ^= 4
    path.write_bytes(data)
    assert Checkpoints(tmp_path).latest().state["step"] == 1
    assert "checksum" in caplog.text


def test_without_its_pointer_the_newest_is_taken(tmp_path):
    saved(tmp_path, 1, 2)
    (tmp_path / "latest.json").write_text("{")
    assert Checkpoints(tmp_path).latest().state["step"] == 2


def test_after_a_fall_back_the_good_one_is_kept(tmp_path, caplog):
    saved(tmp_path, 1, 2)
    (tmp_path / "000002" / "state.json").write_text("")
    checkpoints = Checkpoints(tmp_path)
    checkpoints.latest()
    checkpoints.save(TENSORS, {"step": 7})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000001", "000003", "latest.json"]
    assert Checkpoints(tmp_path).latest().state["step"] == 7
    caplog.clear()


@pytest.mark.bad_input
def test_when_all_are_damaged_it_says_so(tmp_path):
    saved(tmp_path, 1, 2)
    for path in tmp_path.glob("*/tensors.safetensors"):
        path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"000002' is damaged.* 0 bytes .*every other \(2 in all\)"):
        Checkpoints(tmp_path).latest()


def test_a_run_with_a_truncated_checkpoint_ends_the_same(tmp_path, caplog):
    config = TrainConfig(device="cpu", epochs=3, lr=1e-2, tensorboard=False, threads=0, save_steps=2)

    def train(out, *, resume=False):
        torch.manual_seed(7)
        fit(Toy(), ToyObjective(), config, out, resume=resume, shown=False)
        return (out / "model.safetensors").read_bytes()

    whole = train(tmp_path / "whole")

    class StopError(Exception):
        pass

    class Stopping(ToyObjective):
        def load(self, indices, epoch):
            if epoch == 2:
                raise StopError
            return super().load(indices, epoch)

    torch.manual_seed(7)
    with pytest.raises(StopError):
        fit(Toy(), Stopping(), config, tmp_path / "cut", shown=False)
    newest = max((tmp_path / "cut" / "checkpoints" / "main").glob("0*")) / "tensors.safetensors"
    newest.write_bytes(newest.read_bytes()[:100])
    assert train(tmp_path / "cut", resume=True) == whole
    assert "is damaged" in caplog.text


def test_tied_weights_are_written_under_each_name(tmp_path):
    tied = torch.ones(3)
    write_tensors(tmp_path / "w.safetensors", {"in": tied, "out": tied})
    assert read_tensors(tmp_path / "w.safetensors").keys() == {"in", "out"}


@pytest.mark.bad_input
def test_weights_of_another_model():
    weights = weights_of(Toy())
    weights["first.weight"] = torch.zeros(2, 5)
    with pytest.raises(ValueError, match=r"'first.weight' has shape \(2, 5\) there and \(7, 5\)"):
        load_weights(Toy(), weights, "there")


@pytest.mark.bad_input
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_full_disk_costs_nothing_but_a_sentence(tmp_path):
    """A real one: the system refuses to write more than some bytes to a file, as it does without space."""

    def fill():
        checkpoints = Checkpoints(tmp_path)
        checkpoints.save({"x": torch.ones(100)}, {"step": 1})
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, resource.RLIM_INFINITY))
        checkpoints.save({"x": torch.ones(10_000)}, {"step": 2})

    done = sandbox.run(fill)
    assert f"can't write a checkpoint to '{tmp_path}': file too large" in done.err
    assert "checkpoint 000001 is whole: make room and go on with --resume" in done.err
    assert Checkpoints(tmp_path).latest().state["step"] == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000001", "latest.json"]


@pytest.mark.bad_input
def test_a_disk_that_fills_up_stops_a_run_that_can_go_on(tmp_path, monkeypatch):
    config = TrainConfig(device="cpu", epochs=3, lr=1e-2, tensorboard=False, threads=0, save_steps=2)
    torch.manual_seed(7)
    fit(Toy(), ToyObjective(), config, tmp_path / "whole", shown=False)
    real = Checkpoints.save

    def full_after_two(self, tensors, state):
        if state["step"] > 4:
            with monkeypatch.context() as patch:
                patch.setattr("sightline.train.checkpoint._write", _no_space)
                return real(self, tensors, state)
        return real(self, tensors, state)

    def _no_space(path, data):
        path.write_bytes(data[:10])
        raise OSError(28, "No space left on device")

    torch.manual_seed(7)
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save", full_after_two)
        with pytest.raises(OSError, match="no space left on device; checkpoint 000002 is whole"):
            fit(Toy(), ToyObjective(), config, tmp_path / "run", shown=False)
    torch.manual_seed(7)
    fit(Toy(), ToyObjective(), config, tmp_path / "run", resume=True, shown=False)
    same = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "run")]
    assert same[0] == same[1]


def test_state_is_plain_json(tmp_path):
    saved(tmp_path, 4)
    assert json.loads((tmp_path / "000001" / "state.json").read_text())["step"] == 4
