"""A case: contestants that must give the same answer from the same inputs, checked, then timed."""

import math
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from sightline.bench.result import CostBar, Outcome, Result
from sightline.bench.timing import (
    Context,
    Repeats,
    Stopwatch,
    cuda_peak_bytes,
    median_and_spread,
    time_interleaved,
)

OURS = "sightline"


def _all(results: Sequence[Tensor]) -> Sequence[Tensor]:
    return results


@runtime_checkable
class Case(Protocol):
    """Something with a name that can be measured."""

    @property
    def name(self) -> str:
        """What ``--only`` matches."""
        ...

    def measure(self, watch: Stopwatch, repeats: Repeats) -> Outcome:
        """Measure every contestant."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Contestant:
    """One way to the answer.

    Attributes:
        name: ``sightline``, or the name of a peer.
        run: One call, handing back what it computed; fresh tensors each time.
        context: Entered around a call, outside the measured time.
        checked: Picks of what it hands back that which is held against float64; None for no check.
    """

    name: str
    run: Callable[[], Sequence[Tensor]]
    context: Context = nullcontext
    checked: Callable[[Sequence[Tensor]], Sequence[Tensor]] | None = _all


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """What is compared in one case; the inputs are in memory already.

    Attributes:
        contestants: Who runs, ours first.
        exact: Computes in float64 what each of them should hand back, or None for no check.
        slack: An error up to this is no fault, whatever the peers'.
        notes: Why someone is missing, or why there is no check.
    """

    contestants: tuple[Contestant, ...]
    exact: Callable[[], Sequence[Tensor]] | None = None
    slack: float = 1e-12
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class TimedCase:
    """A case that is timed.

    Attributes:
        name: What ``--only`` matches.
        device: Where it runs.
        setup: Makes the inputs and the contestants; called just before the case is measured.
        bar: The least ratio of the best peer's time to ours; None if there is none to reach.
        cost: In its place, where ours does more than a peer: the most it may take, in times of that peer.
    """

    name: str
    device: torch.device
    setup: Callable[[], Comparison]
    bar: float | None = None
    cost: CostBar | None = None

    def measure(self, watch: Stopwatch, repeats: Repeats) -> Outcome:
        """Check every contestant against float64, leave out those that can't run, time the others."""
        setup = self.setup()
        notes = list(setup.notes)
        exact = None
        if setup.exact is not None:
            try:
                exact = setup.exact()
            except RuntimeError as problem:
                notes.append(f"no float64 check: {first_line(problem)}")
        errors: dict[str, float | None] = {}
        start = watch.now()
        for contestant in setup.contestants:
            try:
                errors[contestant.name] = _trial(contestant, exact)
            except RuntimeError as problem:  # a backend without a kernel for these inputs, or no memory left
                notes.append(f"{contestant.name} could not run: {first_line(problem)}")
        exact = None
        trial_seconds = (
            watch.now() - start if self.device.type == "cpu" else 0.0
        )  # a GPU compiles on first use
        ready = [c for c in setup.contestants if c.name in errors]
        peaks = {c.name: self._peak(c) for c in ready}
        runs = {c.name: (c.run, c.context) for c in ready}
        laps = time_interleaved(runs, watch, repeats, trial_seconds=trial_seconds) if ready else {}
        results = []
        for name, milliseconds in laps.items():
            median, spread = median_and_spread(milliseconds)
            results.append(
                Result(
                    case=self.name,
                    contestant=name,
                    milliseconds=median,
                    spread=spread,
                    peak_bytes=peaks[name],
                    error=errors[name],
                )
            )
        return Outcome(
            case=self.name,
            results=tuple(results),
            ours=OURS,
            bar=self.bar,
            cost_bar=self.cost,
            slack=setup.slack,
            notes=tuple(notes),
        )

    def _peak(self, contestant: Contestant) -> int | None:
        if self.device.type != "cuda":
            return None
        return cuda_peak_bytes(contestant.run, self.device, contestant.context)


def relative_error(got: Sequence[Tensor], exact: Sequence[Tensor]) -> float:
    """Give ‖got - exact‖ / ‖exact‖ of the pair where it is largest; NaN if any is.

    Example:
        >>> relative_error([torch.tensor([3.0, 4.5])], [torch.tensor([3.0, 4.0], dtype=torch.float64)])
        0.1
    """
    errors = [
        ((x.double() - y).norm() / y.norm().clamp_min(torch.finfo(torch.float64).tiny)).item()
        for x, y in zip(got, exact, strict=True)
    ]
    return math.nan if any(map(math.isnan, errors)) else max(errors)


def _trial(contestant: Contestant, exact: Sequence[Tensor] | None) -> float | None:
    """Run once, untimed: a contestant that can not run raises here."""
    with warnings.catch_warnings(), contestant.context():
        warnings.simplefilter("ignore")  # a backend that can't run explains itself in warnings
        got = contestant.run()
        if exact is None or contestant.checked is None:
            if got[0].is_cuda:
                torch.cuda.synchronize(got[0].device)
            return None
    return relative_error(contestant.checked(got), exact)


def first_line(problem: Exception) -> str:
    """The first line of what an exception says, or its name."""
    return next(iter(str(problem).splitlines()), type(problem).__name__)[:120]
