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
from contextlib import redirect_stdout
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
from sightline.train.config import TrainConfig
from sightline.train.loop import fit
from sightline.train.objective import Loss
from sightline.train.processes import from_main, join, process_index, spread, together
from tests.train.groups import Group
from tests.train.toy import Toy, ToyObjective

CONFIG = TrainConfig(
    device="cpu", epochs=3, lr=1e-2, tensorboard=False, threads=0, log_every=1, clip=0.6, ema=0.9
)
FIXTURES = Path(__file__).parents[1] / "fixtures" / "written_by_0_1"


class Task(ToyObjective):
    """With a mean beside the terms; its last batch has one example. Evaluated in parts."""

    def __init__(self, broken=None):
        super().__init__(batch_size=13)
        self.broken = broken

    def load(self, indices, epoch):
        if self.broken in indices:
            raise ValueError(f"example {self.broken} is broken")
        return super().load(indices, epoch)

    def loss(self, model, batch):
        total, terms, also, *_ = super().loss(model, batch)
        return Loss(total, terms, also, model(batch["x"]).square().mean(), float(len(batch["x"])))

    def evaluate(self, model):
        parts = list(spread(lambda i: model(self.x[i : i + 5]).square().sum().item(), range(0, 23, 5)))
        return super().evaluate(model) | {"parts": sum(parts)}


def trainer(out, *, broken=None, resume=False, **settings):
    """A training as the command line runs it: errors become sentences and exit codes."""

    def train(*_, **__):
        torch.manual_seed(7)
        config = dataclasses.replace(CONFIG, **settings)
        try:
            fit(Toy(dropout=0.0), Task(broken), config, out, resume=resume, shown=False)
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

    def run(self, name, n, function, act=None):
        """Run a group to its end, and note how that was."""
        group = Group(n, function, self.folder / "err" / name)
        if act is not None:
            act(group)
        group.end()
        lines = [line for line in group.errors.splitlines() if line.strip()]
        self.found[name] = {"codes": group.codes, "lines": lines}

    def train(self, name, n, *, out=None, act=None, **settings):
        """Train in a group."""
        out = self.folder / (out or name)
        self.run(name, n, trainer(out, **settings), act)
        weights = load_file(out / "model.safetensors") if (out / "model.safetensors").exists() else {}
        self.found[name] |= {
            "weights": {key: tensor.flatten().tolist() for key, tensor in weights.items()},
            "rows": (out / "metrics.csv").read_text().splitlines() if (out / "metrics.csv").exists() else [],
        }

    def saved(self, out):
        """How many checkpoints a run has written."""
        try:
            pointer = self.folder / out / "checkpoints" / "main" / "latest.json"
            return int(json.loads(pointer.read_text())["checkpoint"])
        except FileNotFoundError:
            return 0

    def after(self, out, n, number, *ranks):
        """Send a signal when so many checkpoints are written."""

        def act(group):
            group.wait_until(lambda: self.saved(out) >= n)
            group.send(number, *ranks)

        return act


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
        with redirect_stdout(text):
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
        for n in (1, 2):
            stage.run(f"{kind} {n}", n, evaluate(kind, folder / f"{kind}-{n}.json"))
    stage.train("one", 1)
    stage.train("two", 2)
    stage.train("sharded", 3, sharding="fsdp")
    stage.train(
        "killed", 2, act=stage.after("killed", 4, signal.SIGKILL, 1), save_steps=1, sharding="fsdp", epochs=4
    )
    shutil.copytree(folder / "killed", folder / "elsewhere")
    stage.train("resumed", 2, out="killed", resume=True, save_steps=1, sharding="fsdp", epochs=4)
    stage.train("resumed alone", 1, out="elsewhere", resume=True, save_steps=1, epochs=4)
    stage.train("whole", 2, save_steps=1, sharding="fsdp", epochs=4)
    stage.train("told", 2, act=stage.after("told", 4, signal.SIGTERM, 1), save_steps=1, epochs=49)
    stage.found["told"]["saved"] = stage.saved("told")
    stage.train("broken", 2, broken=17)
    stage.train("refused", 2, out="one")
    stage.run("flag", 2, lambda: cli.main(["train", "classify", "--nonsense", "3"]))
    json.dump(stage.found, sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
