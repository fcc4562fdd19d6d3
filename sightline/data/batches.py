"""Which examples go together, how they are padded, and reading them ahead of their use.

Every order is a function of (seed, epoch) alone, so that a run that was stopped in the middle of an epoch
finds its place again.
"""

import hashlib
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar

import torch
from torch import Tensor

from sightline.shapes import Int

__all__ = ["batches_by_length", "pad", "prefetch", "seed_of", "shuffled_batches"]

_I = TypeVar("_I")
_B = TypeVar("_B")


def seed_of(*parts: int | str) -> int:
    """One seed of several numbers and names; other parts give another, unrelated seed.

    Example:
        >>> seed_of(0, "augment", 3) == seed_of(0, "augment", 3)
        True
        >>> seed_of(0, "augment", 3) == seed_of(0, "augment", 4)
        False
    """
    text = "\x1f".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def shuffled_batches(n: int, batch_size: int, seed: int, epoch: int) -> list[list[int]]:
    """All of ``range(n)`` in batches, in an order of the epoch's own; the last batch may be smaller.

    Example:
        >>> batches = shuffled_batches(5, 2, seed=0, epoch=0)
        >>> [len(batch) for batch in batches], sorted(sum(batches, []))
        ([2, 2, 1], [0, 1, 2, 3, 4])

    Raises:
        ValueError: If there is nothing to batch, or the batch size is not positive.
    """
    _check(n, "batch_size", batch_size)
    order: list[int] = torch.randperm(n, generator=_generator(seed, epoch)).tolist()
    return [order[i : i + batch_size] for i in range(0, n, batch_size)]


def batches_by_length(lengths: Sequence[int], max_tokens: int, seed: int, epoch: int) -> list[list[int]]:
    """Batches of examples of like length, none of which holds more than ``max_tokens`` when padded.

    Examples are sorted by length, ties and near ties in an order of the epoch's own, cut into batches, and
    the batches shuffled. An example longer than ``max_tokens`` is a batch by itself.

    Args:
        lengths: The length of each example, in tokens.
        max_tokens: The most of (longest length x examples) in a batch.
        seed, epoch: What the order is a function of.

    Example:
        >>> batches = batches_by_length([3, 9, 3, 9, 3], max_tokens=18, seed=0, epoch=0)
        >>> sorted(sorted(batch) for batch in batches)
        [[0, 2, 4], [1, 3]]

    Raises:
        ValueError: If there is nothing to batch, or ``max_tokens`` is not positive.
    """
    _check(len(lengths), "max_tokens", max_tokens)
    generator = _generator(seed, epoch)
    jitter: list[float] = torch.rand(len(lengths), generator=generator).tolist()
    # Noise of up to a tenth of the length: neighbours change from epoch to epoch, padding hardly grows.
    order = sorted(range(len(lengths)), key=lambda i: lengths[i] * (1 + 0.1 * jitter[i]) + jitter[i])
    batches: list[list[int]] = [[]]
    longest = 0
    for i in order:
        longest = max(longest, lengths[i])
        if batches[-1] and longest * (len(batches[-1]) + 1) > max_tokens:
            batches.append([])
            longest = lengths[i]
        batches[-1].append(i)
    shuffle: list[int] = torch.randperm(len(batches), generator=generator).tolist()
    return [batches[i] for i in shuffle]


def pad(rows: Sequence[Sequence[int]], *, value: int = 0, length: int | None = None) -> Int[Tensor, "B T"]:
    """Rows of ids side by side, the shorter ones filled up at the end.

    Args:
        rows: At least one row; each a list of ids.
        value: Fills up; 0 is the tokenizers' PAD.
        length: How long to make them; None for the longest row.

    Example:
        >>> pad([[5, 6, 7], [8]])
        tensor([[5, 6, 7],
                [8, 0, 0]])
    """
    longest = max(map(len, rows)) if length is None else length
    flat = [[*row, *[value] * (longest - len(row))] for row in rows]
    return torch.tensor(flat, dtype=torch.long).reshape(len(rows), longest)


@contextmanager
def prefetch(
    load: Callable[[_I], _B], items: Iterable[_I], *, threads: int = 2, depth: int = 4
) -> Generator[Iterator[_B], None, None]:
    """Load items in threads ahead of their use, and hand them out in order.

    What ``load`` raises is raised where its item would have been handed out. After the block no thread is
    left, whatever ended it.

    Args:
        load: Makes a batch of an item.
        items: What to load, in order; taken from one at a time.
        threads: How many load at once; 0 loads in the caller's own thread, when asked.
        depth: How many are loaded or being loaded ahead.

    Example:
        >>> with prefetch(lambda n: n * n, range(5)) as squares:
        ...     print(list(squares))
        [0, 1, 4, 9, 16]
    """
    if threads == 0:
        yield map(load, items)
        return
    pool = ThreadPoolExecutor(threads, thread_name_prefix="ahead")
    waiting: deque[Future[_B]] = deque()
    source = iter(items)

    def loaded() -> Iterator[_B]:
        waiting.extend(pool.submit(load, item) for item in islice(source, max(depth, threads)))
        while waiting:
            batch = waiting.popleft().result()
            waiting.extend(pool.submit(load, item) for item in islice(source, 1))
            yield batch

    try:
        yield loaded()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _generator(seed: int, epoch: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed_of("order", seed, epoch))


def _check(n: int, name: str, size: int) -> None:
    if n < 1:
        raise ValueError(f"batches need at least 1 example, got {n}; is the split empty?")
    if size < 1:
        raise ValueError(f"{name} must be at least 1, got {size}")
