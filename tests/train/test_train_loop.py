import dataclasses
import json
import math
import subprocess
import sys
import time
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from sightline.train import Loss, Stage, fit
from tests import sandbox
from tests.train import kill_and_resume
from tests.train.toy import QUICK, Toy, ToyConfig, ToyObjective

pytestmark = pytest.mark.plain


def train(out, config=QUICK, *, objective=None, dropout=0.1, **options):
    torch.manual_seed(7)
    model = Toy(dropout=dropout)
    fit(model, objective or ToyObjective(), config, out, shown=False, **options)
    return model


def changed(**settings):
    return dataclasses.replace(QUICK, **settings)


def rows(out):
    lines = (out / "metrics.csv").read_text().splitlines()
    names = lines[0].split(",")
    return [dict(zip(names, line.split(","), strict=True)) for line in lines[1:]]


class Scored(ToyObjective):
    """Scores as they come from a list; keeps the weights that each was given to."""

    def __init__(self, name, values):
        super().__init__()
        self.name, self.values, self.seen = name, iter(values), []

    def evaluate(self, model):
        self.seen.append(model.state_dict()["last.weight"].clone())
        return {self.name: next(self.values)}


def test_a_run_holds_what_later_commands_need(tmp_path):
    out = tmp_path / "run"
    model = train(out, changed(metric="accuracy", tensorboard=True))
    config = json.loads((out / "config.json").read_text())
    assert config["kind"] == "toy"
    assert config["model"] == {"width": 7}
    assert config["train"]["metric"] == "accuracy"
    kept = load_file(out / "model.safetensors")
    assert all(torch.equal(kept[name], tensor) for name, tensor in model.state_dict().items())
    assert rows(out)[-1]["epoch"] == "2.0"
    assert list(rows(out)[0])[:4] == ["step", "epoch", "loss", "lr"]
    assert any((out / "logs").iterdir())


def test_it_is_plain_adamw_underneath(tmp_path):
    """One process, no clipping, no mean: the weights of torch's own optimizer in a loop of our own."""
    config = changed(epochs=1, clip=None, schedule="constant", warmup=0.0, weight_decay=0.0)
    trained = train(tmp_path / "run", config, dropout=0.0)
    torch.manual_seed(7)
    model, task = Toy(dropout=0.0), ToyObjective()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.98), weight_decay=0.0)
    for indices in task.plan(0):
        batch = task.load(indices, 0)
        loss = nn.functional.cross_entropy(
            model(batch["x"]), batch["y"], weight=torch.tensor([1.0, 2.0, 3.0])
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(trained.state_dict()[name], tensor)


def test_parts_give_the_same_as_the_whole(tmp_path):
    whole = train(tmp_path / "whole", changed(epochs=3), dropout=0.0)
    parts = train(tmp_path / "parts", changed(epochs=3, accumulate=3), dropout=0.0)
    for name, tensor in whole.state_dict().items():
        torch.testing.assert_close(parts.state_dict()[name], tensor, rtol=1e-4, atol=1e-5)
    for one, other in zip(rows(tmp_path / "whole"), rows(tmp_path / "parts"), strict=True):
        assert float(one["loss"]) == pytest.approx(float(other["loss"]), rel=1e-4)


def test_the_seed_fixes_everything(tmp_path):
    def weights(name, seed):
        model = train(tmp_path / name, changed(seed=seed), objective=ToyObjective(seed=seed))
        return torch.cat([tensor.flatten().double() for tensor in model.state_dict().values()])

    first = weights("a", 1)
    assert torch.equal(first, weights("b", 1))
    assert not torch.equal(first, weights("c", 2))


def test_early_stopping_and_the_best_weights(tmp_path):
    class Worsening(ToyObjective):
        values = iter([0.3, 0.5, 0.4, 0.2, 0.9])

        def evaluate(self, model):
            self.last = model.state_dict()["last.weight"].clone()
            value = next(self.values)
            if value == 0.5:
                self.best = self.last
            return {"accuracy": value}

    task = Worsening()
    out = tmp_path / "run"
    model = train(out, changed(epochs=9, metric="accuracy", patience=2), objective=task)
    assert len(rows(out)) == 4
    assert torch.equal(load_file(out / "model.safetensors")["last.weight"], task.best)
    assert torch.equal(model.last.weight, task.best)


def test_the_moving_mean_is_evaluated_and_kept(tmp_path):
    seen = []

    class Watching(ToyObjective):
        def evaluate(self, model):
            seen.append(model)
            return super().evaluate(model)

    out = tmp_path / "run"
    model = train(out, changed(ema=0.5, epochs=1), objective=Watching())
    assert seen[0] is not model
    assert torch.equal(load_file(out / "model.safetensors")["last.weight"], seen[0].last.weight)


def test_the_mean_of_the_last_epochs(tmp_path):
    class Means(ToyObjective):
        seen: ClassVar[list] = []

        def evaluate(self, model):
            self.seen.append(model.state_dict()["last.weight"].clone())
            return {"accuracy": float(len(self.seen))}

    out = tmp_path / "run"
    train(out, changed(epochs=4, average_last=3, metric="accuracy"), objective=Means())
    *_, a, b, c, mean = Means.seen
    torch.testing.assert_close(mean, (a + b + c) / 3)
    assert torch.equal(load_file(out / "model.safetensors")["last.weight"], mean)
    assert not list(out.glob("checkpoints/main/epoch-*"))


def test_the_mean_is_tried_after_an_early_end_too(tmp_path):
    task = Scored("accuracy", [0.5, 0.4, 0.9])
    train(tmp_path / "run", changed(epochs=9, average_last=2, patience=1, metric="accuracy"), objective=task)
    torch.testing.assert_close(task.seen[2], (task.seen[0] + task.seen[1]) / 2)
    assert torch.equal(load_file(tmp_path / "run" / "model.safetensors")["last.weight"], task.seen[2])


def test_a_second_stage_starts_from_the_best_of_the_first(tmp_path):
    started = []

    class Second(ToyObjective):
        def loss(self, model, batch):
            if not started:
                started.append(model.state_dict()["last.weight"].clone())
            return super().loss(model, batch)

    out = tmp_path / "run"
    stage = Stage(name="second", objective=Second(), config=changed(lr=1e-3, epochs=1))
    train(out, changed(ema=0.9), then=[stage])
    first = load_file(out / "checkpoints" / "main" / "model.safetensors")
    assert torch.equal(started[0], first["last.weight"])
    steps = [int(row["step"]) for row in rows(out)]
    assert steps == [5, 10, 15]
    assert "second" in json.loads((out / "config.json").read_text())["train"]["stages"]


@pytest.mark.parametrize(("after", "kept"), [([0.3, 0.5, 0.4], 1), ([0.3, 0.2, 0.1], 0)])
def test_a_stage_with_another_metric_has_to_beat_what_it_starts_from(tmp_path, after, kept):
    out = tmp_path / "run"
    main, second = Scored("loss", [2.0, 1.0]), Scored("accuracy", after)
    stage = Stage(name="second", objective=second, config=changed(metric="accuracy"))
    model = train(out, objective=main, then=[stage])
    first = load_file(out / "checkpoints" / "main" / "model.safetensors")["last.weight"]
    assert torch.equal(first, main.seen[1])
    assert torch.equal(second.seen[0], first)
    assert torch.equal(load_file(out / "model.safetensors")["last.weight"], second.seen[kept])
    assert torch.equal(model.last.weight, second.seen[kept])
    assert len(rows(out)) == 4


def test_a_stage_that_finds_nothing_better_leaves_the_best_weights(tmp_path):
    out = tmp_path / "run"
    stage = Stage(name="second", objective=Scored("accuracy", [0.2, 0.1]), config=changed(metric="accuracy"))
    model = train(out, changed(metric="accuracy"), objective=Scored("accuracy", [0.5, 0.9]), then=[stage])
    assert torch.equal(model.last.weight, load_file(out / "model.safetensors")["last.weight"])


def test_the_time_left_is_that_of_the_stage(tmp_path, capsys, monkeypatch):
    clock = iter(range(10_000))
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(clock)))
    torch.manual_seed(7)
    stage = Stage(name="second", objective=ToyObjective(), config=changed(epochs=4))
    fit(Toy(), ToyObjective(), QUICK, tmp_path / "run", then=[stage])
    epochs = [line for line in capsys.readouterr().err.splitlines() if line.startswith("epoch")]
    left = [line.split()[-2 - line.endswith("best")] for line in epochs]
    assert left == ["0:06", "0:00", "0:18", "0:12", "0:06", "0:00"]


def test_a_stage_may_be_added_to_a_finished_run(tmp_path):
    out = tmp_path / "run"
    train(out)
    before = (out / "checkpoints" / "main" / "model.safetensors").read_bytes()
    stage = Stage(name="second", objective=ToyObjective(), config=changed(lr=1e-3, epochs=1))
    train(out, resume=True, then=[stage])
    assert (out / "checkpoints" / "main" / "model.safetensors").read_bytes() == before
    assert len(rows(out)) == 3


def test_the_leavings_of_a_killed_run_are_swept(tmp_path):
    out = tmp_path / "run"
    train(out)
    left = [out / ".model-77.safetensors", out / ".metrics-77.csv", out / ".model.safetensors-77"]
    left += [out / "checkpoints" / "main" / "epoch-00002.safetensors"]
    mine = out / ".my-notes"
    for path in (*left, mine):
        path.write_text("half")
    train(out, resume=True)
    assert not any(path.exists() for path in left)
    assert mine.exists()


def test_of_losses_the_lowest_is_kept(tmp_path):
    task = Scored("loss", [2.0, 1.0, 3.0])
    train(tmp_path / "run", changed(epochs=3), objective=task)
    assert torch.equal(load_file(tmp_path / "run" / "model.safetensors")["last.weight"], task.seen[1])


def test_steps_end_a_run_within_an_epoch(tmp_path):
    train(tmp_path / "run", changed(steps=7))
    assert [row["step"] for row in rows(tmp_path / "run")] == ["5", "7"]


@pytest.mark.parametrize("n", [1, 4, 11, 17])
def test_a_run_that_stops_at_a_known_step_ends_the_same(tmp_path, n):
    """In either stage, on a checkpoint in the middle of a row of the curve or at its end."""

    class Stopping(ToyObjective):
        left = math.inf

        def loss(self, model, batch):
            Stopping.left -= 1
            if Stopping.left < 0:
                raise KeyboardInterrupt
            return super().loss(model, batch)

    config = changed(epochs=2, ema=0.9, average_last=2, log_every=3, save_steps=1, metric="accuracy")

    def go_on(out, **options):
        stage = Stage(name="second", objective=Stopping(), config=dataclasses.replace(config, average_last=0))
        train(out, config, objective=Stopping(), then=[stage], **options)

    go_on(tmp_path / "whole")
    Stopping.left = n
    with pytest.raises(KeyboardInterrupt):
        go_on(tmp_path / "parts")
    Stopping.left = math.inf
    go_on(tmp_path / "parts", resume=True)
    (last,) = sorted((tmp_path / "whole" / "checkpoints" / "second").glob("[0-9]*"))[-1:]
    for name in ("model.safetensors", "metrics.csv", f"checkpoints/second/{last.name}/tensors.safetensors"):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_killed_runs_end_with_the_same_weights(tmp_path):
    """Each of three runs is killed twice with SIGKILL; weights, curve and optimizer are equal to the bit."""
    done = sandbox.run(lambda: kill_and_resume.main(tmp_path, 0, 3), seconds=60)
    assert done.code == 0, done.err
    prints = done.out.split("\n")[:-1]
    assert len(prints) == 4
    assert len(set(prints)) == 1, done.out


@pytest.mark.long  # the launcher itself; test_processes.py has groups of processes without it
def test_two_processes_are_one_with_the_doubled_batch(tmp_path):
    """``accelerate launch`` with two gloo processes; every step sees the same batch, split."""
    program = Path(__file__).with_name("toy_run.py")
    # With --cpu, accelerate starts one process or asks for MPI; --multi_gpu starts two wherever they run.
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"]
    launch += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
    done = subprocess.run(  # noqa: S603
        [*launch, program, tmp_path / "two"], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("one of 2") == 2
    # Some gradients are longer than the clip and some are not: their scale must be right too.
    config = changed(epochs=3, log_every=1, clip=0.6)
    train(tmp_path / "one", config, objective=ToyObjective(batch_size=13), dropout=0.0)
    one, two = rows(tmp_path / "one"), rows(tmp_path / "two")
    assert len(one) == len(two) > 12
    for a, b in zip(one, two, strict=True):
        assert a.keys() == b.keys()
        for name in a:
            assert (a[name] == b[name] == "") or float(a[name]) == pytest.approx(float(b[name]), rel=1e-4)


@pytest.mark.bad_input
def test_a_folder_in_use_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ValueError, match=f"'{tmp_path}' is not empty.*--resume"):
        train(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    with pytest.raises(ValueError, match=r"mine.txt' is a file"):
        train(tmp_path / "mine.txt")


@pytest.mark.bad_input
def test_other_settings_are_refused(tmp_path):
    train(tmp_path / "run")
    with pytest.raises(ValueError, match=r"lr was 0.01 in .*run', got 0.5"):
        train(tmp_path / "run", changed(lr=0.5), resume=True)
    torch.manual_seed(0)
    with pytest.raises(ValueError, match=r"width was 7 in .*got 5"):
        fit(Toy(ToyConfig(width=5)), ToyObjective(), QUICK, tmp_path / "run", resume=True, shown=False)
    config = tmp_path / "run" / "config.json"
    config.write_text(config.read_text().replace('"kind": "toy"', '"kind": "caption"'))
    with pytest.raises(ValueError, match="kind 'caption', got one of kind 'toy'"):
        train(tmp_path / "run", resume=True)


@pytest.mark.bad_input
def test_a_loss_that_is_no_number(tmp_path):
    class Bad(ToyObjective):
        def loss(self, model, batch):
            total, terms, also, *_ = super().loss(model, batch)
            return Loss(total * math.inf, terms, also)

    with pytest.raises(ValueError, match=r"it was (nan|inf) before step 2; .* lr than 0.01"):
        train(tmp_path / "run", changed(log_every=2), objective=Bad())


@pytest.mark.bad_input
def test_an_unknown_metric(tmp_path):
    with pytest.raises(ValueError, match=r"unknown metric 'acuracy'.*did you mean 'accuracy'"):
        train(tmp_path / "run", changed(metric="acuracy"))


@pytest.mark.bad_input
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_devices_that_are_not_there(tmp_path):
    with pytest.raises(ValueError, match="device 'cuda' is not there"):
        train(tmp_path / "run", changed(device="cuda"))
    with pytest.raises(ValueError, match="precision 'fp16' needs a GPU"):
        train(tmp_path / "run", changed(precision="fp16"))
    assert not (tmp_path / "run").exists()


def test_bfloat16_on_the_cpu_trains(tmp_path):
    train(tmp_path / "run", changed(precision="bf16"))
    assert math.isfinite(float(rows(tmp_path / "run")[-1]["loss"]))


def test_a_model_without_weights_to_learn_is_refused(tmp_path):
    frozen = Toy().requires_grad_(False)
    with pytest.raises(ValueError, match="all frozen"):
        fit(frozen, ToyObjective(), QUICK, tmp_path / "run", shown=False)


def test_a_pretrained_part_takes_smaller_steps(tmp_path):
    model = Toy(dropout=0.0)
    model.pretrained = [model.first.weight]
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    config = changed(
        steps=1, schedule="constant", warmup=0.0, weight_decay=0.0, pretrained_lr=0.25, clip=None
    )
    fit(model, ToyObjective(), config, tmp_path / "run", shown=False)
    moved = {name: (weight - before[name]).abs().max().item() for name, weight in model.named_parameters()}
    assert moved["last.weight"] == pytest.approx(1e-2, rel=1e-3)  # Adam's first step is the rate itself
    assert moved["first.weight"] == pytest.approx(0.25e-2, rel=1e-3)
