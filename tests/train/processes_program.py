"""Trains the toy in groups of processes, and prints what came of it as one JSON object; imports happen once.

python tests/train/processes_program.py FOLDER
"""

import dataclasses
import io
import json
import os
import shutil
import signal
import sys
from contextlib import redirect_stderr, redirect_stdout, suppress
from datetime import timedelta
from pathlib import Path

import accelerate  # noqa: F401 - imported before the forks
import torch
import torch.distributed.checkpoint
import torch.distributed.fsdp
from safetensors.torch import load_file

sys.path.insert(0, str(Path(__file__).parents[2]))
import sightline.cli.app
import sightline.cli.evaluate
import sightline.cli.train
from sightline import cli
from sightline.train import processes
from sightline.train.config import TrainConfig
from sightline.train.loop import fit
from sightline.train.objective import Loss
from sightline.train.processes import from_main, join, process_index, spread, together
from tests.signals import own_signals
from tests.train.groups import Group
from tests.train.toy import Toy, ToyObjective

CONFIG = TrainConfig(
    device="cpu",
    epochs=3,
    lr=1e-2,
    tensorboard=False,
    threads=0,
    log_every=1,
    clip=0.6,
    ema=0.9,
    save_steps=2,
)
SIGNALLED = 7  # the step in which a process gets its signal; the sixth is saved
FIXTURES = Path(__file__).parents[1] / "fixtures" / "written_by_0_1"


class Task(ToyObjective):
    """With a mean beside the terms; its last batch has one example. Evaluated in parts."""

    def __init__(self, broken=None, number=None):
        super().__init__(batch_size=13)
        self.broken, self.number, self.step = broken, number, 0

    def load(self, indices, epoch):
        if self.broken in indices:
            raise ValueError(f"example {self.broken} is broken")
        return super().load(indices, epoch)

    def loss(self, model, batch):
        self.step += 1
        if self.step == SIGNALLED and self.number is not None and process_index() == 1:
            os.kill(os.getpid(), self.number)
        total, terms, also, *_ = super().loss(model, batch)
        return Loss(total, terms, also, model(batch["x"]).square().mean(), float(len(batch["x"])))

    def evaluate(self, model):
        parts = list(spread(lambda i: model(self.x[i : i + 5]).square().sum().item(), range(0, 23, 5)))
        return super().evaluate(model) | {"parts": sum(parts)}


def trainer(out, *, broken=None, number=None, resume=False, **settings):
    """A training as the command line runs it: errors become sentences and exit codes.

    One process alone may break, or get a signal; where it is killed nobody need wait long for its last words.
    """

    def train(*_, **__):
        if broken is not None or number == signal.SIGKILL:
            processes._SPEECH = timedelta(seconds=1)
        torch.manual_seed(7)
        config = dataclasses.replace(CONFIG, **settings)
        try:
            fit(Toy(dropout=0.0), Task(broken, number), config, out, resume=resume, shown=False)
        except KeyboardInterrupt as interrupt:
            raise cli.Stopped(interrupt) from interrupt

    def command():
        sightline.cli.app.app = lambda: train
        cli.main([])

    return command


class Stage:
    """A folder for runs, and what each group of processes left there."""

    def __init__(self, folder):
        self.folder, self.found = folder, {}

    def run(self, name, n, function):
        """Run a group to its end, and note how that was."""
        group = Group(n, function, self.folder / "err" / name).end()
        lines = [line for line in group.errors.splitlines() if line.strip()]
        self.found[name] = {"codes": group.codes, "lines": lines}

    def train(self, name, n, *, out=None, **settings):
        """Train in a group."""
        out = self.folder / (out or name)
        self.run(name, n, trainer(out, **settings))
        weights = load_file(out / "model.safetensors") if (out / "model.safetensors").exists() else {}
        self.found[name] |= {
            "weights": {key: tensor.flatten().tolist() for key, tensor in weights.items()},
            "rows": (out / "metrics.csv").read_text().splitlines() if (out / "metrics.csv").exists() else [],
        }


def functions(folder):
    """What the functions of processes.py do, of two processes each in a file of its own."""

    def fails(i):
        if i == 3:
            raise ValueError("three")
        return i

    def use():
        join()
        rank = process_index()
        found = {"spread": list(spread(lambda i: [i, rank], range(5))), "main": from_main(lambda: rank)}
        for name, block in {
            "spread": lambda: list(spread(fails, range(5))),
            "own": lambda: fails(2 + rank),
        }.items():
            try:
                with together():
                    block()
            except ValueError as problem:
                found[f"{name} failed"] = str(problem)
        (folder / f"functions-{rank}.json").write_text(json.dumps(found))

    return use


def evaluate(kind, out):
    """The scores of a run, printed by the command."""

    def command():
        text = io.StringIO()
        run, data = FIXTURES / kind / "finished", {"translate": "dates", "classify": "digits"}
        words = ["evaluate", run, "--json", "--limit", 11, "--batch-size", 3, "--device", "cpu"]
        with redirect_stdout(text), redirect_stderr(io.StringIO()):
            try:
                cli.main([str(word) for word in [*words, *(["--data", data[kind]] if kind in data else [])]])
            finally:
                if os.environ.get("RANK", "0") == "0":
                    out.write_text(text.getvalue())

    return command


def main(folder):
    torch.set_num_threads(1)
    stage = Stage(folder)
    stage.run("functions", 2, functions(folder))
    for kind in ("caption", "translate", "classify"):
        with suppress(SystemExit):  # here, so that what it imports is there for the forks
            evaluate(kind, folder / f"{kind}-1.json")()
        stage.run(f"{kind} 2", 2, evaluate(kind, folder / f"{kind}-2.json"))
    stage.train("one", 1)
    stage.train("three", 3)
    stage.train("sharded", 2, sharding="fsdp")
    stage.train("killed", 2, number=signal.SIGKILL, sharding="fsdp")
    shutil.copytree(folder / "killed", folder / "elsewhere")
    stage.train("resumed", 2, out="killed", resume=True, sharding="fsdp")
    stage.train("resumed alone", 1, out="elsewhere", resume=True)
    stage.train("told", 2, number=signal.SIGTERM)
    stage.train("broken", 2, broken=17)
    stage.train("refused", 2, out="one")
    stage.run("flag", 2, lambda: cli.main(["train", "classify", "--nonsense", "3"]))
    json.dump(stage.found, sys.stdout)


if __name__ == "__main__":
    with own_signals():
        main(Path(sys.argv[1]))
