"""A data set whose examples are in memory already: for a task of your own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from sightline.data.dataset import ALL, STATED, Problem, digest_of, find_split, in_order, missing_split

__all__ = ["MemoryDataset"]


@dataclass(frozen=True, kw_only=True, eq=False)
class MemoryDataset:
    """Examples by split.

    Attributes:
        source: Where they come from, for people.
        examples: For each split its examples: rows of a tensor, or plain values.
        layout, rule, problems: As every data set has them.

    Example:
        >>> animals = MemoryDataset(source="animals", examples={"train": ["dog", "cat"], "val": ["owl"]})
        >>> animals.splits(), animals.split("validation")
        ({'train': 2, 'val': 1}, ['owl'])
    """

    source: str
    examples: Mapping[str, Sequence[Any] | Tensor]
    layout: str = "memory"
    rule: str = STATED
    problems: Sequence[Problem] = ()

    def splits(self) -> dict[str, int]:
        """How many examples each split has: train, val and test first."""
        return in_order({name: len(examples) for name, examples in self.examples.items()})

    def split(self, name: str) -> Any:
        """The examples of a split; ``all`` is a list of every one.

        Raises:
            ValueError: If there is none of that name.
        """
        if name == ALL:
            return [example for split in self.splits() for example in self.examples[split]]
        found = find_split(name, self.examples)
        if found is None:
            raise missing_split(name, self.splits(), self.source)
        return self.examples[found]

    def digest(self) -> str:
        """Names the examples of train and val: a run only resumes with the same."""
        rows = (row for name in ("train", "val") for row in self.split(name))
        return digest_of([row.tolist() if isinstance(row, Tensor) else row] for row in rows)
