"""The order of examples that lie in shards: shuffled through a bounded buffer, so that reading stays local.

Shards are cut into blocks, some megabytes that lie one after the other. The blocks are put in an order of the
epoch's own, a buffer takes as many of them as it holds, and the examples in the buffer are shuffled. All of
that is done with numbers, before anything is read: every process knows the whole order, whatever its share,
and a run that was stopped finds its place again. A set that fits into the buffer is shuffled as a whole, in
the very order that a folder of the same examples has.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

from sightline.data.batches import seed_of, shuffled_batches
from sightline.data.counter_rng import Ints, hashed_integers

__all__ = ["BUFFER_BYTES", "BatchPlan", "Blocks", "blocks_of", "streamed_batches"]

BUFFER_BYTES = 1 << 28  # of the examples that are shuffled among each other


@dataclass(frozen=True, eq=False)
class Blocks:
    """Runs of examples that lie together.

    Attributes:
        starts: The first example of each, and one past the last.
        sizes: Bytes of each, as they lie in their shards.
    """

    starts: Ints
    sizes: Ints

    def __len__(self) -> int:
        """How many examples there are."""
        return int(self.starts[-1])

    @property
    def fit(self) -> bool:
        """Whether all of them go into the buffer."""
        return int(self.sizes.sum()) <= BUFFER_BYTES

    def buffers(self, seed: int, epoch: int) -> Iterator[Ints]:
        """The examples of each filling of the buffer, block by block; every example once.

        Example:
            >>> blocks = Blocks(np.array([0, 2, 4, 6]), np.array([BUFFER_BYTES // 2] * 3))
            >>> sorted(len(buffer) for buffer in blocks.buffers(0, 0))
            [2, 4]
        """
        order = _shuffled(len(self.sizes), "blocks", seed, epoch)
        filling: list[Ints] = []
        held = 0
        for block in order.tolist():
            size = int(self.sizes[block])
            if filling and held + size > BUFFER_BYTES:
                yield np.concatenate(filling)
                filling, held = [], 0
            filling.append(np.arange(self.starts[block], self.starts[block + 1]))
            held += size
        if filling:
            yield np.concatenate(filling)


def blocks_of(examples: object) -> Blocks | None:
    """How the examples of a split lie in shards; None where they are in memory, or in files of their own."""
    blocks = getattr(examples, "blocks", None)
    return blocks if isinstance(blocks, Blocks) else None


class BatchPlan(Sequence[Any]):
    """The batches of an epoch as one array, 8 bytes an example.

    Args:
        order: All examples.
        ends: Where each batch ends.

    Example:
        >>> plan = BatchPlan(np.arange(5), np.array([2, 4, 5]))
        >>> list(plan), list(plan[1:]), len(plan)
        ([[0, 1], [2, 3], [4]], [[2, 3], [4]], 3)
    """

    def __init__(self, order: Ints, ends: Ints, first: int = 0) -> None:
        self._order, self._ends, self._first = order, ends, first

    def __len__(self) -> int:
        """How many batches."""
        return len(self._ends)

    @overload
    def __getitem__(self, index: int) -> list[int]: ...
    @overload
    def __getitem__(self, index: slice) -> "BatchPlan": ...
    def __getitem__(self, index: int | slice) -> "list[int] | BatchPlan":
        """One batch, or the batches of a slice without steps."""
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                raise ValueError(f"batches are cut without steps, got step {step}")
            return BatchPlan(self._order, self._ends[start:stop], self._start(start))
        if not -len(self) <= index < len(self):
            raise IndexError(f"there are {len(self)} batches, got number {index}")
        index %= len(self)
        batch: list[int] = self._order[self._start(index) : self._ends[index]].tolist()
        return batch

    def _start(self, index: int) -> int:
        return int(self._ends[index - 1]) if index else self._first


def streamed_batches(
    n: int, batch_size: int, seed: int, epoch: int, blocks: Blocks | None
) -> Sequence[Sequence[int]]:
    """As :func:`~sightline.data.batches.shuffled_batches`, buffer by buffer where examples lie in shards.

    Args:
        n: How many examples there are.
        batch_size: How many go together.
        seed, epoch: What the order is a function of.
        blocks: How they lie; None where they do not lie in shards.

    Example:
        >>> blocks = Blocks(np.array([0, 3, 6]), np.array([BUFFER_BYTES, BUFFER_BYTES]))
        >>> plan = streamed_batches(6, 3, seed=0, epoch=0, blocks=blocks)
        >>> sorted(sorted(batch) for batch in plan)
        [[0, 1, 2], [3, 4, 5]]
    """
    if blocks is None or blocks.fit or batch_size < 1 or n < 1:
        return shuffled_batches(n, batch_size, seed, epoch)
    order = [
        buffer[_shuffled(len(buffer), "buffer", seed, epoch, number)]
        for number, buffer in enumerate(blocks.buffers(seed, epoch))
    ]
    ends = np.minimum(np.arange(1, -(-n // batch_size) + 1) * batch_size, n)
    return BatchPlan(np.concatenate(order), ends)


def _shuffled(n: int, *key: int | str) -> Ints:
    """The numbers below n in an order that the key alone decides, on every machine."""
    return np.argsort(hashed_integers(np.arange(n, dtype=np.int64), seed_of(*key)), kind="stable")
