"""Counts of a fuzzer, and the cases that failed, each with what makes it again."""

from collections import Counter
from dataclasses import dataclass, field

SHOWN = 20


@dataclass
class Report:
    """What a fuzzer found.

    Attributes:
        name: Of the fuzzer.
        seed: Of all its cases.
        outcomes: How many cases ended in each way.
        failures: The cases that should not have ended so.
    """

    name: str
    seed: int
    outcomes: Counter = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def add(self, case, outcome, faults=()):
        """Count a case; ``faults`` says what is wrong with it."""
        self.outcomes["fault: " + ", ".join(faults) if faults else outcome] += 1
        if faults:
            self.failures.append(f"{', '.join(faults)}: {case}")

    def __add__(self, other):
        """The counts and failures of both, as of one process that had the cases of both."""
        failures = sorted([*self.failures, *other.failures])
        return Report(self.name, self.seed, self.outcomes + other.outcomes, failures)

    @property
    def count(self):
        """Cases in all."""
        return sum(self.outcomes.values())

    def __str__(self):
        counts = ", ".join(f"{name} {n}" for name, n in sorted(self.outcomes.items()))
        line = f"{self.name}: {self.count} cases, {len(self.failures)} failures (seed {self.seed}; {counts})"
        rest = len(self.failures) - SHOWN
        more = [f"  and {rest} more"] if rest > 0 else []
        return "\n".join([line, *(f"  {failure}" for failure in self.failures[:SHOWN]), *more])


def ended(outcome):
    """An outcome of a command in a word."""
    return {0: "answered", 1: "answered in part", 2: "refused"}.get(outcome.code, "other")


def about(outcome):
    """A command and the end of what it printed, for the list of failures."""
    said = " ".join(outcome.err.split())[-300:]
    return f"{' '.join(map(ascii, outcome.words))} -> {outcome.code}, {outcome.seconds:.1f} s: {said!r}"
