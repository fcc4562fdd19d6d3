"""A case: contestants on the same inputs, checked against float64, then timed in turns.

On the CPU a lap is read off the clock, and off the processor's time for this process, which others do not
change. On a GPU it lies between two events, and before it a buffer larger than the cache is overwritten, so
that no inputs are found there. Each round has its own order, because short calls feel who ran before them.
"""

import gc
import math
import platform
import random
import statistics
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import sightline

__all__ = ["OURS", "Case", "Contest", "draw", "machine", "measure", "relative_error", "table"]

OURS = "sightline"
COLUMNS = ("case", "contestant", "ms", "cpu ms", "spread", "peak MB", "error", "ratio", "most", "")
_FLUSHED = 256 << 20  # bytes: more than any cache
_ROUNDING = 2.0  # twice as far from float64 as the farthest peer is wrong, not rounded
_FEWEST, _MOST_ROUNDS = 3, 1000

Run = Callable[[], Sequence[Tensor]]
Outcome = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Contest:
    """What a case compares; its inputs are in memory already.

    Attributes:
        runs: What each contestant does in a lap, ours first; it returns fresh tensors.
        exact: Computes in float64 what they should return; None for no check.
        part: What is checked of the tensors that a contestant returns.
        unchecked: Contestants that return something else.
        slack: An error up to this is no fault, whatever the peers'.
        grad: Whether autograd is on.
        around: Contexts of single contestants, entered outside the time that is measured.
        notes: What a reader of the numbers should know.
    """

    runs: Mapping[str, Run]
    exact: Run | None = None
    part: Callable[[Sequence[Tensor]], Sequence[Tensor]] = list
    unchecked: tuple[str, ...] = ()
    slack: float = 1e-12
    grad: bool = False
    around: Mapping[str, Callable[[], AbstractContextManager[Any]]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def run(self, name: str, call: Callable[[Run], Any] = lambda run: run()) -> Any:
        """Call what a contestant does, in its context."""
        with torch.set_grad_enabled(self.grad), self.around.get(name, nullcontext)():
            return call(self.runs[name])


@dataclass(frozen=True, kw_only=True)
class Case:
    """A line of the table of cases.

    Attributes:
        name: What ``--only`` matches.
        setup: Makes the inputs and the contestants, just before they are measured.
        peer: The contestant whose time is one; empty for the fastest besides ours.
        most: How many times the peer's time ours may take; None if there is nothing to reach.
        examples: How many a call sees, and what they are called.
        measure: In place of timing the contestants: measures something else.
    """

    name: str
    setup: Callable[[], Contest] | None = None
    peer: str = ""
    most: float | None = None
    examples: tuple[int, str] | None = None
    measure: Callable[[str], Outcome] | None = None


def draw(seed: int, *shape: int, device: torch.device, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return random numbers, the same for the same seed."""
    generator = torch.Generator(device).manual_seed(seed)
    return torch.randn(shape, generator=generator, device=device, dtype=dtype)


def measure(case: Case, device: torch.device, seconds: float) -> Outcome:
    """Check and time a case; what goes wrong is a note, and costs no other case its result."""
    try:
        if case.measure is not None:
            return case.measure(case.name)
        assert case.setup is not None
        return _measured(case, case.setup(), device, seconds)
    except Exception as problem:  # noqa: BLE001 - a kernel's compiler raises what it likes
        note = f"could not be measured: {type(problem).__name__}: {_first_line(problem)}"
        return {"case": case.name, "ratio": None, "most": None, "faults": ["did not run"], "notes": [note],
                "results": []}  # fmt: skip
    finally:
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()


def _measured(case: Case, contest: Contest, device: torch.device, seconds: float) -> Outcome:
    notes, errors = list(contest.notes), {}
    exact = None
    if contest.exact is not None:
        try:
            exact = contest.exact()
        except RuntimeError as problem:
            notes.append(f"no float64 check: {_first_line(problem)}")
    start = time.perf_counter()
    for name in contest.runs:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a backend that can't run explains itself in warnings
                got = contest.run(name)
            checked = exact is not None and name not in contest.unchecked
            errors[name] = relative_error(contest.part(got), exact) if checked else None
        except RuntimeError as problem:  # a backend without a kernel for these inputs, or no memory left
            notes.append(f"{name} could not run: {_first_line(problem)}")
    tried = time.perf_counter() - start
    del exact
    peaks = {name: _peak(contest, name, device) for name in errors}
    laps = _laps(contest, list(errors), device, seconds, tried)
    results = [
        _times(laps[name]) | {"contestant": name, "peak_bytes": peaks[name], "error": errors[name]}
        for name in errors
    ]
    if case.examples:
        n, what = case.examples
        rates = [f"{x['contestant']} {1000 * n / x['milliseconds']:,.0f} {what}/s" for x in results]
        notes.append(", ".join(rates))
    return judged(case, results, contest.slack, notes)


def judged(case: Case, results: list[dict[str, Any]], slack: float, notes: list[str]) -> Outcome:
    """Return an outcome with its ratio to the peer and its faults."""
    ours = next((x for x in results if x["contestant"] == OURS), None)
    peers = [x for x in results if x["contestant"] != OURS]
    faults = [] if ours else ["did not run"]
    times = [x["milliseconds"] for x in peers if case.peer in {"", x["contestant"]}]
    ratio = ours["milliseconds"] / min(times) if ours and times else None
    if ratio is not None and case.most is not None and ratio > case.most:
        faults.append("slow")
    if ours and ours["error"] is not None:
        allowed = max((x["error"] for x in peers if x["error"] is not None), default=math.inf)
        if not ours["error"] <= max(_ROUNDING * allowed, slack):  # NaN is a fault as well
            faults.append("inexact")
    return {
        "case": case.name,
        "peer": case.peer or "the fastest peer",
        "ratio": ratio,
        "most": case.most,
        "faults": faults,
        "notes": notes,
        "results": results,
    }


def relative_error(got: Sequence[Tensor], exact: Sequence[Tensor]) -> float:
    """Return ‖got - exact‖ / ‖exact‖ of the pair where it is largest; NaN if any is."""
    tiny = torch.finfo(torch.float64).tiny
    pairs = zip(got, exact, strict=True)
    errors = [((x.double() - y).norm() / y.norm().clamp_min(tiny)).item() for x, y in pairs]
    return math.nan if any(map(math.isnan, errors)) else max(errors)


def _laps(
    contest: Contest, names: list[str], device: torch.device, seconds: float, tried: float
) -> dict[str, list[tuple[float, float]]]:
    """Time every contestant once a round, for about so many seconds after a warm-up."""
    lap = _gpu_lap if device.type == "cuda" else _cpu_lap
    found: dict[str, list[Callable[[], tuple[float, float]]]] = {name: [] for name in names}
    dice = random.Random(0)
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        # on a CPU a long trial has warmed up enough; a GPU compiles at its first call
        warm, spent = (1, tried) if device.type == "cpu" and tried > 2 * seconds else (0, 0.0)
        while names and (not warm or (spent < 0.2 * seconds and warm < _MOST_ROUNDS)):
            start = time.perf_counter()
            for name in names:
                contest.run(name)
            _settle(device)
            warm, spent = warm + 1, spent + time.perf_counter() - start
        rounds = seconds * warm / max(spent, 1e-9) if warm else 0
        for _ in range(max(_FEWEST, min(_MOST_ROUNDS, round(rounds)))):
            for name in dice.sample(names, len(names)):
                found[name].append(contest.run(name, lap))
        _settle(device)
    finally:
        if was_enabled:
            gc.enable()
    return {name: [read() for read in readings] for name, readings in found.items()}


def _cpu_lap(run: Run) -> Callable[[], tuple[float, float]]:
    start, used = time.perf_counter(), time.process_time()
    run()
    took = 1000 * (time.perf_counter() - start), 1000 * (time.process_time() - used)
    return lambda: took


def _gpu_lap(run: Run) -> Callable[[], tuple[float, float]]:
    torch.empty(_FLUSHED, dtype=torch.int8, device="cuda").zero_()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    used = time.process_time()
    start.record()
    run()
    end.record()
    used = 1000 * (time.process_time() - used)
    return lambda: (start.elapsed_time(end), used)


def _settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _times(laps: list[tuple[float, float]]) -> dict[str, Any]:
    """The median of the laps, and the middle half of them as a fraction of it."""
    took = [ms for ms, _ in laps]
    low, middle, high = statistics.quantiles(took, n=4, method="inclusive")
    return {
        "milliseconds": middle,
        "cpu_milliseconds": statistics.median(cpu for _, cpu in laps),
        "spread": (high - low) / middle if middle else 0.0,
    }


def _peak(contest: Contest, name: str, device: torch.device) -> int | None:
    """The most GPU memory that a call held at once, above what was held before it."""
    if device.type != "cuda":
        return None
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    contest.run(name)
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before


def _first_line(problem: Exception) -> str:
    return next(iter(str(problem).splitlines()), type(problem).__name__)[:120]


def machine(devices: Sequence[torch.device]) -> dict[str, Any]:
    """Return where it was measured: numbers without this are no use to anyone else."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    cpu = next(iter(models), platform.processor())
    try:
        triton = metadata.version("triton")
    except metadata.PackageNotFoundError:
        triton = None
    return {
        "machine": platform.node(),
        "system": platform.platform(),
        "devices": {
            str(device): torch.cuda.get_device_name(device) if device.type == "cuda" else cpu
            for device in devices
        },
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "sightline": sightline.__version__,
        "torch": str(torch.__version__),
        "triton": triton,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def table(report: Mapping[str, Any]) -> str:
    """Return a report as text: a line for each contestant, and what fell short."""
    rows = [COLUMNS, *(row for outcome in report["cases"] for row in _rows(outcome))]
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    lines = [
        "  ".join(
            f"{cell:{'<' if i in {0, 1, 9} else '>'}{widths[i]}}" for i, cell in enumerate(row)
        ).rstrip()
        for row in rows
    ]
    where = report["machine"]
    named = ", ".join(where["devices"].values())
    busy = f", {where['busy']} cores kept busy" if where.get("busy") else ""
    lines += [
        "",
        f"{named}; {where['threads']} threads{busy}; torch {where['torch']}, triton {where['triton']}",
        "ratio: our time over the peer's, and the most that it may be; error: against float64",
    ]
    notes: dict[str, list[str]] = {}
    for outcome in report["cases"]:
        for note in outcome["notes"]:
            notes.setdefault(note, []).append(outcome["case"])
    lines += [f"note: {x} ({of[0]}{f' and {len(of) - 1} more' * (len(of) > 1)})" for x, of in notes.items()]
    failing = [outcome for outcome in report["cases"] if outcome["faults"]]
    lines.append(f"{len(report['cases']) - len(failing)} of {len(report['cases'])} cases have no fault")
    lines += [f"  {', '.join(outcome['faults'])}: {outcome['case']}" for outcome in failing]
    return "\n".join(lines) + "\n"


def _rows(outcome: Outcome) -> list[tuple[str, ...]]:
    def shown(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    rows = []
    for i, x in enumerate(outcome["results"] or [{"contestant": "-"}]):
        ours = x["contestant"] in {OURS, "-"}
        peak = x.get("peak_bytes")
        rows.append(
            (
                outcome["case"] if i == 0 else "",
                x["contestant"],
                shown(x.get("milliseconds"), ".3f"),
                shown(x.get("cpu_milliseconds"), ".3f"),
                shown(x.get("spread"), ".0%"),
                shown(None if peak is None else peak / 1e6, ".1f"),
                shown(x.get("error"), ".1e"),
                shown(outcome["ratio"], ".2f") if ours else "",
                shown(outcome["most"], ".2f") if ours else "",
                ", ".join(outcome["faults"]).upper() if ours else "",
            )
        )
    return rows
