"""The small parts of the loop, each against torch's own or a loop."""

import csv
import gc
import math
import sys
import threading
from pathlib import Path

import pytest
import torch
from torch import nn

from sightline.train.checkpoint import weights_of, write_tensors
from sightline.train.config import TrainConfig, with_min_steps
from sightline.train.folder import lock_folder
from sightline.train.optimizer import adamw, named_state, rate, restore
from sightline.train.progress import Curve, Progress
from sightline.train.stepping import accelerator_for, to_device
from sightline.train.weights import Ema, mean_of
from tests.train.toy import Toy
from tests.until import until


def rates(total, **settings):
    config = TrainConfig(lr=0.5, **settings)
    return [rate(config, step, total) for step in range(total)]


def test_cosine_is_torchs():
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(()))], lr=0.5)
    theirs = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 29)
    expected = []
    for _ in range(29):
        expected.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        theirs.step()
    assert rates(29, warmup=0.0) == pytest.approx(expected)


def test_the_warm_up_rises_in_a_line_and_a_share_is_of_all_steps():
    assert rates(40, warmup=4.0)[:5] == pytest.approx([0.125, 0.25, 0.375, 0.5, 0.5])
    assert rates(40, warmup=0.1) == rates(40, warmup=4.0)


def test_the_other_schedules():
    assert rates(11, warmup=2.0, schedule="constant")[2:] == [0.5] * 9
    inverse = rates(50, warmup=4.0, schedule="inverse_sqrt")
    assert inverse[15] == pytest.approx(0.25)  # √(4 / 16)
    assert max(inverse) == 0.5
    assert rates(11, warmup=1.0, schedule="linear", final_lr=0.2)[6] == pytest.approx(0.5 * (0.2 + 0.8 * 0.5))
    ended = rate(TrainConfig(lr=1.0, warmup=0.0, final_lr=0.1), 99, 10)  # longer epochs than the first
    assert ended == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("settings", "n_batches", "epochs", "evaluate_every"),
    [
        ({"epochs": 10, "min_steps": 600}, 3, 200, 20),  # evaluated as often as before: ten times
        ({"epochs": 10, "min_steps": 600}, 60, 10, 1),  # enough as it is
        ({"epochs": 10, "min_steps": 601}, 60, 11, 1),
        ({"epochs": 10, "min_steps": None}, 3, 10, 1),
        ({"epochs": 10, "min_steps": 600, "steps": 7}, 3, 10, 1),  # who says how many steps, gets them
    ],
)
def test_few_examples_are_gone_through_more_often(settings, n_batches, epochs, evaluate_every):
    config = with_min_steps(TrainConfig(**settings), n_batches)
    assert (config.epochs, config.evaluate_every, config.save_every) == (
        epochs,
        evaluate_every,
        evaluate_every,
    )


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"lr": -1.0}, "lr must be a positive number, got -1.0"),
        ({"clip": math.nan}, "clip must be a finite number, got nan"),
        ({"ema": 1.0}, "ema must be at least 0 and below 1, got 1.0"),
        ({"schedule": "cosin"}, "unknown schedule 'cosin'.* did you mean 'cosine'"),
        ({"precision": "fp8"}, "unknown precision 'fp8'"),
        ({"device": "tpu"}, "unknown device 'tpu'"),
    ],
)
def test_settings_that_make_no_sense(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        TrainConfig(**settings)


def test_ema_against_a_loop():
    model = Toy()
    ema = Ema(model, 0.9)
    mean = {name: tensor.clone() for name, tensor in model.named_parameters()}
    for step in range(1, 8):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter))
        ema.update(step)
        decay = min(0.9, (1 + step) / (10 + step))
        mean = {name: decay * mean[name] + (1 - decay) * new for name, new in model.named_parameters()}
    for name, parameter in ema.model.named_parameters():
        torch.testing.assert_close(parameter, mean[name])
        assert not parameter.requires_grad
    model.norm.running_mean += 3
    assert torch.equal(ema.evaluated().norm.running_mean, model.norm.running_mean)


def test_what_is_frozen_is_not_averaged():
    model = Toy()
    model.first.requires_grad_(False)
    ema = Ema(model, 0.5)
    with torch.no_grad():
        model.last.weight += 1
    before = ema.model.first.weight.clone()
    ema.update(100)
    assert torch.equal(ema.model.first.weight, before)
    assert not torch.equal(ema.model.last.weight, model.last.weight)


def test_the_mean_of_files(tmp_path):
    models = [Toy() for _ in range(3)]
    files = [tmp_path / f"{i}.safetensors" for i in range(3)]
    for path, model in zip(files, models, strict=True):
        write_tensors(path, weights_of(model))
    mean = mean_of(files, models[0])
    expected = sum(model.last.weight.detach() for model in models) / 3
    torch.testing.assert_close(mean["last.weight"], expected)
    assert mean["norm.num_batches_tracked"].dtype == torch.long


def test_only_matrices_decay():
    model = Toy()
    groups = adamw(model, TrainConfig(weight_decay=0.3)).param_groups
    decayed = {id(p) for group in groups if group["weight_decay"] == 0.3 for p in group["params"]}
    assert decayed == {id(model.first.weight), id(model.last.weight)}


def test_what_is_pretrained_learns_at_a_share_of_the_rate():
    model = Toy()
    model.pretrained = list(model.first.parameters())
    config = TrainConfig(weight_decay=0.3, pretrained_lr=0.25)
    shares = {id(p): g["share"] for g in adamw(model, config).param_groups for p in g["params"]}
    assert [shares[id(p)] for p in model.first.parameters()] == [0.25, 0.25]
    assert {share for at, share in shares.items() if at not in {id(p) for p in model.pretrained}} == {1.0}
    decayed = [g["params"] for g in adamw(model, config).param_groups if g["weight_decay"] == 0.3]
    assert {id(p) for params in decayed for p in params} == {id(model.first.weight), id(model.last.weight)}


def test_an_optimizer_goes_on_from_its_named_state():
    def stepped(model, optimizer, n):
        for i in range(n):
            optimizer.zero_grad()
            model(torch.full((3, 5), float(i))).square().sum().backward()
            optimizer.step()

    torch.manual_seed(0)
    whole = Toy(dropout=0.0)
    optimizer = adamw(whole, TrainConfig())
    stepped(whole, optimizer, 3)
    half = Toy(dropout=0.0)
    half.load_state_dict(whole.state_dict())
    other = adamw(half, TrainConfig())
    restore(other, half, named_state(optimizer, whole))
    stepped(whole, optimizer, 2)
    stepped(half, other, 2)
    for a, b in zip(whole.parameters(), half.parameters(), strict=True):
        assert torch.equal(a, b)


def test_the_state_lies_in_memory_as_its_weight_does():
    """Fused steps refuse anything else, and a pretrained network's weights are channels last."""
    model = torch.nn.Conv2d(3, 5, 7).to(memory_format=torch.channels_last)
    optimizer = adamw(model, TrainConfig())
    model(torch.randn(2, 3, 11, 11)).sum().backward()
    optimizer.step()
    state = {name: value.contiguous() for name, value in named_state(optimizer, model).items()}
    other = adamw(model, TrainConfig())
    restore(other, model, state)
    for key in ("exp_avg", "exp_avg_sq"):
        kept = other.state[model.weight][key]
        assert kept.stride() == model.weight.stride()
        assert torch.equal(kept, optimizer.state[model.weight][key])
        assert not kept.requires_grad


def test_moved_keeps_the_shape_of_a_batch():
    batch = {"x": torch.ones(2), "y": [(torch.zeros(1), "name")], "n": 3}
    there = to_device(batch, torch.device("meta"))
    assert there["x"].is_meta
    assert there["y"][0][0].is_meta
    assert there["y"][0][1] == "name"
    assert there["n"] == 3


def test_a_folder_is_free_again_after_a_training(tmp_path):
    for _ in range(2):
        with lock_folder(tmp_path / "run", resume=False):
            pass
    with pytest.raises(ValueError, match="is a file"), lock_folder(Path(__file__), resume=True):
        pass


def test_the_curve_has_a_column_for_every_name(tmp_path):
    curve = Curve(tmp_path, [], tensorboard=False)
    curve.add({"step": 1, "epoch": 0.5, "loss": 2.0, "lr": 0.1})
    curve.add({"step": 2, "epoch": 1.0, "loss": 1.0, "lr": 0.1, "val_cider": 0.5})
    with (tmp_path / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows[0]["val_cider"] == ""
    assert rows[1]["val_cider"] == "0.5"


def test_without_tensorboard_there_is_a_sentence(tmp_path, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    curve = Curve(tmp_path, [], tensorboard=True)
    assert "tensorboard is not installed" in caplog.text
    curve.add({"step": 1, "epoch": 1, "loss": 1.0, "lr": 0.1})
    curve.close()


def test_what_tensorboard_saw_after_the_checkpoint_is_purged(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    rows = []
    for losses in ([1.0, 2.0, 3.0], [7.0]):  # killed after step 3, gone on after step 1
        curve = Curve(tmp_path, rows, tensorboard=True)
        for step, loss in enumerate(losses, len(rows) + 1):
            curve.add({"step": step, "epoch": 1, "loss": loss, "lr": 0.1})
        curve.close()
        rows = rows[:1]
    seen = EventAccumulator(str(tmp_path / "logs")).Reload().Scalars("loss")
    assert [(event.step, event.value) for event in seen] == [(1, 1.0), (2, 7.0)]


@pytest.mark.parametrize("good", [0, 3])
def test_a_full_disk_costs_the_curves_of_tensorboard_alone(tmp_path, monkeypatch, caplog, good):
    from tensorboard.summary.writer.record_writer import RecordWriter

    written = []

    def full(self, data):
        written.append(data)
        if len(written) > good:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(RecordWriter, "write", full)
    before = threading.excepthook
    curve = Curve(tmp_path, [], tensorboard=True)
    for step in range(9):
        curve.add({"step": step, "epoch": 1, "loss": 1.0, "lr": 0.1})
        until(lambda at=step: len(written) > min(at, good))  # its thread writes
    curve.close()
    gc.collect()
    assert threading.excepthook is before
    told = "no more curves for TensorBoard: no space left on device; metrics.csv goes on"
    assert caplog.messages == [told]
    assert len((tmp_path / "metrics.csv").read_text().splitlines()) == 10


@pytest.mark.parametrize("schedule", ["constant", "cosine", "inverse_sqrt", "linear"])
def test_every_schedule_that_is_documented_is_taken(schedule):
    assert TrainConfig(schedule=schedule).schedule == schedule


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("n", "sentence"),
    [
        (0, r"sees no CUDA device; choose 'cpu'$"),
        (1, r"sees 1 CUDA device; choose one below 'cuda:1'$"),
        (2, r"sees 2 CUDA devices; choose one below 'cuda:2'$"),
    ],
)
def test_a_device_that_is_not_there_is_named(monkeypatch, n, sentence):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: n > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: n)
    with pytest.raises(ValueError, match=rf"device 'cuda:{n}' is not there: torch .* {sentence}"):
        accelerator_for(TrainConfig(device=f"cuda:{n}"))


def test_a_row_of_progress_has_what_is_known(capsys):
    with Progress(8, 2, "caption", shown=True) as progress:
        row = {"epoch": 1.0, "loss": 0.51234, "reward": 0.75, "val_loss": None, "val_bleu4": 0.25}
        progress.row(row, metric="bleu4", best=True, total_epochs=4)
    assert (
        capsys.readouterr().err.split("\n")[0]
        == "epoch 1/4  loss 0.5123  reward 0.7500  val bleu4 0.2500  best"
    )
