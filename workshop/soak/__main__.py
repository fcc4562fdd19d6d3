"""Hours of work in one process, and whether anything grows: ``python -m workshop.soak``.

watch   2,000 blocks around a Transformer, every tenth with ``keep=True``, each sight asked a question
look    10,000 looks at lengths from 1 to 128, masked and causal, every tenth with its gradient
train   a captioner on drawn scenes for two hours, with checkpoints, TensorBoard and two loading threads
serve   a run behind HTTP for an hour, four clients that send an image as soon as the last one was answered

Usage: python -m workshop.soak [PHASE...] [--train-minutes 120] [--serve-minutes 60] [--json FILE]
       python -m workshop.soak draw [--json FILE] [--out PICTURE]

Each phase is a process of its own that counts, at intervals, what it holds. The exit code is 1 if one of them
held more at its end than after its first fifth: a line is fitted, and it may rise by 3 % of the memory, and
by less than one thread, file, hook, listener or dispatch key.
"""

import argparse
import asyncio
import collections
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from matplotlib.figure import Figure
from torch import nn

import sightline as sl
from sightline.watch import dispatch_keys
from sightline.watch.recorder import AttentionRecorder
from workshop import ROOT

PLACE = ROOT / "build"
PHASES = ("watch", "look", "train", "serve")
SAMPLES = 100  # of a phase that counts its work
WARM_UP = 0.2  # of a phase, before what it holds is compared
MEMORY = 0.03
COUNTS = ("threads", "files", "hooks", "listeners", "keys")
HOOKS = tuple(name for name in vars(nn.Module()) if name.endswith("hooks"))
TRAIN = (
    "train caption --data scenes --n-train 2000 --epochs 1000000 --device cpu --threads 2 --tensorboard "
    "--save-steps 20 --log-every 20"
)


def main() -> None:
    """Run the phases one after the other, or draw what they left."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="*", metavar="PHASE", help=f"{', '.join(PHASES)}, or draw")
    parser.add_argument("--blocks", type=int, default=2000)
    parser.add_argument("--looks", type=int, default=10_000)
    parser.add_argument("--train-minutes", type=float, default=120.0)
    parser.add_argument("--serve-minutes", type=float, default=60.0)
    parser.add_argument("--run", type=Path, help="what to serve, instead of what was trained")
    parser.add_argument("--every", type=float, default=10.0, help="seconds between two counts")
    parser.add_argument("--json", type=Path, default=PLACE / "soak.jsonl")
    parser.add_argument("--out", type=Path, default=PLACE / "soak.png")
    parser.add_argument("--inside", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        command_inside(given)
    elif given.what in (["watch"], ["look"]):
        torch.set_num_threads(1)
        forget(given.json, given.what[0])
        {"watch": watch, "look": look}[given.what[0]](given)
    elif given.what != ["draw"]:
        soak(given)
    samples = read(given.json)
    for row in table(samples):
        print(row)
    if given.what == ["draw"] or not given.what:
        draw(samples).savefig(given.out, dpi=100)
        print(given.out)
    sys.exit(any(grown(rows) for rows in samples.values()))


def soak(given: argparse.Namespace) -> None:
    """Every phase in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="sightline-soak-") as place:
        run = Path(place) / "run"
        for phase in given.what or PHASES:
            forget(given.json, phase)
            if phase == "train":
                train(given, run)
            elif phase == "serve":
                serve(given, given.run or run)
            else:
                counts = ["--blocks", str(given.blocks), "--looks", str(given.looks)]
                subprocess.run([*this(), phase, *counts, "--json", str(given.json)], check=False)


def this() -> list[str]:
    """The command that starts this script once more."""
    return [sys.executable, "-m", "workshop.soak"]


# What is counted


def remember(kind: type) -> "weakref.WeakSet[Any]":
    """All instances of a class that are made from now on and live.

    Asking the garbage collector for them would hold tuples that another thread is making.
    """
    living: weakref.WeakSet[Any] = weakref.WeakSet()
    make = kind.__init__

    def made(self: Any, *args: Any, **options: Any) -> None:
        living.add(self)
        make(self, *args, **options)

    kind.__init__ = made  # type: ignore[misc]
    return living


MODULES, RECORDERS = remember(nn.Module), remember(AttentionRecorder)


def count() -> dict[str, Any]:
    """What this process holds now."""
    gc.collect()
    process = psutil.Process()
    return {
        "megabytes": round(process.memory_info().rss / 2**20, 2),
        "threads": process.num_threads(),
        "files": process.num_fds(),
        "hooks": sum(len(vars(module).get(name, ())) for module in list(MODULES) for name in HOOKS),
        "listeners": len(RECORDERS),
        "keys": sum(map(torch._C._dispatch_tls_is_dispatch_key_included, dispatch_keys.KEYS.values())),  # noqa: SLF001
    }


def note(path: Path, phase: str, **values: Any) -> None:
    """Add a line to the file."""
    with path.open("a") as file:
        file.write(json.dumps({"phase": phase, **values}) + "\n")


def forget(path: Path, phase: str) -> None:
    """Leave out what the file has of an earlier run of a phase."""
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(line for line in lines if json.loads(line)["phase"] != phase))


# The phases


def watch(given: argparse.Namespace) -> None:
    """Blocks around one model; one in fifty ends in an error of the model's."""
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    model = nn.TransformerEncoder(layer, 2).eval()

    def block(n: int) -> None:
        x = torch.randn(2, 7 + n % 11, 32)
        try:
            with torch.no_grad(), sl.watch(model, keep=n % 10 == 0) as seen:
                model(x)
                if n % 50 == 49:
                    model(x[..., 1:])
        except (AssertionError, RuntimeError):  # torch's own, of a width that does not fit
            pass
        seen[0].entropy.sum()

    counted("watch", given.blocks, block, given.json)


def look(given: argparse.Namespace) -> None:
    """Looks at every length in turn."""

    def one(n: int) -> None:
        q, k, v = torch.randn(3, 1, 2, 1 + 37 * n % 128, 16, requires_grad=n % 10 == 0)
        sight = sl.look(q, k, v, sl.masks.causal() if n % 2 else None)
        if n % 10 == 0:
            (sight.output.sum() + sight.entropy.sum()).backward()

    counted("look", given.looks, one, given.json)


def counted(phase: str, n: int, work: Callable[[int], None], path: Path) -> None:
    """Do something n times."""
    started = time.monotonic()
    for i in range(n):
        work(i)
        if (i + 1) % max(1, n // SAMPLES) == 0:
            note(path, phase, done=i + 1, seconds=round(time.monotonic() - started, 1), **count())
    note(path, phase, summary={"times": n})


def train(given: argparse.Namespace, run: Path) -> None:
    """Train until the time is up, then stop it as a cluster does."""
    with started(given, "train", [*TRAIN.split(), "--out", str(run)]) as child:
        try:
            child.wait(60 * given.train_minutes)
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGTERM)
        code = child.wait()
    with (run / "metrics.csv").open() as file:
        steps = int([line.split(",")[0] for line in file][-1])
    note(given.json, "train", summary={"steps": steps, "exit code": code})


def serve(given: argparse.Namespace, run: Path) -> None:
    """Serve a run under load."""
    counts: collections.Counter[str] = collections.Counter()
    words = ["serve", str(run), "--port", "0"]
    with started(given, "serve", words, stdout=subprocess.PIPE, text=True) as child:
        address = child.stdout.readline().strip()
        asyncio.run(load(address, time.monotonic() + 60 * given.serve_minutes, counts))
        child.terminate()
        code = child.wait()
    note(given.json, "serve", summary={**counts, "exit code": code})


async def load(address: str, end: float, counts: "collections.Counter[str]") -> None:
    """Four clients."""
    import httpx  # noqa: PLC0415 - the other phases do without
    from serve_load import ask, picture  # noqa: PLC0415

    # A connection of its own for each request: the server ends those that are not used for some seconds, and
    # one that is ended just as it is used again would look like a failure.
    limits = httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=address, timeout=600, limits=limits, trust_env=False) as client:
        await asyncio.gather(*(ask(client, picture(), end, counts, []) for _ in range(4)))


def started(
    given: argparse.Namespace, phase: str, words: list[str], **options: Any
) -> "subprocess.Popen[str]":
    """A command of Sightline's in a process that counts what it holds."""
    command = [
        *this(),
        phase,
        "--every",
        str(given.every),
        "--json",
        str(given.json.resolve()),
        "--inside",
        *words,
    ]
    return subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, **options)


def command_inside(given: argparse.Namespace) -> None:
    """Give a command; a thread counts beside it. It does not come back."""
    from sightline.cli import main as command  # noqa: PLC0415

    began = time.monotonic()

    def repeat() -> None:
        while True:
            time.sleep(given.every)
            note(given.json, given.what[0], seconds=round(time.monotonic() - began, 1), **count())

    threading.Thread(target=repeat, daemon=True).start()
    command(given.inside)


# What came of it


def read(path: Path) -> dict[str, list[dict[str, Any]]]:
    """The lines of each phase."""
    samples: dict[str, list[dict[str, Any]]] = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        samples.setdefault(row["phase"], []).append(row)
    return {phase: samples[phase] for phase in PHASES if phase in samples}


def slope(rows: list[dict[str, Any]], name: str) -> tuple[float, float]:
    """How much a count rises from the end of the warm-up to the end, by a fitted line; and in an hour."""
    rows = [row for row in rows if name in row]
    seconds = np.array([row["seconds"] for row in rows])
    late = seconds >= WARM_UP * seconds[-1]
    values = np.array([row[name] for row in rows])[late]
    if late.sum() < 3:
        return 0.0, 0.0
    rise = float(np.polyfit(seconds[late], values, 1)[0])
    return rise * float(np.ptp(seconds[late])), 3600 * rise


def grown(rows: list[dict[str, Any]]) -> list[str]:
    """What is not flat."""
    start = next(row["megabytes"] for row in rows if row.get("seconds", 0) >= WARM_UP * rows[-2]["seconds"])
    found = [name for name in COUNTS if slope(rows, name)[0] >= 1]
    return found + ["megabytes"] * (slope(rows, "megabytes")[0] > MEMORY * start)


def table(samples: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Rows of Markdown."""
    names = ", ".join(COUNTS)
    lines = [
        f"| phase | done | minutes | MB after a fifth, at the end | MB an hour | MB in the phase | {names} |",
        "|---|---|---|---|---|---|---|",
    ]
    for phase, rows in samples.items():
        taken = [row for row in rows if "seconds" in row]
        done = ", ".join(f"{key} {value:,}" for row in rows for key, value in row.get("summary", {}).items())
        late = [row for row in taken if row["seconds"] >= WARM_UP * taken[-1]["seconds"]]
        rise, hourly = slope(rows, "megabytes")
        counts = ", ".join(
            f"{late[0][name]}" if late[0][name] == late[-1][name] else f"{late[0][name]} to {late[-1][name]}"
            for name in COUNTS
        )
        lines.append(
            f"| {phase} | {done} | {taken[-1]['seconds'] / 60:.1f} | {late[0]['megabytes']:.0f}, "
            f"{late[-1]['megabytes']:.0f} | {hourly:+.1f} | {rise:+.2f} | {counts} |"
        )
    return lines


def draw(samples: dict[str, list[dict[str, Any]]]) -> Figure:
    """Memory above, the other counts below, a column for each phase."""
    figure = Figure(figsize=(3.1 * len(samples), 4.6), dpi=150, layout="constrained")
    above, below = figure.subplots(2, len(samples), squeeze=False, sharex="col", height_ratios=(3, 2))
    for top, bottom, (phase, rows) in zip(above, below, samples.items(), strict=True):
        taken = [row for row in rows if "seconds" in row]
        minutes = [row["seconds"] / 60 for row in taken]
        top.plot(minutes, [row["megabytes"] for row in taken], color="#21918c")
        top.axvspan(0, WARM_UP * minutes[-1], color="#8a8a94", alpha=0.15, linewidth=0)
        top.set(ylim=(0, 1.3 * max(row["megabytes"] for row in taken)))
        top.set_title(f"{phase}: {slope(rows, 'megabytes')[1]:+.1f} MB an hour", fontsize=9)
        for name, colour in zip(COUNTS, ("#3b528b", "#b5367a", "#5ec962", "#fde725", "#33333b"), strict=True):
            bottom.plot(minutes, [row[name] for row in taken], color=colour, label=name)
        bottom.set(xlabel="minutes", ylim=(-0.5, None))
        for axes in (top, bottom):
            axes.spines[["top", "right"]].set_visible(False)
    above[0].set_ylabel("MB held")
    below[0].set_ylabel("how many")
    below[0].legend(frameon=False, fontsize=7)
    return figure


if __name__ == "__main__":
    main()
