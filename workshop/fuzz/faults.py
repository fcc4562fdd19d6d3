"""Faults of the machine during a training: whatever happens, going on gives the same weights to the bit.

kill        SIGKILL before the n-th change of the file system: a file opened to be written, a rename, ...
instant     the end at any instruction, and once more while it goes on
no space    the n-th of the changes is refused as by a full disk
disk        the run lies on a disk of n pages, which is full sooner or later; then it is made larger
too large   a file beyond some bytes is refused
read only   the n-th of the changes is refused as by a folder without permission
signal      SIGINT or SIGTERM before the n-th of them
memory      the GPU's memory ends in a step, in the middle of an epoch or at its beginning
worker      a thread that loads a batch dies
clock       the clock jumps by years, back and forth
"""

import functools
import hashlib
import pickle
import shutil
import signal
import time
from typing import NamedTuple

from tests.sandbox import MEGABYTES, run
from workshop.fuzz.breaking import arm, at_changes, die_after, enlarge_disk, mount_disk
from workshop.fuzz.report import Report

COMMON = "--device cpu --threads 0 --no-tensorboard --epochs 3 --log-every 2 --seed 3"
TASKS = {
    "classify": "--data digits --folds 40 --patch 4 --d-model 8 --n-heads 2 --n-layers 1 --d-ff 4 "
    "--batch-size 800 --save-steps 2 --average-last 2 --ema 0.9",
    "caption": "--preset default --data scenes --n-train 12 --n-val 3 --n-test 3 --image-size 8 "
    "--patch 4 --d-model 4 --n-heads 2 --n-layers 1 --d-ff 4 --max-length 5 --metric loss --batch-size 4 "
    "--save-steps 2",
    "translate": "--preset default --data dates --n-train 24 --n-val 3 --n-test 3 --vocabulary 90 "
    "--d-model 4 --n-heads 2 --n-layers 1 --d-ff 4 --metric loss --max-length 41 --batch-size 8 "
    "--max-tokens none --save-steps 2",
}
FAULTS = (
    *("kill", "kill", "instant", "no space", "disk", "too large"),
    *("read only", "signal", "memory", "worker", "clock"),
)
AT_EVERY = ("kill", "no space", "read only", "signal")  # what a sweep does at every change
SECONDS = 120


class Reference(NamedTuple):
    """A training that nothing disturbed: its weights, changes of the file system, seconds, pages on disk."""

    weights: list
    changes: int
    seconds: float
    pages: int


def fuzz(cases, place):
    """Break a training for each case."""
    report, references = Report(cases.name, cases.seed), {}
    for number, chance in cases:
        task = list(TASKS)[number % len(TASKS)]
        if task not in references:
            references[task] = reference(task, place)
        fault = chance.choice(FAULTS)
        fault = "no space" if fault == "disk" and not can_mount() else fault
        case(report, chance, task, fault, place / f"{number}", references[task])
    return report


def n_places(fault, undisturbed):
    """How many places a sweep has: each change that a run makes to the file system, each size of a disk."""
    return undisturbed.pages - 1 if fault == "disk" else undisturbed.changes


def sweep(cases, place, task, undisturbed, fault):
    """A fault at each place; "instant" has none, its ends come anywhere."""
    report = Report(cases.name, cases.seed)
    for number, chance in cases:
        at = None if fault == "instant" else number + (fault == "disk")
        case(report, chance, task, fault, place / f"{number}", undisturbed, at=at)
    return report


def _words(task, out):
    return ["train", task, *TASKS[task].split(), *COMMON.split(), "--out", str(out)]


def reference(task, place):
    """What a run is that nothing disturbs."""
    out, tally = place / f"reference-{task}", place / f"changes-{task}"

    def call():
        seen = []
        at_changes(seen.append)
        try:
            train(task, out)
        finally:
            # The hook hears this too, but what it counts is written already.
            tally.write_text(f"{len(seen)} {time.process_time()}")

    outcome = run(call, seconds=SECONDS)
    assert outcome.code == 0, outcome.err
    changes, seconds = tally.read_text().split()
    pages = sum(1 + path.stat().st_size // 4096 for path in out.rglob("*"))
    return Reference(fingerprint(out), int(changes), float(seconds), pages)


def train(task, out, *more):
    """A command, in this process."""
    from sightline.cli import main

    main([*_words(task, out), *more])


def case(report, chance, task, fault, out, undisturbed, at=None):
    """Break one training, go on, and see whether anything is lost."""
    at = chance.randrange(undisturbed.pages if fault == "disk" else undisturbed.changes) if at is None else at
    number = chance.choice([signal.SIGINT, signal.SIGTERM])
    size = chance.choice([1, 100, 1000, 3000, 8000])
    if fault == "instant":
        whole = undisturbed.seconds
        arms = [functools.partial(die_after, chance.uniform(0.001, share * whole)) for share in (1.2, 0.8)]
    else:
        arms = [functools.partial(arm, fault, at, number, size)]
    if fault == "disk":
        ends, weights = _on_a_small_disk(task, out, max(1, at))
    else:
        ends, weights = _broken(task, out, arms)
    faults = [wrong for end in ends[:-1] for wrong in wrong_end(end, fault, number)]
    if ends[-1].code != 0:
        faults.append(f"did not go on: {ends[-1].err[-300:]}")
    elif weights != undisturbed.weights:
        faults.append("other weights")
    said = "; ".join(f"{end.code} {end.err[-300:]!r}" for end in ends[:-1])
    stops = sum(end.code != 0 for end in ends[:-1])
    ended = ("finished", "stopped", "stopped twice")[stops]
    report.add(f"{task}, {fault} at {at}: {said}", f"{fault}, {ended}", faults)
    shutil.rmtree(out, ignore_errors=True)


def _broken(task, out, arms):
    """Train, broken in each way in turn, then undisturbed to the end; how each ended, and the weights."""

    def attempt(prepare, *more):
        prepare()
        train(task, out, *more)

    calls = [functools.partial(attempt, prepare, *["--resume"] * (i > 0)) for i, prepare in enumerate(arms)]
    ends = [run(call, seconds=SECONDS) for call in calls]
    ends.append(run(lambda: train(task, out, "--resume"), seconds=SECONDS))
    return ends, fingerprint(out) if ends[-1].code == 0 else None


def _on_a_small_disk(task, out, pages):
    """Train on a disk of some pages, go on when it is larger; in a child, whose disk it is."""
    out.mkdir()
    result = out.with_suffix(".pickle")

    def call():
        mount_disk(out, pages)
        limits = {"seconds": SECONDS, "megabytes": MEGABYTES // 2}  # within those of this child
        first = run(lambda: train(task, out / "run"), **limits)
        enlarge_disk(out, 64)
        again = run(lambda: train(task, out / "run", "--resume"), **limits)
        weights = fingerprint(out / "run") if again.code == 0 else None
        result.write_bytes(pickle.dumps(([first, again], weights)))

    outcome = run(call, seconds=2 * SECONDS)
    assert outcome.code == 0, outcome.err
    return pickle.loads(result.read_bytes())  # noqa: S301 - written a line above


@functools.cache
def can_mount():
    """Whether a disk can be had: root may."""

    def call():
        mount_disk("/tmp", 1)  # noqa: S108 - seen by a child alone

    return run(call).code == 0


def wrong_end(outcome, fault, number):
    """What is wrong with how a disturbed training ended."""
    if fault in {"kill", "instant"}:
        by = signal.SIGKILL if fault == "kill" else signal.SIGPROF
        return (
            [] if outcome.code in {0, -by} else [f"exit code {outcome.code}"]
        )  # some come after the last word
    found = ["traceback"] if "Traceback" in outcome.err else []
    # Outside the loop, where nothing is under way, SIGTERM ends a program as it always does.
    allowed = {0, 2, 128 + number, -number} if fault == "signal" else {0} if fault == "clock" else {0, 2}
    allowed = {2} if fault in {"memory", "worker"} else allowed
    if outcome.code not in allowed:
        found.append(f"exit code {outcome.code}")
    if outcome.code == 2 and not outcome.err.strip():
        found.append("silent")
    if fault == "memory" and "lower --batch-size" not in outcome.err:
        found.append("no remedy")
    return found


def fingerprint(out):
    """The weights to use and those of the last checkpoint."""
    last = max((out / "checkpoints/main").glob("[0-9]*"))
    parts = (out / "model.safetensors", last / "tensors.safetensors")
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in parts]
