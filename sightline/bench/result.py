"""What a measurement came to: a result, the outcome of a case, the report of a run. Values, no effects."""

import math
from dataclasses import asdict, dataclass
from typing import Any

# A result twice as far from float64 as the furthest peer is wrong, not rounded.
_ROUNDING = 2.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """What one contestant did in one case; None where a thing was not measured.

    Attributes:
        case: The case's name.
        contestant: Who ran.
        milliseconds: The median time of a call.
        spread: The middle half of the times (their interquartile range), as a fraction of the median.
        peak_bytes: Memory at the peak of a call, above what was held before it.
        error: The relative error, ‖x - exact‖ / ‖exact‖, against float64; the largest over all outputs.
    """

    case: str
    contestant: str
    milliseconds: float | None = None
    spread: float | None = None
    peak_bytes: int | None = None
    error: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """The results of one case, ours first, and the bars it is held to.

    Attributes:
        case: The case's name.
        results: One for each contestant that could run.
        ours: The name of the contestant that the bars are for.
        bar: The least ratio of the best peer's time to ours.
        memory_bar: The most bytes ours may need.
        slack: An error up to this is no fault, whatever the peers'.
        notes: What a reader should know: who could not run, what was not checked, and why.

    Example:
        >>> peers = Result(case="c", contestant="torch", milliseconds=3.0)
        >>> ours = Result(case="c", contestant="sightline", milliseconds=2.0)
        >>> Outcome(case="c", results=(ours, peers), ours="sightline", bar=0.97).ratio
        1.5
    """

    case: str
    results: tuple[Result, ...]
    ours: str
    bar: float | None = None
    memory_bar: int | None = None
    slack: float = 1e-12
    notes: tuple[str, ...] = ()

    @property
    def own(self) -> Result | None:
        """Our result, or None if we could not run."""
        return next((r for r in self.results if r.contestant == self.ours), None)

    @property
    def peers(self) -> tuple[Result, ...]:
        """Everyone else's."""
        return tuple(r for r in self.results if r.contestant != self.ours)

    @property
    def ratio(self) -> float | None:
        """The best peer's median time over ours: 1 or more means that we are at least as fast."""
        times = [r.milliseconds for r in self.peers if r.milliseconds is not None]
        if self.own is None or not self.own.milliseconds or not times:
            return None
        return min(times) / self.own.milliseconds

    @property
    def faults(self) -> tuple[str, ...]:
        """In what ways our result falls short: a few words each, none if it stands."""
        own = self.own
        if own is None:
            return ("did not run",)
        faults = []
        if self.bar is not None and self.ratio is not None and self.ratio < self.bar:
            faults.append("slow")
        if self.memory_bar is not None and own.peak_bytes is not None and own.peak_bytes > self.memory_bar:
            faults.append("large")
        if own.error is not None:
            allowed = _ROUNDING * max((r.error for r in self.peers if r.error is not None), default=math.inf)
            if not own.error <= max(allowed, self.slack):  # so that NaN is a fault as well
                faults.append("inexact")
        return tuple(faults)

    def to_json(self) -> dict[str, Any]:
        """Give the outcome as what ``json.dumps`` takes."""
        return {
            "case": self.case,
            "ours": self.ours,
            "ratio": self.ratio,
            "bar": self.bar,
            "memory_bar": self.memory_bar,
            "faults": list(self.faults),
            "notes": list(self.notes),
            "results": [_finite(asdict(result)) for result in self.results],
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """All outcomes of a run, and the machine they were measured on."""

    bench: str
    machine: dict[str, Any]
    outcomes: tuple[Outcome, ...]

    @property
    def failing(self) -> tuple[Outcome, ...]:
        """The outcomes with a fault."""
        return tuple(outcome for outcome in self.outcomes if outcome.faults)

    def to_json(self) -> dict[str, Any]:
        """Give the report as what ``json.dumps`` takes."""
        return {
            "bench": self.bench,
            "machine": self.machine,
            "cases": [outcome.to_json() for outcome in self.outcomes],
        }


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    """Write NaN and infinity as strings: JSON has no numbers for them."""
    return {
        key: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in values.items()
    }
