"""Commands in tests: in this process, or in a child that can be sent signals.

    result = run("evaluate", folder, "--json")
    with start("train", "classify", ...) as child: child.send(signal.SIGINT)

A child is forked from a process that has imported everything once, so that an instant of it is an instant of
the command, not of the imports.
"""

import contextlib
import io
import json
import multiprocessing
import os
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from sightline.cli import main
from sightline.tasks import kinds
from tests.signals import own_signals

__all__ = ["Child", "Result", "run", "start"]

# The last two are what torch's optimizer and the digits import at their first use: 3 s, once instead of in
# every child.
_PRELOADED = ["accelerate", "pytest", "sightline.cli.train", *(f"sightline.tasks.{kind}" for kind in kinds())]
_PRELOADED += ["torch._dynamo", "sklearn.datasets"]
_WAIT = 120  # seconds; only a command that hangs takes so long


class Result(NamedTuple):
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        """What standard output holds, which is one JSON object and nothing else."""
        return json.loads(self.out)


def run(*words, stdin=""):
    """Run a command in this process."""
    out, err, before = io.StringIO(), io.StringIO(), sys.stdin
    sys.stdin = io.StringIO(stdin)
    try:
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            pytest.raises(SystemExit) as ended,
        ):
            main([str(word) for word in words])
    finally:
        sys.stdin = before
    return Result(int(ended.value.code or 0), out.getvalue(), err.getvalue())


class Child:
    """A command in a process of its own."""

    def __init__(self, words, place, imports=()):
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(_PRELOADED)
        self.out, self.err = place / "stdout.txt", place / "stderr.txt"
        arguments = ([str(word) for word in words], str(self.out), str(self.err), imports, Path.cwd())
        self._process = context.Process(target=_command, args=arguments)
        self._process.start()

    def wait_until(self, happened):
        """Wait for something that the command does; it is an error if it ends before."""
        end = time.monotonic() + _WAIT
        while not happened():
            assert self._process.is_alive(), f"the command ended: {self.err.read_text()}"
            assert time.monotonic() < end, "the command takes too long"
            time.sleep(0.0005)

    def send(self, number):
        """Send it a signal."""
        os.kill(self._process.pid, number)

    def result(self):
        """How it ended; the code of a command that a signal ended is the signal's number, negative."""
        self._process.join(_WAIT)
        assert not self._process.is_alive(), "the command takes too long"
        return Result(self._process.exitcode, self.out.read_text(), self.err.read_text())


def start(*words, place, imports=()):
    """Start a command in a child; what it writes goes to files in ``place``.

    Args:
        words: Of the command.
        place: A folder for what it writes.
        imports: Files of Python to be imported before: tasks of one's own.
    """
    return Child(words, place, tuple(map(str, imports)))


def _command(words, out, err, imports, folder):
    """What the child does."""
    import runpy

    os.chdir(folder)
    for number, path in ((1, out), (2, err)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, number)
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
    for path in imports:
        runpy.run_path(path)
    try:
        with own_signals():
            main(words)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
