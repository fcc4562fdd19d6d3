"""A busy machine: a process for each core that does nothing but count, while something else is measured."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["busy_cores"]

_COUNT = """
import os
while os.getppid() == {parent}:  # it ends with the process that started it, even if that is killed
    sum(range(100_000))
"""


@contextmanager
def busy_cores(n: int | None = None) -> Iterator[int]:
    """Keep ``n`` cores busy inside the block, by default all that this process may use; gives how many."""
    if n is None:
        n = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    code = _COUNT.format(parent=os.getpid())
    running = [subprocess.Popen([sys.executable, "-S", "-c", code]) for _ in range(n)]
    try:
        yield n
    finally:
        for process in running:
            process.kill()
            process.wait()
