# ruff: noqa: INP001, T201
"""Train the preset ``transformer`` or variants of it on scenes; print what each reached, and in what time.

    python docs/transformer_preset.py                                  # the preset itself, on two cores
    python docs/transformer_preset.py --only all --jobs 6 --device cuda --json variants.json
    python docs/transformer_preset.py --share 0.01                     # a hundredth of the scenes: a try

How much is learned in a step is the same on every device; how long a step takes is not: time is measured on
two cores that do nothing else.
"""

import argparse
import json
import multiprocessing
import tempfile
import time
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


def main() -> None:
    """Measure the variants, a JSON object and a line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=["all", *VARIANTS], default=["preset"])
    parser.add_argument("--jobs", type=int, default=1, help="variants at a time, each a process")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--share", type=float, default=1.0, help="of the scenes, for a try")
    parser.add_argument("--json", type=Path, help="append a line for each variant to this file")
    given = parser.parse_args()
    names = list(VARIANTS) if "all" in given.only else given.only
    spawn = multiprocessing.get_context("spawn")  # CUDA can't be used in a forked process
    with ProcessPoolExecutor(given.jobs, spawn, torch.set_num_threads, (given.threads,)) as pool:
        rows = [pool.submit(measured, name, given.device, given.share) for name in names]
        for row in as_completed(rows):
            print(json.dumps(row.result()), flush=True)
            if given.json is not None:
                with given.json.open("a") as file:
                    file.write(json.dumps(row.result()) + "\n")


if __name__ == "__main__":
    main()
