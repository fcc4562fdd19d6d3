"""Runs a student's file in a child process: with limits, without this process's environment, never in here.

It keeps mistakes and pranks from the grader: endless loops, exits, huge tensors, floods of text. It is no
jail: the child may read what the user may read, so strangers' files belong in a container.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from sightline.exercises.child import encoded
from sightline.exercises.exercise import Probe

__all__ = ["Outcome", "run_file"]

_MEMORY = 1 << 30  # bytes that a file may add
_ANSWERS = 1 << 24  # bytes of answers
_PRINTED = 1 << 14  # bytes of what it prints
_START = 300.0  # seconds until torch is imported, on a machine that has much to do
_CHILD = Path(__file__).with_name("child.py")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a file.

    Attributes:
        lines: What the child said, one dictionary for each probe that was reached.
        printed: The beginning of what the file printed.
        is_late: Whether it was stopped because the time was over.
    """

    lines: list[dict[str, Any]]
    printed: str
    is_late: bool


def run_file(source: str, path: str, probes: list[Probe], *, seconds: float) -> Outcome:
    """Run a file and the probes in a child process."""
    calls = [asdict(probe) | {"args": encoded(probe.args), "init": encoded(probe.init)} for probe in probes]
    request = json.dumps({"source": source, "path": path, "probes": calls, "memory": _MEMORY})
    with tempfile.TemporaryDirectory(prefix="sightline-exercise-", ignore_cleanup_errors=True) as folder:
        child = subprocess.Popen(  # noqa: S603 - our own Python on our own file
            [sys.executable, "-I", "-B", str(_CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
            env=_environment(folder),
            start_new_session=True,
        )
        assert child.stdin and child.stdout and child.stderr  # noqa: S101, PT018 - all three are pipes
        answers, printed = _Reader(child.stdout, _ANSWERS), _Reader(child.stderr, _PRINTED)
        try:
            with contextlib.suppress(OSError):  # it ended before it had read all
                child.stdin.write(request.encode())
                child.stdin.close()
            answers.first.wait(_START)
            is_late = _is_late(child, answers, seconds)
        finally:
            _end(child)
    return Outcome(_lines(answers.text()), printed.text(), is_late)


def _environment(folder: str) -> dict[str, str]:
    """What the child knows of this process's environment: what Python needs to start, and nothing else."""
    kept = {name: os.environ[name] for name in ("PATH", "SYSTEMROOT") if name in os.environ}
    return kept | {"HOME": folder, "TMPDIR": folder, "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"}


def _is_late(child: "subprocess.Popen[bytes]", answers: "_Reader", seconds: float) -> bool:
    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        return not answers.is_full
    return False


def _end(child: "subprocess.Popen[bytes]") -> None:
    """End the child and all that it started."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
    child.kill()
    child.wait()


def _lines(text: str) -> list[dict[str, Any]]:
    """The child's lines after the first, which says that it is ready; one that is not ours ends them."""
    found = []
    for line in text.splitlines()[1:]:
        try:
            content = json.loads(line)
        except (ValueError, RecursionError):
            break
        if not isinstance(content, dict):
            break
        found.append(content)
    return found


class _Reader(threading.Thread):
    """Reads a pipe to its end and keeps its beginning, so that nobody fills the memory."""

    def __init__(self, pipe: IO[bytes], at_most: int) -> None:
        super().__init__(daemon=True)
        self.pipe, self.at_most = pipe, at_most
        self.kept, self.is_full, self.first = bytearray(), False, threading.Event()
        self.start()

    def run(self) -> None:
        with self.pipe, contextlib.suppress(OSError, ValueError):
            while chunk := self.pipe.read1(1 << 16):  # type: ignore[attr-defined]
                self.kept += chunk[: max(0, self.at_most - len(self.kept))]
                self.is_full = len(self.kept) >= self.at_most
                self.first.set()
        self.first.set()

    def text(self) -> str:
        self.join(5)  # a process that left the group may hold the pipe: then what there is
        return bytes(self.kept).decode("utf-8", "replace")
