"""How much memory a call needs at its peak on the CPU, measured in a fresh process.

Resident memory tells about one thing only if the process does nothing else. So the call is named,
``module:function``: a new interpreter calls that to get the inputs ready, and measures what it returns.
"""

import importlib
import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness import OURS, Case, Outcome

__all__ = ["memory_case"]

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def memory_case(name: str, target: str, most: int, note: str, **arguments: Any) -> Case:
    """Return a case whose peak memory is measured, of at most so many bytes."""
    return Case(
        name=name, measure=partial(_measured, target=target, arguments=arguments, most=most, note=note)
    )


def _measured(name: str, *, target: str, arguments: dict[str, Any], most: int, note: str) -> Outcome:
    command = [sys.executable, "-m", "benchmarks.memory", target, json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(next(reversed(done.stderr.strip().splitlines()), f"exit code {done.returncode}"))
    peak = int(done.stdout)
    return {
        "case": name,
        "peer": "",
        "ratio": None,
        "most": None,
        "faults": ["large"] if peak > most else [],
        "notes": [f"at most {most / 1e6:.0f} MB; {note}"],
        "results": [{"contestant": OURS, "peak_bytes": peak}],
    }


def peak_bytes(target: str, arguments: dict[str, Any]) -> int:
    """Return the resident memory at the peak of a call, above what this process held before it."""
    module, function = target.split(":")
    call = getattr(importlib.import_module(module), function)(**arguments)
    if _CLEAR.exists():
        _CLEAR.write_text("5", encoding="ascii")  # the high-water mark begins anew
    before = _resident("VmHWM")
    kept = call()
    after = _resident("VmHWM")
    del kept
    return max(0, after - before)


def _resident(field: str) -> int:
    line = next(x for x in _STATUS.read_text(encoding="ascii").splitlines() if x.startswith(f"{field}:"))
    return 1024 * int(line.split()[1])


if __name__ == "__main__":
    sys.stdout.write(f"{peak_bytes(sys.argv[1], json.loads(sys.argv[2]))}\n")
