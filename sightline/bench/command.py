"""What a bench command does, whichever way it is called: check the options, measure, show, write.

Progress goes to standard error and the table to standard output; where the JSON object goes to standard
output, the table makes room for it and goes to standard error.
"""

import contextlib
import fnmatch
import gc
import json
import math
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from sightline.bench import (
    additive,
    attention,
    decode,
    decode_translate,
    look,
    table,
    train,
    train_classify,
    train_translate,
    watch,
)
from sightline.bench.busy import busy_cores
from sightline.bench.case import OURS, Case, first_line
from sightline.bench.machine import describe
from sightline.bench.result import Outcome, Report
from sightline.bench.timing import Repeats, Stopwatch, stopwatch
from sightline.shapes import did_you_mean

Cases = Callable[..., list[Case]]

BENCHES: Mapping[str, tuple[Cases, ...]] = {
    "attention": (attention.cases,),
    "look": (look.cases,),
    "additive": (additive.cases,),
    "decode": (decode.cases, decode_translate.cases),
    "train": (train.cases, train_translate.cases, train_classify.cases),
    "watch": (watch.cases,),
}
STANDARD_OUTPUT = "-"

# The help text of each option, shared by both ways of calling.
HELP = {
    "device": "Where to measure: cpu or cuda. Default: the CPU, then the GPU if there is one.",
    "quick": "Leave out the long inputs and take fewer repeats.",
    "json": "Write the results as one JSON object, to a file or, without a name, to standard output.",
    "only": "Measure only the cases whose name contains this; * stands for anything.",
    "model": "Measure only the cases of this kind of model, such as caption or translate.",
    "budget": "Seconds for the repeats of each case.",
    "busy": "Keep every core busy with a process of its own while measuring.",
}

_BUDGETS = {("cpu", False): 1.0, ("cpu", True): 0.2, ("cuda", False): 0.5, ("cuda", True): 0.1}


def run(
    bench: str,
    *,
    device: str | None = None,
    quick: bool = False,
    json_to: str | None = None,
    only: str | None = None,
    model: str | None = None,
    budget: float | None = None,
    busy: bool = False,
    cases: Cases | None = None,
) -> Report:
    """Measure a bench's cases and show the results.

    Args:
        bench: Its name, one of ``BENCHES``.
        device: ``cpu`` or ``cuda``; None for the CPU, then the GPU if there is one.
        quick: Leave out the long inputs and take fewer repeats.
        json_to: A file for the JSON object, written again after each case, or ``-`` for standard output.
        only: A pattern that the names of the cases must contain.
        model: A kind of model that they must be about.
        budget: Seconds for the repeats of each case.
        busy: Keep every core busy with a process of its own while measuring.
        cases: In place of the bench's own.

    Returns:
        What was shown.

    Raises:
        ValueError: If the bench, the device, the budget, the pattern or the file is no good.
    """
    if bench not in BENCHES:
        raise ValueError(f"unknown bench {bench!r}, {did_you_mean(bench, BENCHES)}")
    devices = _devices(device)
    _check_budget(budget)
    _check_file(json_to)
    lists = BENCHES[bench] if cases is None else (cases,)
    listed = [(d, case) for d in devices for list_cases in lists for case in list_cases(d, quick=quick)]
    chosen = _matching(only, _matching(None if model is None else f" {model} ", listed))

    outcomes = []
    with busy_cores() if busy else contextlib.nullcontext(0) as n_busy:
        machine = describe(devices) | {"busy": n_busy}
        for i, (on, case) in enumerate(chosen, 1):
            sys.stderr.write(f"[{i}/{len(chosen)}] {case.name} ... ")
            sys.stderr.flush()
            seconds, start = _BUDGETS[on.type, quick] if budget is None else budget, time.perf_counter()
            outcomes.append(_measure(case, stopwatch(on), Repeats(budget=seconds)))
            _free_memory(on)
            sys.stderr.write(f"{_summarize(outcomes[-1])} ({time.perf_counter() - start:.1f} s)\n")
            report = Report(bench=bench, machine=machine, outcomes=tuple(outcomes))
            if json_to is not None and json_to != STANDARD_OUTPUT:  # so far: a run may be stopped
                Path(json_to).write_text(_to_text(report), encoding="utf-8")

    shown_on = sys.stderr if json_to == STANDARD_OUTPUT else sys.stdout
    shown_on.write(table.text(report, color=shown_on.isatty()))
    if json_to == STANDARD_OUTPUT:
        sys.stdout.write(_to_text(report))
    return report


def _to_text(report: Report) -> str:
    return json.dumps(report.to_json(), indent=2, allow_nan=False) + "\n"


def _measure(case: Case, watch: Stopwatch, repeats: Repeats) -> Outcome:
    """Measure a case; what goes wrong in it is a fault of that case and costs no other its result."""
    try:
        return case.measure(watch, repeats)
    except Exception as problem:  # noqa: BLE001 - a kernel's compiler raises what it likes
        note = f"could not be measured: {type(problem).__name__}: {first_line(problem)}"
        return Outcome(case=case.name, results=(), ours=OURS, notes=(note,))


def _devices(name: str | None) -> list[torch.device]:
    if name is None:
        return [torch.device("cpu")] + ([torch.device("cuda")] if torch.cuda.is_available() else [])
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise ValueError(f"unknown device {name!r}, {did_you_mean(name, ['cpu', 'cuda'])}")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"device {name!r} is not there: torch {torch.__version__} sees {torch.cuda.device_count()} CUDA "
            "devices; choose 'cpu', or install a torch built for CUDA"
        )
    return [device]


def _check_budget(budget: float | None) -> None:
    if budget is not None and not (math.isfinite(budget) and budget > 0):
        raise ValueError(f"budget must be a positive number of seconds, got {budget}; 1 is the CPU's default")


def _check_file(json_to: str | None) -> None:
    """Refuse a file that can't be written now, rather than after minutes of measuring."""
    if json_to is None or json_to == STANDARD_OUTPUT:
        return
    path = Path(json_to)
    if path.is_dir():
        raise ValueError(f"--json needs a file, got the folder {json_to!r}; add a file name")
    if not path.parent.is_dir():
        raise ValueError(
            f"--json {json_to!r} needs the folder {str(path.parent)!r}, which is not there; make it"
        )


def _matching(only: str | None, cases: list[tuple[torch.device, Case]]) -> list[tuple[torch.device, Case]]:
    if only is None:
        return cases
    found = [(on, case) for on, case in cases if fnmatch.fnmatch(case.name.lower(), f"*{only.lower()}*")]
    if not found:
        first, last = cases[0][1].name, cases[-1][1].name
        raise ValueError(
            f"no case matches {only!r} among {len(cases)}, from {first!r} to {last!r}; "
            "try 'causal' or 'eval*128'"
        )
    return found


def _summarize(outcome: Outcome) -> str:
    own = outcome.own
    parts = [", ".join(outcome.faults).upper()]
    parts.append(outcome.verdict)
    if own is not None and own.milliseconds is not None:
        parts.append(f"{own.milliseconds:.3f} ms")
    elif own is not None and own.peak_bytes is not None:
        parts.append(f"{own.peak_bytes / 1e6:.1f} MB")
    return " ".join(filter(None, parts))


def _free_memory(device: torch.device) -> None:
    """Give the memory of a case back before the next one asks how much there is."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
