"""A training through ``sl.train.fit`` alone, in numbers: each against a loop of our own, step by step."""

import copy
import json
import math

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from sightline.train import Loss, Stage, TrainConfig, fit
from tests.train.toy import Toy, ToyObjective

WEIGHTS = torch.tensor([1.0, 2.0, 3.0])
PLAIN = {"device": "cpu", "tensorboard": False, "threads": 0, "schedule": "constant", "warmup": 0.0}
PLAIN |= {"lr": 0.01, "clip": None, "weight_decay": 0.0}


def trained(out, objective=None, model=None, then=(), *, resume=False, **changed):
    torch.manual_seed(7)
    model, config = Toy(dropout=0.0) if model is None else model, TrainConfig(**PLAIN | changed)
    fit(model, objective or ToyObjective(), config, out, then=then, resume=resume, shown=False)
    return model


def rows(out):
    header, *lines = (out / "metrics.csv").read_text().splitlines()
    return [dict(zip(header.split(","), line.split(","), strict=True)) for line in lines]


class Recording(ToyObjective):
    """Keeps the weights before every step, and what each evaluation is given."""

    def __init__(self, **options):
        super().__init__(**options)
        self.before, self.evaluated = [], []

    def loss(self, model, batch):
        assert model.training
        self.before.append(copy.deepcopy(model.state_dict()))
        return super().loss(model, batch)

    def evaluate(self, model):
        assert not model.training
        self.evaluated.append(copy.deepcopy(model.state_dict()))
        return super().evaluate(model)


def assert_same(found, expected, **tolerance):
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, **tolerance)


# The rate of each step

N = 2 * 5  # steps: 53 examples in batches of 11


def cosine(done):
    return (1 + math.cos(math.pi * done)) / 2


RATES = {
    "constant": ({"schedule": "constant"}, lambda _: 1.0),
    "cosine": ({"schedule": "cosine"}, lambda i: cosine(i / N)),
    "cosine, to a share": ({"schedule": "cosine", "final_lr": 0.25}, lambda i: 0.25 + 0.75 * cosine(i / N)),
    "linear": ({"schedule": "linear"}, lambda i: 1 - i / N),
    "linear, to a share": ({"schedule": "linear", "final_lr": 0.5}, lambda i: 1 - i / (2 * N)),
    "after 3 steps": (
        {"schedule": "linear", "warmup": 3.0},
        lambda i: (i + 1) / 3 if i < 3 else 1 - (i - 3) / (N - 3),
    ),
    "after a share of the steps": (
        {"schedule": "constant", "warmup": 0.4},
        lambda i: min(1.0, (i + 1) / 4),
    ),
    "after one step": ({"schedule": "linear", "warmup": 1.0}, lambda i: 1 - max(0, i - 1) / (N - 1)),
    "inverse root": (
        {"schedule": "inverse_sqrt", "warmup": 4.0},
        lambda i: (i + 1) / 4 if i < 4 else math.sqrt(4 / (i + 1)),
    ),
    "inverse root at once": ({"schedule": "inverse_sqrt"}, lambda i: math.sqrt(1 / (i + 1))),
}


@pytest.mark.parametrize("name", RATES)
def test_the_rate_of_each_step_is_the_schedules(tmp_path, name):
    settings, share = RATES[name]
    trained(tmp_path / "run", epochs=2, log_every=1, **settings)
    found = rows(tmp_path / "run")
    assert [int(row["step"]) for row in found] == list(range(1, N + 1))
    assert [float(row["lr"]) for row in found] == pytest.approx([0.01 * share(i) for i in range(N)])


def test_steps_end_the_schedule_where_they_end_the_training(tmp_path):
    trained(tmp_path / "run", epochs=9, steps=7, log_every=1, schedule="linear")
    assert [float(row["lr"]) for row in rows(tmp_path / "run")] == pytest.approx(
        [0.01 * (1 - i / 7) for i in range(7)]
    )


# The steps, against torch's AdamW in a loop


def stepped(model, task, epochs, *, clip=None, decay=0.0, beta2=0.98, rate=0.01, gentle=(), share=1.0):
    """The weights of a model after the same batches, by a plain loop."""
    groups = [
        {
            "params": [
                p for p in model.parameters() if (id(p) in gentle) is known and (p.dim() > 1) is matrix
            ],
            "weight_decay": decay if matrix else 0.0,
            "lr": rate * (share if known else 1.0),
        }
        for known in (False, True)
        for matrix in (False, True)
    ]
    optimizer = torch.optim.AdamW([group for group in groups if group["params"]], betas=(0.9, beta2))
    for epoch in range(epochs):
        for indices in task.plan(epoch):
            batch = task.load(indices, epoch)
            nn.functional.cross_entropy(model(batch["x"]), batch["y"], weight=WEIGHTS).backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            optimizer.zero_grad()
    return model.state_dict()


STEPS = {
    "decay": ({"weight_decay": 3.0}, {"decay": 3.0}),
    "clip": ({"clip": 0.05}, {"clip": 0.05}),
    "beta2": ({"beta2": 0.7}, {"beta2": 0.7}),
    "rate": ({"lr": 0.003}, {"rate": 0.003}),
    "in parts": ({"accumulate": 3}, {}),
    "in more parts than examples": ({"accumulate": 13}, {}),
    "in parts, clipped": ({"accumulate": 2, "clip": 0.05}, {"clip": 0.05}),
    "loaded ahead": ({"threads": 3}, {}),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_is_that_of_torchs_adamw(tmp_path, name):
    settings, plain = STEPS[name]
    found = trained(tmp_path / "run", epochs=2, keep="last", **settings)
    torch.manual_seed(7)
    expected = stepped(Toy(dropout=0.0), ToyObjective(), 2, **plain)
    assert_same(found.state_dict(), expected, rtol=1e-4, atol=1e-5)


def test_a_pretrained_part_learns_at_its_share_of_the_rate(tmp_path):
    def gentle():
        torch.manual_seed(7)
        model = Toy(dropout=0.0)
        model.pretrained = list(model.first.parameters())
        return model

    found = trained(
        tmp_path / "run", model=gentle(), epochs=2, keep="last", pretrained_lr=0.25, weight_decay=2.0
    )
    model = gentle()
    ids = {id(p) for p in model.pretrained}
    expected = stepped(model, ToyObjective(), 2, decay=2.0, gentle=ids, share=0.25)
    assert_same(found.state_dict(), expected, rtol=1e-4, atol=1e-5)


def test_what_is_frozen_stays(tmp_path):
    torch.manual_seed(7)
    model = Toy(dropout=0.0)
    model.first.requires_grad_(False)
    before = copy.deepcopy(model.state_dict())
    trained(tmp_path / "run", model=model, epochs=1, ema=0.5, weight_decay=1.0)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]) == name.startswith("first"), name


# What a row says


def test_a_row_is_of_the_steps_since_the_row_before(tmp_path):
    """The mean loss of all their terms, in an epoch's middle and at its end; sums by the name of each."""
    task = Recording()
    trained(tmp_path / "run", task, epochs=2, log_every=2)
    torch.manual_seed(7)
    plain, parts = Toy(dropout=0.0), []
    for epoch in range(2):
        for n, indices in enumerate(task.plan(epoch)):
            plain.load_state_dict(task.before[epoch * 5 + n])
            batch = task.load(indices, epoch)
            with torch.no_grad():
                parts.append(ToyObjective.loss(task, plain, batch))
    found = rows(tmp_path / "run")
    assert [(row["step"], float(row["epoch"])) for row in found] == [
        ("2", 0.4),
        ("4", 0.8),
        ("5", 1.0),
        ("6", 1.2),
        ("8", 1.6),
        ("10", 2.0),
    ]
    first = 0
    for row in found:
        some = parts[first : int(row["step"])]
        first = int(row["step"])
        terms = sum(part.terms for part in some)
        assert float(row["loss"]) == pytest.approx(float(sum(part.total for part in some) / terms), rel=1e-5)
        assert float(row["hits"]) == pytest.approx(
            float(sum(part.also["hits"] for part in some) / terms), rel=1e-5
        )
        assert (row["val_loss"] != "") is (first % 5 == 0)


def test_what_is_added_to_the_mean_counts_once_a_term(tmp_path):
    """A loss may have a mean of its own: each of its batches then counts as its terms do."""

    class Regularised(ToyObjective):
        def loss(self, model, batch):
            part = super().loss(model, batch)
            return Loss(
                part.total, part.terms, {}, mean=model.last.weight.square().sum(), mean_count=len(batch["y"])
            )

    found = trained(tmp_path / "run", Regularised(), epochs=1, keep="last")
    torch.manual_seed(7)
    model, task = Toy(dropout=0.0), ToyObjective()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, betas=(0.9, 0.98), weight_decay=0.0)
    losses, terms = 0.0, 0.0
    for indices in task.plan(0):
        batch = task.load(indices, 0)
        loss = nn.functional.cross_entropy(model(batch["x"]), batch["y"], weight=WEIGHTS)
        loss = loss + model.last.weight.square().sum()
        losses, terms = losses + loss.item() * WEIGHTS[batch["y"]].sum(), terms + WEIGHTS[batch["y"]].sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert_same(found.state_dict(), model.state_dict(), rtol=1e-4, atol=1e-5)
    assert float(rows(tmp_path / "run")[-1]["loss"]) == pytest.approx(float(losses / terms), rel=1e-5)


# Which weights are evaluated and kept


def test_the_moving_mean_is_that_of_a_loop(tmp_path):
    task = Recording()
    trained(tmp_path / "run", task, epochs=3, ema=0.4)
    mean = {name: x.clone() for name, x in task.before[0].items()}
    for step, weights in enumerate(task.before[1:11], 1):  # after each step of the first two epochs
        decay = min(0.4, (1 + step) / (10 + step))
        mean = {name: decay * mean[name] + (1 - decay) * x for name, x in weights.items()}
        if step % 5 == 0:
            assert_same(task.evaluated[step // 5 - 1], mean, rtol=1e-4, atol=1e-6)


class Scored(Recording):
    """Scores from a list, each a loss unless it says otherwise."""

    def __init__(self, *scores):
        super().__init__()
        self.scores = [{"loss": score} if isinstance(score, float) else score for score in scores]

    def evaluate(self, model):
        super().evaluate(model)
        return self.scores[len(self.evaluated) - 1]


def kept_of(out, task):
    """Which evaluation's weights a run kept."""
    kept = load_file(out / "model.safetensors")["last.weight"]
    return [torch.equal(kept, weights["last.weight"]) for weights in task.evaluated].index(True)


KEPT = {
    "the lowest": ((3.0, 1.0, 2.0), {}, 1, 3),
    "the first of equals": ((1.0, 1.0, 2.0), {}, 0, 3),
    "the last": ((1.0, 2.0, 3.0), {"keep": "last"}, 2, 3),
    "out of patience": ((1.0, 2.0, 3.0, 0.5), {"patience": 2}, 0, 3),
    "patience counts anew": ((3.0, 4.0, 2.0, 4.0, 5.0, 0.1), {"patience": 2, "epochs": 6}, 2, 5),
    "every second": ((3.0, 1.0), {"evaluate_every": 2}, 1, 2),
    "no number": ((math.nan, 2.0, 3.0), {}, 1, 3),
}


@pytest.mark.parametrize("name", KEPT)
def test_of_all_evaluations_one_has_the_weights_that_are_kept(tmp_path, name):
    scores, settings, which, n = KEPT[name]
    task = Scored(*scores)
    model = trained(tmp_path / "run", task, **{"epochs": 3} | settings)
    assert len(task.evaluated) == n
    assert kept_of(tmp_path / "run", task) == which
    assert torch.equal(model.last.weight, task.evaluated[which]["last.weight"])
    evaluated = [row for row in rows(tmp_path / "run") if row["val_loss"]]
    assert [float(row["val_loss"]) for row in evaluated] == pytest.approx(scores[:n], nan_ok=True)


def test_a_mean_of_epochs_that_is_no_better_is_not_kept(tmp_path):
    task = Scored(3.0, 1.0, 2.0, 1.5)
    trained(tmp_path / "run", task, epochs=3, average_last=2)
    assert kept_of(tmp_path / "run", task) == 1
    torch.testing.assert_close(
        task.evaluated[3]["last.weight"],
        (task.evaluated[1]["last.weight"] + task.evaluated[2]["last.weight"]) / 2,
    )


def test_checkpoints_come_when_they_are_due(tmp_path):
    """After the first epoch, every so many epochs or steps, and at the end; the last two are kept."""

    class Looking(ToyObjective):
        def __init__(self, out):
            super().__init__()
            self.out, self.steps = out / "checkpoints/main", []

        def look(self):
            latest = self.out / "latest.json"
            if latest.exists():
                name = json.loads(latest.read_text())["checkpoint"]
                step = json.loads((self.out / name / "state.json").read_text())["step"]
                if step not in self.steps:
                    self.steps.append(step)
                assert len([x for x in self.out.iterdir() if x.is_dir()]) <= 2

        def loss(self, model, batch):
            self.look()
            return super().loss(model, batch)

    def steps(name, **settings):
        task = Looking(tmp_path / name)
        trained(tmp_path / name, task, **settings)
        task.look()
        return task.steps

    assert steps("epochs", epochs=5, save_every=2) == [5, 10, 20, 25]
    assert steps("steps", epochs=2, save_steps=3) == [3, 5, 6, 9, 10]
    assert steps("few", epochs=9, steps=7) == [5, 7]


def test_few_examples_are_gone_through_more_often(tmp_path):
    """And evaluated as often as before."""

    def epochs(name, **settings):
        trained(tmp_path / name, **settings)
        return [(row["step"], float(row["epoch"])) for row in rows(tmp_path / name) if row["val_loss"]]

    assert epochs("more", epochs=2, min_steps=21, log_every=97) == [("10", 2.0), ("20", 4.0), ("25", 5.0)]
    assert epochs("enough", epochs=2, min_steps=10) == [("5", 1.0), ("10", 2.0)]
    assert epochs("steps", epochs=2, min_steps=40, steps=3) == [("3", 1.0)]


# A folder


@pytest.mark.bad_input
def test_one_training_at_a_time_has_a_folder(tmp_path):
    class Nested(ToyObjective):
        def evaluate(self, model):
            with pytest.raises(ValueError, match=r"one process at a time may train in .*wait for it"):
                trained(tmp_path / "run", resume=True)
            return super().evaluate(model)

    trained(tmp_path / "run", Nested(), epochs=1)
    trained(tmp_path / "other", epochs=1)
    assert not [x.name for x in (tmp_path / "run").iterdir() if x.name.startswith(".")]


def test_a_stage_has_rates_steps_and_checkpoints_of_its_own(tmp_path):
    config = TrainConfig(**PLAIN | {"epochs": 1, "lr": 0.002, "log_every": 1, "schedule": "linear"})
    trained(
        tmp_path / "run",
        epochs=1,
        log_every=1,
        then=[Stage(name="second", objective=ToyObjective(), config=config)],
    )
    found = rows(tmp_path / "run")
    assert [int(row["step"]) for row in found] == list(range(1, 11))
    assert [float(row["epoch"]) for row in found] == pytest.approx([i / 5 for i in range(1, 11)])
    expected = [0.01] * 5 + [0.002 * (1 - i / 5) for i in range(5)]
    assert [float(row["lr"]) for row in found] == pytest.approx(expected)
    state = max((tmp_path / "run/checkpoints/second").glob("0*/state.json"))
    assert json.loads(state.read_text())["step"] == 5
