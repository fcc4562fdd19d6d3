"""Train a Vision Transformer on each fold of scikit-learn's digits, and score it on the fold it has not seen.

Usage: python examples/digits_folds.py [FOLDER] [FLAGS OF sightline train classify ...]

Every fold is one command, ``sightline train classify --data digits --fold K``, and its scores are those
of ``sightline evaluate``. Prints accuracy, and how much of the rollout lies on the stroke against chance.
"""

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

FOLDS = 5
COLUMNS = ("accuracy", "top5", "ece", "ink", "ink_chance", "ink_ratio")


def sightline(*words: str) -> str:
    command = [sys.executable, "-m", "sightline", *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout  # noqa: S603


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/digits")
    flags = sys.argv[2:]
    rows = []
    print(f"fold  {'  '.join(f'{name:>10s}' for name in COLUMNS)}    wall s   CPU s")
    for fold in range(FOLDS):
        out = folder / f"fold{fold}"
        start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        sightline("train", "classify", "--data", "digits", "--fold", str(fold), "--out", str(out), *flags)
        wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        scores = json.loads(sightline("evaluate", str(out), "--json"))
        rows.append([scores[name] for name in COLUMNS])
        numbers = "  ".join(f"{value:10.4f}" for value in rows[-1])
        print(f"{fold:4d}  {numbers}  {wall:8.1f}  {cpu:6.1f}", flush=True)
    means = [sum(column) / FOLDS for column in zip(*rows, strict=True)]
    print(f"mean  {'  '.join(f'{value:10.4f}' for value in means)}    {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
