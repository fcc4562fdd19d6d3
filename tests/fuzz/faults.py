"""Faults of the machine during a training: whatever happens, going on gives the same weights to the bit.

kill        SIGKILL before the n-th change of the file system: a file opened to be written, a rename, ...
no space    the n-th of them, or a file beyond some bytes, is refused as by a full disk
read only   the n-th of them is refused as by a folder without permission
signal      SIGINT or SIGTERM before the n-th of them
memory      the GPU's memory ends in a step
worker      a thread that loads a batch dies
clock       the clock jumps by years, back and forth
"""

import errno
import hashlib
import os
import random
import resource
import shutil
import signal
import sys
import time

from tests.fuzz.report import Report
from tests.fuzz.sandbox import run

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
FAULTS = ("kill", "kill", "kill", "no space", "read only", "too large", "signal", "memory", "worker", "clock")
CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.truncate", "shutil.rmtree"}
SECONDS = 120


def fuzz(chance, place, going, *, seed=0):
    """Break trainings until ``going()`` says no; the first cases are kills at every change, in order."""
    report = Report("faults", seed)
    wanted, counts = {}, {}
    number = 0
    while going(report.count):
        number += 1
        task = list(TASKS)[number % len(TASKS)]
        if task not in wanted:
            wanted[task], counts[task] = _reference(task, place)
        fault = chance.choice(FAULTS)
        out = place / f"{number}"
        _case(report, chance, task, fault, out, wanted[task], counts[task])
        shutil.rmtree(out, ignore_errors=True)
    return report


def sweep(task, place):
    """SIGKILL before every single change that a run makes to the file system."""
    report = Report(f"kill at every change, {task}", 0)
    wanted, count = _reference(task, place)
    for n in range(count):
        out = place / f"{n}"
        _case(report, random.Random(n), task, "kill", out, wanted, count, at=n)  # noqa: S311
        shutil.rmtree(out, ignore_errors=True)
    return report


def _words(task, out):
    return ["train", task, *TASKS[task].split(), *COMMON.split(), "--out", str(out)]


def _reference(task, place):
    """The fingerprint of a run that nothing disturbs, and how often it changes the file system."""
    out, tally = place / f"reference-{task}", place / f"changes-{task}"

    def call():
        seen = []
        _at_changes(seen.append)
        try:
            _train(task, out)
        finally:
            # The hook hears this too, but what it counts is written already.
            tally.write_text(str(len(seen)))

    outcome = run(call, seconds=SECONDS)
    assert outcome.code == 0, outcome.err
    return _fingerprint(out), int(tally.read_text())


def _train(task, out, *more):
    from sightline.cli import main

    main([*_words(task, out), *more])


def _case(report, chance, task, fault, out, wanted, count, at=None):
    at = chance.randrange(count) if at is None else at
    number = chance.choice([signal.SIGINT, signal.SIGTERM])
    size = chance.choice([1, 100, 1000, 3000, 8000])

    def call():
        _arm(fault, at, number, size)
        _train(task, out)

    outcome = run(call, seconds=SECONDS)
    faults = _wrong_end(outcome, fault, number)
    if not faults:
        again = run(lambda: _train(task, out, "--resume"), seconds=SECONDS)
        if again.code != 0:
            faults.append(f"did not go on: {again.err[-300:]}")
        elif _fingerprint(out) != wanted:
            faults.append("other weights")
    report.add(f"{task}, {fault} at {at}: {outcome.code} {outcome.err[-300:]!r}", fault, faults)


def _wrong_end(outcome, fault, number):
    """What is wrong with how a disturbed training ended."""
    if fault == "kill":
        ok = outcome.code in {0, -signal.SIGKILL}  # some changes come after the last word
        return [] if ok else [f"exit code {outcome.code}"]
    found = ["traceback"] if "Traceback" in outcome.err else []
    # Outside the loop, where nothing is under way, SIGTERM ends a program as it always does.
    allowed = {0, 2, 128 + number, -number} if fault == "signal" else {0} if fault == "clock" else {0, 2}
    if outcome.code not in allowed:
        found.append(f"exit code {outcome.code}")
    if outcome.code == 2 and not outcome.err.strip():
        found.append("silent")
    return found


def _fingerprint(out):
    """The weights to use and those of the last checkpoint."""
    last = max((out / "checkpoints/main").glob("[0-9]*"))
    parts = (out / "model.safetensors", last / "tensors.safetensors")
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in parts]


# What goes wrong


def _arm(fault, at, number, size):
    """Have the fault happen in this process, which is a child."""
    if fault == "kill":
        _at_changes(lambda n: os.kill(os.getpid(), signal.SIGKILL) if n == at else None)
    elif fault == "signal":
        _at_changes(lambda n: signal.raise_signal(number) if n == at else None)
    elif fault in {"no space", "read only"}:
        code = errno.ENOSPC if fault == "no space" else errno.EACCES
        _at_changes(lambda n: _refuse(code) if n == at else None)
    elif fault == "too large":
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        soft = size
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, resource.RLIM_INFINITY))
    elif fault == "clock":
        _jump()
    else:
        _break_a_step(fault, 1 + at % 4)


def _at_changes(call):
    """Call with the number of each change of the file system, just before it happens."""
    state = {"n": 0, "inside": False}

    def hook(event, args):
        change = event in CHANGES or (event == "open" and _writes(args))
        if not change or state["inside"]:
            return
        state["inside"] = True
        try:
            n, state["n"] = state["n"], state["n"] + 1
            call(n)
        finally:
            state["inside"] = False

    sys.addaudithook(hook)


def _writes(args):
    path, mode, flags = (*args, None, None, None)[:3]
    if not isinstance(path, str | bytes | os.PathLike) or str(path).startswith(("/dev/", "/proc/")):
        return False
    if isinstance(mode, str):
        return any(sign in mode for sign in "wax+")
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


def _refuse(code):
    raise OSError(code, os.strerror(code))


def _jump():
    chance = random.Random(7)  # noqa: S311
    then = time.time()
    time.time = lambda: then + chance.uniform(-1e9, 1e9)


def _break_a_step(fault, step):
    """The n-th step, or what loads its batch, raises."""
    import torch

    from sightline.train import loop, stepping

    seen = {"n": 0}

    def broken(self, *args, **options):
        seen["n"] += 1
        if seen["n"] == step:
            if fault == "memory":
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return before(self, *args, **options)

    owner, name = (stepping.Stepper, "step") if fault == "memory" else (loop._Trainer, "_loaded")
    before = getattr(owner, name)
    setattr(owner, name, broken)
