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
class CostBar:
    """The most that ours may take where it does more than the peer: watched beside blind.

    Attributes:
        peer: The contestant whose time is one.
        most: How many times its time ours may take; None if there is nothing to reach.
    """

    peer: str
    most: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """The results of one case, ours first, and the bars it is held to.

    Attributes:
        case: The case's name.
        results: One for each contestant that could run.
        ours: The name of the contestant that the bars are for.
        bar: The least ratio of the best peer's time to ours.
        memory_bar: The most bytes ours may need.
        cost_bar: In place of ``bar``: the most that ours may cost, in times of one peer.
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
    cost_bar: CostBar | None = None
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
    def cost(self) -> float | None:
        """Our median time in times of the peer's: 1 means that what ours does more costs nothing."""
        return None if self.own is None else self.times(self.own)

    def times(self, result: Result) -> float | None:
        """How many times the peer's time a contestant took; None where there is no such peer."""
        if self.cost_bar is None or result.milliseconds is None:
            return None
        peer = next((r.milliseconds for r in self.results if r.contestant == self.cost_bar.peer), None)
        return result.milliseconds / peer if peer else None

    @property
    def verdict(self) -> str:
        """The ratio and the bar in words, with the direction of the bar; empty where there is no ratio."""
        if self.cost_bar is not None and self.cost is not None:
            bar = "" if self.cost_bar.most is None else f", at most {self.cost_bar.most:.2f}"
            return f"{self.cost:.2f} x {self.cost_bar.peer}{bar}"
        if self.cost_bar is not None or self.ratio is None:
            return ""
        return f"ratio {self.ratio:.2f}" + ("" if self.bar is None else f", at least {self.bar:.2f}")

    @property
    def faults(self) -> tuple[str, ...]:
        """In what ways our result falls short: a few words each, none if it stands."""
        own = self.own
        if own is None:
            return ("did not run",)
        faults = []
        if self.bar is not None and self.ratio is not None and self.ratio < self.bar:
            faults.append("slow")
        most = None if self.cost_bar is None else self.cost_bar.most
        if most is not None and self.cost is not None and self.cost > most:
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
            "cost": self.cost,
            "cost_bar": None if self.cost_bar is None else asdict(self.cost_bar),
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
