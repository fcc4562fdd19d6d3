"""What a set of any kind holds and what is wrong with it: one record, for people and for programs."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from sightline.data.dataset import Problem

__all__ = ["Cell", "DataReport", "OnProgress"]

Cell = Callable[[Mapping[str, Any]], str]
OnProgress = Callable[[int], None]


@dataclass(frozen=True, kw_only=True)
class DataReport:
    """What a set holds, and what is wrong with it.

    Attributes:
        source: The folder, the file, or the embedded set's name.
        rule: How the splits came about.
        about: What kind of set it is, in a few words.
        splits: Each split in plain values.
        columns: The table of the splits, for people: the head of each column, and its cell by those values.
        problems: What can't be used or should not be so.
        facts: What there is to say of the set as a whole, in plain values.
        notes: The same for people, a line each.
        grouped: Whether the JSON has the sentences of problems by kind, rather than one by one with counts.
    """

    source: str
    rule: str
    about: str
    splits: Mapping[str, Mapping[str, Any]]
    columns: Mapping[str, Cell]
    problems: tuple[Problem, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    grouped: bool = False

    def by_kind(self) -> dict[str, list[Problem]]:
        """The problems, gathered."""
        kinds: dict[str, list[Problem]] = {}
        for problem in self.problems:
            kinds.setdefault(problem.kind, []).append(problem)
        return kinds

    def as_json(self) -> dict[str, Any]:
        """The report as plain values."""
        kinds = self.by_kind()
        problems: dict[str, Any] = (
            {"problems": {kind: [problem.sentence for problem in found] for kind, found in kinds.items()}}
            if self.grouped
            else {
                "problems": [asdict(problem) for problem in self.problems],
                "counts": {kind: len(found) for kind, found in kinds.items()},
            }
        )
        splits = {name: dict(numbers) for name, numbers in self.splits.items()}
        return {"source": self.source, "rule": self.rule, "splits": splits, **self.facts, **problems}
