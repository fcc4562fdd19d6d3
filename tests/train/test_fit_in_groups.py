"""Several processes train as one: groups of forks on the CPU, through ``sl.train.fit`` and the command."""

import json
import os
import signal
import sys

import pytest
import torch
from accelerate.state import AcceleratorState
from safetensors.torch import load_file

from sightline.cli import main
from sightline.train import Loss, TrainConfig, fit
from tests.signals import own_signals
from tests.tiny import HERE, TINY, preload
from tests.train.groups import Group
from tests.train.toy import Toy, ToyObjective

pytestmark = [
    pytest.mark.plain,
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]
PLAIN = {"device": "cpu", "tensorboard": False, "threads": 0, "epochs": 2, "lr": 0.01, "log_every": 1}
PLAIN |= {"clip": 0.6, "ema": 0.9, "save_steps": 2}
SIGNALLED = 4  # the step in which a process gets its signal


class Task(ToyObjective):
    """With a mean next to the terms; its last batch has one example. One process alone may get a signal."""

    def __init__(self, number=None, broken=None, *, mean=True):
        super().__init__(n=27, batch_size=13)
        self.number, self.broken, self.mean, self.step = number, broken, mean, 0

    def load(self, indices, epoch):
        if self.broken in indices:
            raise ValueError(f"example {self.broken} is broken")
        return super().load(indices, epoch)

    def loss(self, model, batch):
        self.step += 1
        if self.step == SIGNALLED and self.number is not None and os.environ.get("RANK") == "1":
            os.kill(os.getpid(), self.number)
        part = super().loss(model, batch)
        if not self.mean:
            return part
        mean = model(batch["x"]).square().mean()
        return Loss(part.total, part.terms, part.also, mean, float(len(batch["x"])))


def trained(folder, n, *, number=None, broken=None, resume=False, mean=True, **settings):
    """A group that trains, ended."""

    def train():
        with own_signals():
            torch.set_num_threads(1)
            torch.manual_seed(7)
            AcceleratorState._reset_state(
                reset_partial_state=True
            )  # a training before this fork left its own
            config = TrainConfig(**PLAIN | settings)
            fit(Toy(dropout=0.0), Task(number, broken, mean=mean), config, folder, resume=resume, shown=False)
            assert n == 1 or torch.distributed.get_world_size() == n

    return Group(n, train, folder.parent / f"{folder.name}-said").end()


def left(folder):
    """The weights and the rows of a run."""
    header, *lines = (folder / "metrics.csv").read_text().splitlines()
    rows = [dict(zip(header.split(","), line.split(","), strict=True)) for line in lines]
    return load_file(folder / "model.safetensors"), rows


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """What one process leaves."""
    folder = tmp_path_factory.mktemp("one") / "run"
    group = trained(folder, 1)
    assert group.codes == [0], group.errors
    return left(folder)


def assert_same(found, expected):
    (weights, rows), (of_one, rows_of_one) = found, expected
    assert weights.keys() == of_one.keys()
    for name, tensor in of_one.items():
        torch.testing.assert_close(weights[name], tensor, rtol=1e-4, atol=1e-5)
    assert len(rows) == len(rows_of_one) == 6
    for a, b in zip(rows, rows_of_one, strict=True):
        assert a.keys() == b.keys()
        for name in a:
            assert (a[name] == b[name] == "") or float(a[name]) == pytest.approx(float(b[name]), rel=1e-4)


@pytest.mark.parametrize("sharding", ["none", "fsdp"])
def test_two_processes_are_one(tmp_path, one, sharding):
    group = trained(tmp_path / "run", 2, sharding=sharding)
    assert group.codes == [0, 0], group.errors
    assert_same(left(tmp_path / "run"), one)


def test_two_processes_are_one_in_parts(tmp_path):
    for n in (1, 2):
        group = trained(tmp_path / f"{n}", n, accumulate=2, mean=False)
        assert group.codes == [0] * n, group.errors
    assert_same(left(tmp_path / "2"), left(tmp_path / "1"))


@pytest.mark.parametrize("sharding", ["none", "fsdp"])
def test_a_signal_to_one_of_two_stops_both_and_one_alone_goes_on(tmp_path, one, sharding):
    group = trained(tmp_path / "run", 2, number=signal.SIGTERM, sharding=sharding)
    assert group.codes == [70, 70]
    assert group.errors.count(f"stopped after step {SIGNALLED + 1} of 6; everything is saved") == 2
    state = sorted((tmp_path / "run/checkpoints/main").glob("0*/state.json"))[-1]  # noqa: FURB192
    assert json.loads(state.read_text())["step"] == SIGNALLED + 1  # all have heard of it by then
    group = trained(tmp_path / "run", 1, resume=True, sharding=sharding)
    assert group.codes == [0], group.errors
    for name, tensor in one[0].items():
        torch.testing.assert_close(left(tmp_path / "run")[0][name], tensor, rtol=1e-4, atol=1e-5)


def test_two_go_on_where_one_was_stopped(tmp_path, one):
    stopped = trained(tmp_path / "run", 1, broken=None, steps=4)
    assert stopped.codes == [0], stopped.errors
    group = trained(tmp_path / "run", 2, resume=True, sharding="fsdp", steps=4)
    assert group.codes == [0, 0], group.errors
    assert len(left(tmp_path / "run")[1]) == 4


@pytest.mark.bad_input
def test_what_one_process_can_not_load_stops_both(tmp_path):
    group = trained(tmp_path / "run", 2, broken=17)
    assert group.codes == [70, 70]
    assert "ValueError: example 17 is broken" in group.errors


@pytest.mark.bad_input
def test_a_folder_in_use_is_refused_by_both(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/mine.txt").write_text("mine")
    group = trained(tmp_path / "run", 2)
    assert group.codes == [70, 70]
    assert group.errors.count("is not empty, and a run is only touched to go on with it") == 2


def commanded(place, n, *words):
    """A group of a command, what it printed, and its lines on standard error."""
    out = place / "out.txt"

    def command():
        file = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, 1)
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        with own_signals():
            torch.set_num_threads(1)
            AcceleratorState._reset_state(reset_partial_state=True)
            try:
                main([str(word) for word in words])
            finally:
                sys.stdout.flush()

    group = Group(n, command, place / "said").end()
    return group, out.read_text(), [line for line in group.errors.splitlines() if line.strip()]


def test_of_a_command_one_process_speaks(tmp_path):
    preload()
    words = ["train", "classify", *TINY["train classify"].split(), "--device", "cpu", "--no-tensorboard"]
    group, out, lines = commanded(tmp_path, 2, *words, "--out", tmp_path / "run")
    assert group.codes == [0, 0], lines
    assert out == f"{tmp_path / 'run'}\n"
    assert sum("trainable parameters, on cpu, 2 processes" in line for line in lines) == 1, lines
    assert sum(line.endswith("on cpu, 2 processes") for line in lines) == 1
    assert sum(line.startswith("epoch 1/") for line in lines) == 1
    (tmp_path / "parts").mkdir()
    words += ["--sharding", "fsdp"]
    _, _, lines = commanded(tmp_path / "parts", 2, *words, "--out", tmp_path / "sharded")
    assert sum(line.endswith("on cpu, 2 processes, weights sharded") for line in lines) == 1
    group, out, lines = commanded(tmp_path, 2, *words, "--out", tmp_path / "run", "--nonsense", "3")
    assert group.codes == [2, 2]
    assert sum("nonsense" in line for line in lines) == 1


def test_an_evaluation_by_two_is_that_of_one(tmp_path):
    preload()
    found = []
    for n in (1, 2):
        (tmp_path / f"{n}").mkdir()
        words = ["evaluate", HERE / "classify/finished", "--data", "digits", "--limit", 11]
        words += ["--batch-size", 3, "--json", "--device", "cpu"]
        group, out, lines = commanded(tmp_path / f"{n}", n, *words)
        assert group.codes == [0] * n, lines
        found.append(json.loads(out))
    assert found[0] == found[1]
