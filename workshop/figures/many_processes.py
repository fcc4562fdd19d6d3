"""Train small models in 1, 2 and 4 processes, and kill some: curves, scores and weights beside one process's.

    python -m workshop.figures.many_processes  # measures (minutes), writes many_processes.json
    python -m workshop.figures.many_processes --draw  # draws its picture

Processes are forked with the environment that torchrun gives them, on the CPU with gloo, one thread each,
nothing dropped by chance. What one process computes is what the others are compared with.
"""

import argparse
import csv
import importlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from workshop import PICTURES

HERE = Path(__file__).parent
RESULTS, PICTURE = HERE / "many_processes.json", PICTURES / "many_processes.png"
COMMON: dict[str, Any] = {"device": "cpu", "tensorboard": False, "log_every": 1, "threads": 0}
SCENES = {"data": "scenes", "preset": "tiny", "n_train": 96, "n_val": 24, "n_test": 24, "dropout": 0.0}
DATES = {"data": "dates", "n_train": 352, "n_val": 48, "n_test": 48, "dropout": 0.0, "d_model": 32}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "caption, Transformer": ("caption", SCENES | {"epochs": 3, "batch_size": 25}),
    "caption, recurrent": ("caption", SCENES | {"model": "recurrent", "epochs": 3, "batch_size": 25}),
    "translate, Transformer": (
        "translate",
        DATES | {"n_heads": 2, "d_ff": 64, "n_layers": 1, "epochs": 3, "batch_size": 90},
    ),
    "translate, recurrent": ("translate", DATES | {"model": "recurrent", "epochs": 3, "batch_size": 90}),
    "classify": ("classify", {"data": "digits", "epochs": 2, "batch_size": 201, "min_steps": None}),
}
KINDS = {"2 processes": (2, "none"), "4 processes": (4, "none"), "2 processes, FSDP2": (2, "fsdp")}
IMPORTED = (
    "accelerate",
    "babel",
    "sklearn.datasets",
    "torch.distributed.checkpoint",
    "torch.distributed.fsdp",
    "sightline.tasks.training",
    *(f"sightline.tasks.{kind}" for kind in ("caption", "classify", "translate")),
)
KILLS, KILLED = "kills", "translate, Transformer"


def work(rank: int, n: int, port: int, function: Callable[[], Any], pipe: Any) -> None:
    """What a process of a group does."""
    if n > 1:
        names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": n, "LOCAL_WORLD_SIZE": n}
        os.environ |= {name: str(value) for name, value in names.items()}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    try:
        pipe.send(function())
    except ConnectionError as lost:  # what is left of a group says so in a sentence
        print(lost, file=sys.stderr, flush=True)
        sys.exit(2)


class Group:
    """Processes that were launched together."""

    def __init__(self, n: int, function: Callable[[], Any]) -> None:
        context = multiprocessing.get_context("fork")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.pipe, end = context.Pipe(duplex=False)
        self.processes = [
            context.Process(target=work, args=(rank, n, port, function, end)) for rank in range(n)
        ]
        for process in self.processes:
            process.start()
        end.close()

    def result(self) -> Any:
        """What the first to end made; all must have ended well."""
        for process in self.processes:
            process.join()
        codes = [process.exitcode for process in self.processes]
        if any(codes):
            raise RuntimeError(f"exit codes {codes}")
        return self.pipe.recv()


def training(name: str, out: Path, *, resume: bool = False, **more: Any) -> Callable[[], Any]:
    """A function that trains one of the models."""
    kind, settings = MODELS[name]

    def function() -> None:
        from sightline.tasks.training import train  # noqa: PLC0415

        every: dict[str, Any] = COMMON | settings | more
        train(kind, out=out, resume=resume, shown=False, **every)

    return function


def evaluation(out: Path) -> Callable[[], Any]:
    """A function that scores a run on its test split."""

    def function() -> dict[str, float]:
        from sightline.tasks import open_run  # noqa: PLC0415
        from sightline.train.processes import join  # noqa: PLC0415

        join()
        return dict(open_run(out, "cpu").evaluate(batch_size=7).scores)

    return function


def losses(out: Path) -> list[float]:
    """The training loss after each step."""
    with (out / "metrics.csv").open() as file:
        return [float(row["loss"]) for row in csv.DictReader(file)]


def difference(one: Path, other: Path) -> dict[str, Any]:
    """The largest difference of any weight, where it is, and that of half of all weights."""
    a, b = (load_file(path / "model.safetensors") for path in (one, other))
    gaps = {name: (a[name].double() - b[name].double()).abs().flatten() for name in a}
    name = max(gaps, key=lambda name: float(gaps[name].max()))
    half = float(torch.cat(list(gaps.values())).median())
    return {"largest": float(gaps[name].max()), "in": name, "median": half}


def curves(name: str, folder: Path) -> dict[str, Any]:
    """One model, in every number of processes."""
    alone = folder / f"{name} 1"
    Group(1, training(name, alone)).result()
    scores = Group(1, evaluation(alone)).result()
    found: dict[str, Any] = {"curves": {"1 process": losses(alone)}, "scores": scores, "beside": {}}
    for label, (n, sharding) in KINDS.items():
        out = folder / f"{name} {label}"
        Group(n, training(name, out, sharding=sharding)).result()
        found["curves"][label] = losses(out)
        pairs = zip(losses(alone), losses(out), strict=True)
        own = Group(1, evaluation(out)).result()
        found["beside"][label] = {
            "loss": max(abs(a - b) for a, b in pairs),
            "weights": difference(alone, out),
            "scores": max(abs(own[key] - value) for key, value in scores.items()),
        }
        if sharding == "none":
            found["beside"][label]["evaluated alike"] = Group(n, evaluation(alone)).result() == scores
    return found


def step(out: Path) -> int:
    """How many checkpoints a run has written, one a step."""
    try:
        pointer = out / "checkpoints" / "main" / "latest.json"
        return int(json.loads(pointer.read_text())["checkpoint"])
    except FileNotFoundError:
        return 0


def kills(folder: Path, seed: int, times: int) -> list[dict[str, Any]]:
    """Kill a process at a random step; go on in as many processes, and in another number."""
    chance, rows = random.Random(seed), []  # noqa: S311
    whole = {}
    for sharding in ("none", "fsdp"):
        whole[sharding] = folder / f"whole {sharding}"
        Group(2, training(KILLED, whole[sharding], sharding=sharding, save_steps=1)).result()
    last = len(losses(whole["none"]))
    for number in range(times):
        sharding, other = ("none", "fsdp")[number % 2], (1, 4)[number % 2]
        victim, at = chance.randrange(2), chance.randrange(1, last - 1)
        out, copied = folder / f"killed {number}", folder / f"copied {number}"
        group = Group(2, training(KILLED, out, sharding=sharding, save_steps=1))
        while step(out) < at:
            time.sleep(0.001)
        os.kill(group.processes[victim].pid or 0, signal.SIGKILL)
        for process in group.processes:
            process.join()
        reached = step(out)
        shutil.copytree(out, copied)
        Group(2, training(KILLED, out, sharding=sharding, save_steps=1, resume=True)).result()
        Group(other, training(KILLED, copied, sharding=sharding, save_steps=1, resume=True)).result()
        rows.append(
            {
                "sharding": sharding,
                "victim": victim,
                "killed after step": reached,
                "others ended by themselves": group.processes[1 - victim].exitcode,
                "same number: weights": difference(whole[sharding], out),
                f"in {other}: weights": difference(whole[sharding], copied),
            }
        )
        print(rows[-1], file=sys.stderr, flush=True)
    return rows


def measure(parts: list[str], seed: int, times: int) -> None:
    """Measure some parts; each is written when it is done, beside those that were before."""
    torch.set_num_threads(1)
    for name in IMPORTED:  # what is imported before a fork is imported once
        importlib.import_module(name)
    for part in parts:
        with tempfile.TemporaryDirectory() as folder:
            rows: Any = kills(Path(folder), seed, times) if part == KILLS else curves(part, Path(folder))
        found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        RESULTS.write_text(json.dumps(found | {part: rows}, indent=1) + "\n")
        print(part, rows if part == KILLS else rows["beside"], file=sys.stderr, flush=True)


def draw() -> None:
    """Above, the curves of one process and of several, one line over the other; below, what differs."""
    from matplotlib.figure import Figure  # noqa: PLC0415
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415

    from sightline.show.style import style  # noqa: PLC0415

    measured = json.loads(RESULTS.read_text())
    found = {name: measured[name] for name in MODELS if name in measured}
    colours = {"2 processes": "#21918c", "4 processes": "#443983", "2 processes, FSDP2": "#e07a1f"}
    with style():
        figure = Figure(figsize=(2.9 * len(found), 5.0), layout="constrained")
        axes = figure.subplots(2, len(found), squeeze=False, sharey="row")
        for column, (name, model) in enumerate(found.items()):
            above, below = axes[0, column], axes[1, column]
            one = model["curves"]["1 process"]
            steps = range(1, len(one) + 1)
            above.plot(steps, one, color="#c8c8d0", linewidth=7, label="1 process", solid_capstyle="round")
            for label, colour in colours.items():
                curve = model["curves"][label]
                above.plot(steps, curve, color=colour, linewidth=1.3, label=label)
                gaps = [max(abs(a - b), 1e-9) for a, b in zip(one, curve, strict=True)]
                below.plot(steps, gaps, color=colour, linewidth=1.3, marker="o", markersize=2.5)
            above.set_title(name)
            below.set_yscale("log")
            below.set_yticks([1e-9, 1e-7, 1e-5, 1e-3], ["1e-9", "1e-7", "1e-5", "1e-3"])
            below.minorticks_off()
            below.set_ylim(5e-10, 1e-3)
            below.axhline(1e-6, color="#c8c8d0", linewidth=1)
            below.set_xlabel("step")
            for axis in (above.xaxis, below.xaxis):
                axis.set_major_locator(MaxNLocator(5, integer=True))
        axes[0, 0].set_ylabel("loss of a step")
        axes[1, 0].set_ylabel("|difference| to 1 process\n(a point at 1e-9: 1e-9 or less)")
        axes[0, -1].legend(loc="upper right", fontsize=8.5)
        figure.savefig(PICTURE, dpi=110)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draw", action="store_true", help="draw what was measured")
    parser.add_argument("--seed", type=int, default=0, help="of the steps at which processes are killed")
    parser.add_argument("--kills", type=int, default=5, help="how many times")
    parser.add_argument("--only", nargs="+", default=[KILLS, *MODELS], help="some parts", metavar="PART")
    options = parser.parse_args()
    if options.draw:
        draw()
    else:
        measure(options.only, options.seed, options.kills)
