"""A data set whose examples are in memory already: for a task of your own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from sightline.messages import did_you_mean
from sightline.train.objective import digest_of

__all__ = ["MemoryDataset"]


@dataclass(frozen=True, kw_only=True, eq=False)
class MemoryDataset:
    """Examples by split.

    Attributes:
        source: Where they come from, for people.
        examples: For each split its examples: rows of a tensor, or plain values.

    Example:
        >>> animals = MemoryDataset(source="animals", examples={"train": ["dog", "cat"], "val": ["owl"]})
        >>> animals.splits(), animals.split("val")
        ({'train': 2, 'val': 1}, ['owl'])
    """

    source: str
    examples: Mapping[str, Sequence[Any] | Tensor]

    def splits(self) -> dict[str, int]:
        """How many examples each split has."""
        return {name: len(examples) for name, examples in self.examples.items()}

    def split(self, name: str) -> Sequence[Any] | Tensor:
        """The examples of a split.

        Raises:
            ValueError: If there is none of that name.
        """
        if name not in self.examples:
            raise ValueError(
                f"unknown split {name!r} of {self.source!r}, {did_you_mean(name, self.examples)}"
            )
        return self.examples[name]

    def digest(self) -> str:
        """Names the examples of train and val: a run only goes on with the same."""
        rows = (self.split(name) for name in ("train", "val"))
        return digest_of([row.tolist() if isinstance(row, Tensor) else row] for part in rows for row in part)
