"""How long a call takes, beside the others: rounds of laps, A C B, B A C, so that noise hits all alike.

Every round has an order of its own: short calls feel who ran before them (the same call twice in a fixed
order: 174 and 151 us on one GPU), and in a drawn order all of them do.

A stopwatch runs a thing once and hands back a function that tells the time, to be asked after
``settle()``: a GPU is still at work when the call returns. On the CPU time is read off the host's clock;
on a GPU it lies between two events, and before each lap a buffer larger than the cache is overwritten,
so that no contestant finds its inputs there because the one before it had just read them.
"""

import gc
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

Lap = Callable[[], float]
Run = Callable[[], object]
Context = Callable[[], AbstractContextManager[object]]

_FLUSH_BYTES = 256 * 1024 * 1024
_WARM_UP = 0.2  # of the budget
_LONG = 2.0  # of the budget: what the first call sets up no longer matters


@runtime_checkable
class Stopwatch(Protocol):
    """Times one call at a time."""

    def now(self) -> float:
        """Give the host's time, in seconds."""
        ...

    def lap(self, run: Run) -> Lap:
        """Call ``run`` once; the function handed back gives its milliseconds, once settled."""
        ...

    def synchronize(self) -> None:
        """Wait until all that was started is done."""
        ...


class HostStopwatch:
    """Times what is done when the call returns: everything on the CPU.

    Args:
        clock: Gives the time in seconds.

    Example:
        >>> ticks = iter([1.0, 1.25])
        >>> HostStopwatch(lambda: next(ticks)).lap(lambda: None)()
        250.0
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.now = clock

    def lap(self, run: Run) -> Lap:
        """Call ``run`` once, between two readings of the clock."""
        start = self.now()
        run()
        milliseconds = 1000 * (self.now() - start)
        return lambda: milliseconds

    def synchronize(self) -> None:
        """Nothing is left to wait for."""


class CudaStopwatch:
    """Times what a GPU does for a call, between two events in its stream, from a cold cache."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.now = time.perf_counter
        self._flush = torch.empty(_FLUSH_BYTES, dtype=torch.int8, device=device)

    def lap(self, run: Run) -> Lap:
        """Call ``run`` once, between two events; the host goes on at once."""
        stream = torch.cuda.current_stream(self.device)
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        self._flush.zero_()
        start.record(stream)
        run()
        end.record(stream)
        return lambda: float(start.elapsed_time(end))

    def synchronize(self) -> None:
        """Wait for the GPU."""
        torch.cuda.synchronize(self.device)


def stopwatch(device: torch.device) -> Stopwatch:
    """Give the stopwatch for a device."""
    return CudaStopwatch(device) if device.type == "cuda" else HostStopwatch()


@dataclass(frozen=True, kw_only=True, slots=True)
class Repeats:
    """How many rounds of laps to run.

    Attributes:
        budget: Seconds for all the laps of a case; at least ``minimum`` rounds are run all the same.
        minimum: The fewest rounds.
        maximum: The most rounds.
    """

    budget: float
    minimum: int = 3
    maximum: int = 1000

    def rounds(self, seconds_a_round: float) -> int:
        """Give the number of rounds that fits the budget.

        Example:
            >>> [Repeats(budget=2.0).rounds(seconds) for seconds in (0.1, 5.0, 0.0)]
            [20, 3, 1000]
        """
        if seconds_a_round * self.maximum <= self.budget:
            return self.maximum
        return max(self.minimum, round(self.budget / seconds_a_round))


def time_interleaved(
    runs: Mapping[str, tuple[Run, Context]], watch: Stopwatch, repeats: Repeats, *, trial_seconds: float = 0.0
) -> dict[str, list[float]]:
    """Time every contestant once a round, one after the other, in an order that each round draws.

    Args:
        runs: What each contestant does in a lap, and the context it does it in, which is entered before
            the lap starts and left after it ends, so it costs nothing.
        watch: The stopwatch.
        repeats: How many rounds.
        trial_seconds: What a round took that the caller has already run; a long one replaces the warm-up.

    Returns:
        The milliseconds of each contestant's laps. The laps of the warm-up are not among them.
    """
    laps: dict[str, list[Lap]] = {name: [] for name in runs}
    order, dice = list(runs), random.Random(0)  # noqa: S311 (no secret)

    def one_round(*, keep: bool) -> None:
        dice.shuffle(order)
        for name in order:
            run, context = runs[name]
            with context():
                lap = watch.lap(run)
            if keep:
                laps[name].append(lap)

    with _no_garbage_collection():
        warm, seconds = (1, trial_seconds) if trial_seconds > _LONG * repeats.budget else (0, 0.0)
        start = watch.now()
        while warm == 0 or (seconds < _WARM_UP * repeats.budget and warm < repeats.maximum):
            one_round(keep=False)
            watch.synchronize()
            warm, seconds = warm + 1, watch.now() - start
        for _ in range(repeats.rounds(seconds / warm)):
            one_round(keep=True)
        watch.synchronize()
    return {name: [lap() for lap in of_one] for name, of_one in laps.items()}


def median_and_spread(milliseconds: list[float]) -> tuple[float, float]:
    """Give the median, and the interquartile range as a fraction of it.

    Example:
        >>> median_and_spread([1.0, 2.0, 3.0, 4.0, 5.0])
        (3.0, 0.6666666666666666)
    """
    median = statistics.median(milliseconds)
    if len(milliseconds) < 2 or not median:
        return median, 0.0
    low, _, high = statistics.quantiles(milliseconds, n=4, method="inclusive")
    return median, (high - low) / median


def cuda_peak_bytes(run: Run, device: torch.device, context: Context = nullcontext) -> int:
    """Give the most GPU memory that a call held at once, above what was held before it."""
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    with context():
        run()
    torch.cuda.synchronize(device)
    return int(torch.cuda.max_memory_allocated(device) - before)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Keep the collector from running within someone's lap."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
