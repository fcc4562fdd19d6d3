"""The examples of a split that lie in shards: each is read when it is asked for."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TypeVar, overload

from sightline.data.counter_rng import Ints
from sightline.data.shard_order import Blocks
from sightline.data.shards import Shards

__all__ = ["ShardExamples"]

_Example = TypeVar("_Example")


class ShardExamples(Sequence[_Example]):
    """Some examples, unread.

    Args:
        shards: Where they lie.
        numbers: Which of them, in order.
        read: Reads one by its number.
    """

    def __init__(self, shards: Shards, numbers: Ints, read: Callable[[int], _Example]) -> None:
        self._shards, self._numbers, self._read = shards, numbers, read

    @cached_property
    def blocks(self) -> Blocks:
        """How they lie in the shards."""
        return self._shards.blocks(self._numbers)

    def __len__(self) -> int:
        """How many there are."""
        return len(self._numbers)

    @overload
    def __getitem__(self, index: int) -> _Example: ...
    @overload
    def __getitem__(self, index: slice) -> "ShardExamples[_Example]": ...
    def __getitem__(self, index: int | slice) -> "_Example | ShardExamples[_Example]":
        """One example, or those of a slice, still unread."""
        if isinstance(index, slice):
            return type(self)(self._shards, self._numbers[index], self._read)
        return self._read(int(self._numbers[index]))
