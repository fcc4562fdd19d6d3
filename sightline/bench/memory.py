"""How much memory a call needs at its peak on the CPU, measured in a fresh process.

A process's resident memory only tells the truth about one thing if that process does nothing else. So the
call is named, ``package.module:function``, and a new interpreter imports it, calls the function with the
keywords given to get the inputs ready, and then measures the call that it hands back.
"""

import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sightline.bench.case import OURS
from sightline.bench.result import Outcome, Result
from sightline.bench.timing import Repeats, Stopwatch

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryCase:
    """A case whose peak memory is measured, each contestant in a process of its own.

    Attributes:
        name: What ``--only`` matches.
        targets: For each contestant, what to measure: ``package.module:function``.
        arguments: The keywords each of these functions is called with.
        memory_bar: The most bytes ours may need.
        notes: Something to compare the numbers with.
    """

    name: str
    targets: Mapping[str, str]
    arguments: Mapping[str, Any]
    memory_bar: int
    notes: tuple[str, ...] = ()

    def measure(self, watch: Stopwatch, repeats: Repeats) -> Outcome:  # noqa: ARG002 - one call says it all
        """Start a process for each contestant."""
        results, notes = [], list(self.notes)
        for contestant, target in self.targets.items():
            try:
                peak = fresh_peak_bytes(target, self.arguments)
            except RuntimeError as problem:
                notes.append(f"{contestant} could not run: {problem}")
            else:
                results.append(Result(case=self.name, contestant=contestant, peak_bytes=peak))
        return Outcome(
            case=self.name,
            results=tuple(results),
            ours=OURS,
            memory_bar=self.memory_bar,
            notes=tuple(notes),
        )


def fresh_peak_bytes(target: str, arguments: Mapping[str, Any]) -> int:
    """Measure a call in a new process.

    Args:
        target: ``package.module:function``; the function takes the arguments, gets everything ready, and
            hands back the call to measure.
        arguments: Keywords that JSON can carry.

    Returns:
        Bytes of resident memory at the peak of the call, above those just before it.

    Raises:
        RuntimeError: If the process fails; the message ends in its last line.
    """
    command = [sys.executable, "-m", "sightline.bench.memory", target, json.dumps(dict(arguments))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own module
    if done.returncode != 0:
        raise RuntimeError(next(reversed(done.stderr.strip().splitlines()), f"exit code {done.returncode}"))
    return int(done.stdout)


def peak_bytes(call: Callable[[], object]) -> int:
    """Give the resident memory at the peak of a call, above what this process held before it."""
    before = _restart_peak()
    kept = call()
    after = _peak()
    del kept
    return max(0, after - before)


def _restart_peak() -> int:
    """Set the high-water mark to what is resident now, where the system lets us; give the mark."""
    if _CLEAR.exists():
        try:
            _CLEAR.write_text("5")
        except OSError:  # not allowed here: the mark may stand too high, and the call look too small
            return _status("VmRSS")
    return _peak()


def _peak() -> int:
    """Give the most memory that was ever resident, in bytes."""
    if _STATUS.exists():
        return _status("VmHWM")
    import resource  # noqa: PLC0415 - not on every system

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak  # bytes there, kilobytes elsewhere


def _status(field: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(f"{field}:"):
            return 1024 * int(line.split()[1])
    raise RuntimeError(f"{_STATUS} has no line {field}")


def main(target: str, arguments: str) -> None:
    """Measure one call in this process and write the bytes to standard output."""
    module, function = target.split(":")
    call = getattr(importlib.import_module(module), function)(**json.loads(arguments))
    sys.stdout.write(f"{peak_bytes(call)}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
