"""What a training says of itself, word for word, and what its folder is refused for."""

import itertools
import json
import re
import time

import pytest
import torch
from safetensors.torch import load_file, save_file

from sightline.train import Stage, TrainConfig, fit
from tests.train.toy import Toy, ToyObjective

PLAIN = {"device": "cpu", "tensorboard": False, "threads": 0, "epochs": 2, "lr": 0.01}


class Scored(ToyObjective):
    def __init__(self, *losses):
        super().__init__()
        self.losses = iter(losses)

    def evaluate(self, model):
        return {"loss": next(self.losses), "accuracy": 0.25}


def trained(out, objective=None, *, shown=False, resume=False, then=(), model=None, **changed):
    torch.manual_seed(7)
    model, config = model or Toy(), TrainConfig(**PLAIN | changed)
    fit(model, objective or ToyObjective(), config, out, shown=shown, resume=resume, then=then)
    return model


@pytest.fixture
def clock(monkeypatch):
    """A second passes at every question what time it is."""
    seconds = itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(seconds)))


@pytest.mark.usefixtures("clock")
def test_every_line_of_a_training(tmp_path, capsys):
    trained(tmp_path / "run", Scored(1.5, 12.25), shown=True, metric="accuracy")
    lines = capsys.readouterr().err.splitlines()
    rows = (tmp_path / "run/metrics.csv").read_text().splitlines()[1:]
    losses = [float(row.split(",")[2]) for row in rows]
    few = (
        "10 steps are too few to learn much: raise --epochs 2, or lower --batch-size 64, to make at least 100"
    )
    assert lines[:2] == [
        "53 examples, 5 steps an epoch, 10 steps in all; 77 trainable parameters, on cpu",
        few,
    ]
    scores, after = r"  val accuracy 0\.2500  ", r"\d+ examples/s  "
    patterns = [
        r"about \d:\d\d to go, evaluations not counted",
        rf"epoch 1/2  loss {losses[0]:.4f}  val loss 1\.5000{scores}{after}\d:\d\d left  best",
        rf"epoch 2/2  loss {losses[1]:.4f}  val loss 12\.25{scores}{after}0:00 left",
    ]
    assert len(lines) == 5
    for line, pattern in zip(lines[2:], patterns, strict=True):
        assert re.fullmatch(pattern, line), line


def test_every_line_of_one_that_goes_on(tmp_path, capsys):
    trained(tmp_path / "run")
    trained(tmp_path / "run", shown=True, resume=True, epochs=40, log_every=97)
    first, *epochs = capsys.readouterr().err.splitlines()
    assert first == (
        "going on after step 10: 53 examples, 5 steps an epoch, 200 steps in all; "
        "77 trainable parameters, on cpu"
    )
    assert [line.split("  ")[0] for line in epochs if line.startswith("epoch")] == [
        f"epoch {i}/40" for i in range(3, 41)
    ]


def test_one_step_is_no_steps(tmp_path, capsys):
    trained(tmp_path / "run", ToyObjective(batch_size=53), shown=True, steps=1)
    assert "53 examples, 1 step an epoch, 1 steps in all; " in capsys.readouterr().err


def test_curves_for_tensorboard_go_on_where_the_run_does(tmp_path):
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")

    class Stopping(ToyObjective):
        def load(self, indices, epoch):
            if epoch == 1 and indices == self.plan(1)[3]:
                raise KeyboardInterrupt
            return super().load(indices, epoch)

    options = {"log_every": 1, "tensorboard": True, "epochs": 3}
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "run", Stopping(), **options)
    trained(tmp_path / "run", resume=True, **options)
    header, *lines = (tmp_path / "run/metrics.csv").read_text().splitlines()
    rows = [dict(zip(header.split(","), line.split(","), strict=True)) for line in lines]
    seen = reader.EventAccumulator(str(tmp_path / "run/logs")).Reload()
    assert [event.step for event in seen.Scalars("loss")] == [int(row["step"]) for row in rows]
    assert [event.value for event in seen.Scalars("loss")] == pytest.approx([float(x["loss"]) for x in rows])
    assert {"lr", "epoch", "val/loss", "val/accuracy", "hits"} <= set(seen.Tags()["scalars"])


def test_of_the_last_epochs_no_more_files_stay_than_are_needed(tmp_path):
    counts = []

    class Looking(ToyObjective):
        def evaluate(self, model):
            counts.append(len(list((tmp_path / "run/checkpoints/main").glob("epoch-*"))))
            return super().evaluate(model)

    trained(tmp_path / "run", Looking(), epochs=9, average_last=2)
    assert max(counts) == 4  # two, and those that the checkpoint before would need
    assert not list((tmp_path / "run/checkpoints/main").glob("epoch-*"))


# What is refused


@pytest.mark.bad_input
def test_a_run_without_its_config_is_refused(tmp_path):
    trained(tmp_path / "run")
    (tmp_path / "run/config.json").unlink()
    with pytest.raises(ValueError, match=r"'config\.json' is missing; copy the run anew"):
        trained(tmp_path / "run", resume=True, epochs=3)


@pytest.mark.bad_input
def test_a_config_that_was_edited_is_refused(tmp_path):
    trained(tmp_path / "run")
    path = tmp_path / "run/config.json"
    told = json.loads(path.read_text())
    told["train"]["lr"] = 0.5
    path.write_text(json.dumps(told))
    (tmp_path / "run/manifest.json").unlink()
    with pytest.raises(ValueError, match=r"(lr was 0\.01|are not those that it was trained with: lr)"):
        trained(tmp_path / "run", resume=True, epochs=3, lr=0.5)


@pytest.mark.bad_input
def test_the_best_weights_of_another_model_are_refused(tmp_path):
    """They are read at the end of a stage, and of a run that had ended."""
    trained(tmp_path / "run")
    (tmp_path / "run/manifest.json").unlink()
    for path in (tmp_path / "run/model.safetensors", tmp_path / "run/checkpoints/main/model.safetensors"):
        weights = load_file(path)
        weights["last.weight"] = weights["last.weight"][:, :2].contiguous()
        save_file(weights, path)
    stage = Stage(name="more", objective=ToyObjective(), config=TrainConfig(**PLAIN))
    with pytest.raises(ValueError, match=r"'last\.weight' has shape|checksum|damaged"):
        trained(tmp_path / "run", resume=True, then=[stage])


@pytest.mark.bad_input
@pytest.mark.parametrize("device", ["cuda:0", "cuda:3"])
def test_of_several_processes_none_names_its_gpu(tmp_path, monkeypatch, device):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    for name, value in {
        "RANK": "0",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "1",
    }.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=f"takes the GPU of its own number, got device '{device}'"):
        trained(tmp_path / "run", device=device)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "5")
    with pytest.raises(ValueError, match="there are 5 processes and 4 GPUs on this machine; start 4"):
        trained(tmp_path / "run", device="cuda")


@pytest.mark.bad_input
@pytest.mark.parametrize("name", ["FSDP", "DEEPSPEED", "MEGATRON_LM"])
def test_weights_are_sharded_by_one_of_two(tmp_path, monkeypatch, name):
    monkeypatch.setenv(f"ACCELERATE_USE_{name}", "true")
    with pytest.raises(ValueError, match=f"Accelerate was told to use {name}; start it without"):
        trained(tmp_path / "run")
    monkeypatch.setenv(f"ACCELERATE_USE_{name}", "False")
    trained(tmp_path / "run", steps=1)


def test_one_process_alone_shards_nothing(tmp_path, capsys):
    for name, settings in (("plain", {}), ("fsdp", {"sharding": "fsdp"})):
        trained(tmp_path / name, shown=True, **settings)
    plain, fsdp = (load_file(tmp_path / name / "model.safetensors") for name in ("plain", "fsdp"))
    assert all(torch.equal(plain[name], fsdp[name]) for name in plain)
    assert "sharded" not in capsys.readouterr().err
