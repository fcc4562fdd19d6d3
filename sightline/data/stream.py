"""The images of a split that fit no buffer, read one shard after the other by Hugging Face's ``datasets``.

The order of an epoch is that of ``IterableDataset.shuffle``: shards in an order of the epoch's own, up to
ten at a time, and a buffer of 256 MB from which examples are taken by chance. It is known when it is read: a
plan has places in it, and which example is at a place is found out with its image. Of several processes each
keeps the places that are its own (``split_dataset_by_node``), so that a batch has the same examples whatever
their number.
"""

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import torch.distributed as dist

from sightline.data.batches import seed_of
from sightline.data.counter_rng import Ints
from sightline.data.shard_readers import BUFFER_BYTES, Encoded, ShardReader
from sightline.data.shards import Shards
from sightline.untrusted import format_bytes, need

__all__ = ["Stream", "stream_of"]

_SHARDS = 10  # that are read at a time
_LEAST_AHEAD = 4  # batches that are loaded ahead, however few threads load them


class Stream:
    """The images of a split in an order of each epoch's own.

    Args:
        shards: Where they lie.
        numbers: Which of the examples, in order.
        batch_size: How many go together, of all processes.
        seed: Draws the orders.
        threads: How many may ask at a time.

    Raises:
        ImportError: If ``datasets`` is not installed; the sentence says how it is.
    """

    def __init__(
        self, shards: Shards, numbers: Ints, *, batch_size: int, seed: int, threads: int = 0
    ) -> None:
        size = shards.size(numbers)
        reading = f"streaming {format_bytes(size)} from {shards.source!r}"
        self._datasets = need("datasets", reading, "stream")
        self._distributed = need("datasets.distributed", reading, "stream")
        self._parts = shards.parts(numbers)
        self._n, self._batch_size, self._seed = len(numbers), batch_size, seed
        self._buffer = max(1, BUFFER_BYTES * self._n // max(1, size))
        at_once = max((part[0].read_at_once() for part in self._parts), default=1)
        self._n_open = min(_SHARDS, max(1, BUFFER_BYTES // max(1, at_once)))
        self._reach = batch_size * 2 * max(_LEAST_AHEAD, threads)  # as far as threads can be apart
        self._lock = threading.Lock()
        self._epoch = -1

    def __len__(self) -> int:
        """How many examples there are."""
        return self._n

    def plan(self) -> list[range]:
        """The batches of any epoch, as places in its order.

        Raises:
            ValueError: If the processes can't have equal shares of a batch.
        """
        size, world = self._batch_size, _process()[1]
        if size % world:
            raise ValueError(
                f"the processes have equal shares of each batch of a stream, got batch_size={size} for "
                f"{world} of them; choose a multiple of {world}"
            )
        return [range(i, min(i + size, self._n)) for i in range(0, self._n, size)]

    def read(self, places: Sequence[int], epoch: int) -> tuple[list[int], list[Encoded]]:
        """Which examples are at some places of an epoch's order, and their images.

        Threads may ask ahead of each other. What comes before the first place that is asked for is read and
        left; at a place of another process is any example.
        """
        rank, world = _process()
        with self._lock:
            if epoch != self._epoch:
                self._begin(epoch)
            found = [self._at(x // world) if x % world == rank else self._any() for x in places]
        return [one["index"] for one in found], [one["image"] for one in found]

    def _begin(self, epoch: int) -> None:
        self._epoch, self._next = epoch, 0
        self._held: dict[int, dict[str, Any]] = {}
        self._last: dict[str, Any] | None = None
        rows = self._datasets.IterableDataset.from_generator(_examples, gen_kwargs={"parts": self._parts})
        rows = rows.shuffle(
            seed=seed_of("stream", self._seed, epoch),
            buffer_size=self._buffer,
            max_buffer_input_shards=self._n_open,
        )
        rank, world = _process()
        if world > 1:
            rows = self._distributed.split_dataset_by_node(rows, rank, world, strategy="examples")
        self._rows = iter(rows)

    def _at(self, number: int) -> dict[str, Any]:
        """One of this process's own examples, which is asked for once; else the epoch is begun anew."""
        if number < self._next and number not in self._held:
            self._begin(self._epoch)
        while self._next <= number:
            self._pull()
        self._last = self._held.pop(number)
        return self._last

    def _any(self) -> dict[str, Any]:
        """One that this process has: it has no part in a batch, and what it learns there counts nothing."""
        if self._last is None:
            self._pull()
        return self._last or next(iter(self._held.values()))

    def _pull(self) -> None:
        self._held[self._next] = next(self._rows)
        self._held.pop(self._next - self._reach, None)
        self._next += 1


def stream_of(
    shards: Shards, numbers: Ints, *, batch_size: int, seed: int, threads: int = 0
) -> Stream | None:
    """The stream of a split; None where it is small enough to be read in any order."""
    if shards.size(numbers) <= BUFFER_BYTES:
        return None
    return Stream(shards, numbers, batch_size=batch_size, seed=seed, threads=threads)


def _examples(parts: list[tuple[ShardReader, str, Ints, int]]) -> Iterator[dict[str, Any]]:
    """The examples of some shards: the place of each in its split, and its image."""
    for shard, name, numbers, first in parts:
        for index, (i, image) in enumerate(zip(numbers, shard.images(numbers), strict=True), first):
            problem = f"the image '{name}/{i}' can't be read: {image}" if isinstance(image, str) else None
            yield {"index": index, "image": problem or image}


def _process() -> tuple[int, int]:
    """The number of this process, and how many there are."""
    there = dist.is_available() and dist.is_initialized()
    return (dist.get_rank(), dist.get_world_size()) if there else (0, 1)
