"""A busy machine: one process for each core that does nothing but count, while something else is measured."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# It ends with the process that started it, even if that is killed.
_COUNT = """
import os
parent = int({parent})
while os.getppid() == parent:
    sum(range(100_000))
"""


@contextmanager
def busy_cores(n: int | None = None) -> Iterator[int]:
    """Keep ``n`` cores busy inside the block; default: all that this process may use. Gives how many.

    Example:
        >>> with busy_cores(1) as n:
        ...     n
        1
    """
    n = _cores() if n is None else n
    code = _COUNT.format(parent=os.getpid())
    running = [subprocess.Popen([sys.executable, "-S", "-c", code]) for _ in range(n)]  # noqa: S603
    try:
        yield n
    finally:
        for process in running:
            process.kill()
        for process in running:
            process.wait()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
