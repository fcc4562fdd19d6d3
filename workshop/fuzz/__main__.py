"""``python -m workshop.fuzz [NAME...] --minutes 30 --seed 1 --jobs 4``: look for what breaks, and count.

Every fuzzer gets an equal share of the time, or ``--cases`` cases. The same seed makes the same cases,
however many processes share them. The exit code is 1 if one failed.
"""

import argparse
import contextlib
import functools
import io
import operator
import signal
import sys
import tempfile
from pathlib import Path

import torch

from tests.tiny import preload
from workshop.fuzz import FUZZERS, faults
from workshop.fuzz.cases import Cases, in_processes
from workshop.fuzz.report import Report


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"{', '.join(FUZZERS)}; of a sweep the tasks"
    )
    parser.add_argument("--minutes", type=float, default=5.0, help="for all of them together")
    parser.add_argument("--cases", type=int, help="of each, whatever the time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the cases")
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
        sys.exit(_sweep(options.sweep, names, options))
    preload()
    failed = False
    for name in names:
        seconds = None if options.cases else 60 * options.minutes / len(names)
        cases = Cases(name, options.seed, count=options.cases, seconds=seconds)
        failed |= _said(shared(FUZZERS[name], cases, options.jobs))
    sys.exit(int(failed))


def shared(fuzz, cases, jobs=1):
    """Have the cases of a fuzzer tried by some processes, each in a folder of its own; one report."""
    # Ctrl-C or SIGTERM: the case at hand is the last, and the counts so far are printed
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: cases.stop())

    def some(_=0):
        # Some commands write where they are called from.
        with tempfile.TemporaryDirectory(prefix="sightline-fuzz-") as place, contextlib.chdir(place):
            return fuzz(cases, Path(place))

    reports = [some()] if jobs == 1 else in_processes(some, jobs)
    return functools.reduce(
        operator.add, [_died(x, cases) if isinstance(x, Exception) else x for x in reports]
    )


def _died(problem, cases):
    report = Report(cases.name, cases.seed)
    report.add(str(problem), "", ["no report"])
    return report


def _sweep(fault, tasks, options):
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
            for one in {"kill": ("kill", "instant")}.get(fault, (fault,)):
                name, count = f"{one}, at every place, {task}", faults.n_places(one, undisturbed)
                if one == "instant":
                    name, count = f"ended at any instruction, twice, {task}", options.instants
                sweep = functools.partial(faults.sweep, task=task, undisturbed=undisturbed, fault=one)
                failed |= _said(shared(sweep, Cases(name, options.seed, count=count), options.jobs))
    return int(failed)


def _said(report):
    """Print a report; whether something failed."""
    sys.stdout.write(f"{report}\n")
    sys.stdout.flush()
    return bool(report.failures)


if __name__ == "__main__":
    main()
