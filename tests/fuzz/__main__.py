"""``python -m tests.fuzz [NAME...] --minutes 30 --seed 1``: look for what breaks, and count.

Every fuzzer gets an equal share of the time, or ``--cases`` cases. The same seed makes the same cases. The
exit code is 1 if one failed.
"""

import argparse
import contextlib
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

import torch

from tests.fuzz import FUZZERS, faults, preload


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(FUZZERS))
    parser.add_argument("--minutes", type=float, default=5.0, help="for all of them together")
    parser.add_argument("--cases", type=int, help="of each, whatever the time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--kills", action="store_true", help="instead: SIGKILL at every change of each task's run"
    )
    options = parser.parse_args()
    names = options.names or list(FUZZERS)
    torch.set_num_threads(1)
    preload()
    if options.kills:
        sys.exit(_kills())
    stopped = []  # Ctrl-C or SIGTERM: the case at hand is the last, and the counts so far are printed
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.append(True))
    failed = False
    for name in names:
        end = time.monotonic() + 60 * options.minutes / len(names)

        def going(count, end=end):
            if stopped:
                return False
            return count < options.cases if options.cases else time.monotonic() < end

        # Some commands write where they are called from.
        with tempfile.TemporaryDirectory(prefix="sightline-fuzz-") as place, contextlib.chdir(place):
            chance = random.Random(f"{options.seed} {name}")  # noqa: S311 - a seed makes the same cases
            report = FUZZERS[name](chance, Path(place), going, seed=options.seed)
        sys.stdout.write(f"{report}\n")
        sys.stdout.flush()
        failed |= bool(report.failures)
    sys.exit(int(failed))


def _kills():
    failed = False
    for task in faults.TASKS:
        with tempfile.TemporaryDirectory(prefix="sightline-kills-") as place:
            report = faults.sweep(task, Path(place))
        sys.stdout.write(f"{report}\n")
        sys.stdout.flush()
        failed |= bool(report.failures)
    return int(failed)


if __name__ == "__main__":
    main()
