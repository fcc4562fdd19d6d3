"""Train the preset ``transformer`` or variants of it on scenes; print what each reached, and in what time.

    python -m workshop.measure.transformer_preset                    # the preset itself, on two cores
    python -m workshop.measure.transformer_preset --only no_bias rotary  # the other rows of captioning.md
    python -m workshop.measure.transformer_preset --only all --jobs 6 --device cuda --json variants.json
    python -m workshop.measure.transformer_preset --share 0.01       # a hundredth of the scenes: a try

How much is learned in a step is the same on every device; how long a step takes is not: time is measured on
two cores that do nothing else.
"""

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import torch

from sightline.tasks import train
from sightline.tasks.caption.presets import PRESETS

PRESET = PRESETS["transformer"]
VARIANTS: dict[str, dict[str, Any]] = {
    "preset": {},
    "no_bias": {"relative_bias": False},
    "rotary": {"relative_bias": False, "positions": "rotary"},
    "learned": {"relative_bias": False, "positions": "learned"},
    "longer": {"n_train": 30000},
    "slower": {"lr": 1e-3},
    "batch_32": {"batch_size": 32, "lr": 2e-3, "warmup": 300, "ema": 0.99},
}


def measured(name: str, device: str, share: float) -> dict[str, Any]:
    """Train one variant, caption the test split with a beam of 5, and say what came of it."""
    settings = dict(VARIANTS[name])
    if share < 1:
        scenes = settings.get("n_train", PRESET["data"]["n_train"])
        settings |= {"n_train": max(32, round(share * scenes)), "n_val": 16, "n_test": 16}
    print(f"training {name} on {device}, settings {settings}", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        run = train(
            "caption",
            data="scenes",
            preset="transformer",
            out=Path(folder) / name,
            device=device,
            shown=False,
            **settings,
        )
        trained = time.perf_counter()
        scores = run.evaluate(beam=5).scores
        ended = time.perf_counter()
    kept = ("bleu4", "attribute_accuracy", "grounding", "grounding_chance")
    return {
        "variant": name,
        "settings": settings,
        "device": device,
        "threads": torch.get_num_threads(),
        "train_seconds": round(trained - begin, 1),
        "evaluate_seconds": round(ended - trained, 1),
        **{key: round(float(scores[key]), 4) for key in kept},
    }


def start_worker(threads: int) -> None:
    """Prepare a process of the pool, which ends when its parent does, however that ends."""
    torch.set_num_threads(threads)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def all_measured(
    names: list[str], jobs: int, threads: int, device: str, share: float
) -> Iterator[dict[str, Any]]:
    """What each variant reached, as it comes: one after the other in this process, or in several."""
    if jobs == 1:
        torch.set_num_threads(threads)
        yield from (measured(name, device, share) for name in names)
        return
    spawn = multiprocessing.get_context("spawn")  # CUDA can't be used in a forked process
    with ProcessPoolExecutor(jobs, spawn, start_worker, (threads,)) as pool:
        rows = [pool.submit(measured, name, device, share) for name in names]
        yield from (row.result() for row in as_completed(rows))


def main() -> None:
    """Measure the variants, a JSON object and a line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--only", nargs="+", choices=["all", *VARIANTS], default=["preset"], help="what to train"
    )
    parser.add_argument(
        "--jobs", type=int, default=1, help="variants at a time, each a process; 1: this process"
    )
    parser.add_argument("--device", default="cpu", help="where to train: cpu, cuda")
    parser.add_argument("--threads", type=int, default=2, help="of each process")
    parser.add_argument("--share", type=float, default=1.0, help="of the scenes, for a try")
    parser.add_argument("--json", type=Path, help="append a line for each variant to this file")
    given = parser.parse_args()
    names = list(VARIANTS) if "all" in given.only else given.only
    for row in all_measured(names, given.jobs, given.threads, given.device, given.share):
        print(json.dumps(row), flush=True)
        if given.json is not None:
            with given.json.open("a") as file:
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
