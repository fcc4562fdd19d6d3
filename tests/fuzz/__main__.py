"""``python -m tests.fuzz [NAME...] --minutes 30 --seed 1``: look for what breaks, and count.

Every fuzzer gets an equal share of the time, or ``--cases`` cases. The same seed makes the same cases. The
exit code is 1 if one failed.
"""

import argparse
import contextlib
import io
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
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"{', '.join(FUZZERS)}; of a sweep the tasks"
    )
    parser.add_argument("--minutes", type=float, default=5.0, help="for all of them together")
    parser.add_argument("--cases", type=int, help="of each, whatever the time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--sweep",
        choices=[*faults.AT_EVERY, "disk", "instant"],
        help="instead: this fault at every change of each task's run; kill does --instants too",
    )
    parser.add_argument("--instants", type=int, default=30, help="runs of each task, ended twice anywhere")
    options = parser.parse_args()
    names = options.names or list(faults.TASKS if options.sweep else FUZZERS)
    torch.set_num_threads(1)
    if options.sweep:
        sys.exit(_sweep(options.sweep, names, options.instants, options.seed))
    preload()
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
        failed |= _said(report)
    sys.exit(int(failed))


def _sweep(fault, tasks, n_instants, seed):
    failed = False
    for task in tasks:
        with tempfile.TemporaryDirectory(prefix="sightline-sweep-") as place, contextlib.chdir(place):
            folder, quiet = Path(place), io.StringIO()
            with (
                contextlib.redirect_stderr(quiet),
                contextlib.redirect_stdout(quiet),
                contextlib.suppress(SystemExit),
            ):
                faults.train(task, folder / "imports-everything")
            undisturbed = faults.reference(task, folder)
            if fault != "instant":
                failed |= _said(faults.sweep(task, folder, undisturbed, fault))
            if fault in {"kill", "instant"}:
                failed |= _said(faults.instants(task, folder, undisturbed, n_instants, seed))
    return int(failed)


def _said(report):
    """Print a report; whether something failed."""
    sys.stdout.write(f"{report}\n")
    sys.stdout.flush()
    return bool(report.failures)


if __name__ == "__main__":
    main()
