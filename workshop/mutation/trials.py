"""Tests in children of this process, which has collected them: with a mistake in memory, until one fails."""

import contextlib
import json
import math
import os
import resource
import select
import shutil
import signal
import tempfile
import time
from typing import NamedTuple

KILLED, SURVIVED, TIMEOUT, NOT_RUN = "killed", "survived", "timeout", "no test runs it"


class Trial(NamedTuple):
    """A child that runs tests.

    Attributes:
        pid: Of the child, and of the group of what it starts.
        reading: Where it writes how it ended.
        folder: For the temporary files of its tests.
        last: When it is given up, by the monotonic clock. Processor time is bounded in the child; this is for
            one that waits for ever.
    """

    pid: int
    reading: int
    folder: str
    last: float


def begin(items, install, seconds):
    """Run tests in a child until one fails.

    Args:
        items: The tests.
        install: Called in the child before.
        seconds: What they take without a mistake; they may take five times that, and some.
    """
    folder = tempfile.mkdtemp(prefix="sightline-mutant-")
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        os.environ["PYTEST_DEBUG_TEMPROOT"] = folder  # else they would be in each other's way
        _child(items, install, writing, seconds)
    with contextlib.suppress(OSError):  # whoever of the two is first
        os.setpgid(pid, pid)
    os.close(writing)
    return Trial(pid, reading, folder, time.monotonic() + 120 + 40 * seconds)


def end(trial):
    """How a child ended; one that has not is ended, and so is what its tests have started."""
    result = {"end": TIMEOUT, "by": ""}
    if select.select([trial.reading], [], [], 0)[0]:
        said = os.read(trial.reading, 1 << 16)
        result = json.loads(said) if said else result
    os.killpg(trial.pid, signal.SIGKILL)
    os.waitpid(trial.pid, 0)
    os.close(trial.reading)
    shutil.rmtree(trial.folder, ignore_errors=True)
    return result


def together(beginnings, jobs=1, last=None):
    """Begin trials, some of them at the same time; numbers and ends, as they come.

    Args:
        beginnings: Functions that begin one.
        jobs: How many run at once.
        last: When to leave it, by the monotonic clock: those that run then are ended, and not in the answer.
    """
    waiting, running = list(enumerate(beginnings))[::-1], {}
    last = math.inf if last is None else last
    try:
        while (waiting or running) and time.monotonic() < last:
            while waiting and len(running) < jobs:
                number, start = waiting.pop()
                trial = start()
                running[trial.reading] = number, trial
            nearest = min(last, *(trial.last for _, trial in running.values()))
            ready = select.select(list(running), [], [], max(0.0, nearest - time.monotonic()))[0]
            late = [x for x, (_, trial) in running.items() if time.monotonic() >= trial.last]
            for reading in {*ready, *late}:
                number, trial = running.pop(reading)
                yield number, end(trial)
    finally:
        for _, trial in running.values():
            end(trial)


def _child(items, install, writing, seconds):
    be_quiet()
    limit = int(time.process_time() + 5 * seconds + 20)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
    result = {"end": SURVIVED, "by": ""}
    try:
        install()
        reports = []
        for item, following in zip(items, [*items[1:], None], strict=True):
            run_test(item, following, reports.append)
            if any(report.failed for report in reports):
                result = {"end": KILLED, "by": item.nodeid}
                break
    except LookupError as problem:
        result = {"end": NOT_RUN, "by": str(problem)}
    except BaseException as problem:  # noqa: BLE001 - it broke the tests' own machinery
        result = {"end": KILLED, "by": f"{type(problem).__name__} {problem}"[:200]}
    os.write(writing, json.dumps(result).encode())
    os._exit(0)


def run_test(item, following, note):
    """Run a test; ``note`` is given the reports of its set-up, call and tear-down."""

    class Listener:
        def pytest_runtest_logreport(self, report):
            note(report)

    listener = Listener()
    item.config.pluginmanager.register(listener)
    try:
        item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
    finally:
        item.config.pluginmanager.unregister(listener)


def be_quiet():
    """What is printed from here on is lost."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
