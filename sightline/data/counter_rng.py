"""Random numbers that are a function of where they are used: SplitMix64 of a counter, the same everywhere.

A generator's stream may change between versions, and must be drawn in order. Here each number is a hash of
its seed and its place, whole numbers all the way: the same on every machine and device, for an example in
whichever batch, process or order it comes, and after a run was stopped and resumed.

==================================  ==========================================================
``CounterRNG``                       numpy, one stream per index: the embedded sets are drawn by it
``random_uniform``                   torch, by (seed, epoch, index), on the indices' device
``random_integers``                  the same, whole numbers
``hashed_integers``                  numpy, one number per place
==================================  ==========================================================
"""

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sightline.shapes import Float, Int

__all__ = ["CounterRNG", "Floats", "Ints", "hashed_integers", "random_integers", "random_uniform"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
_Words = TypeVar("_Words", Tensor, Ints)

_MASK = (1 << 64) - 1


def _signed(x: int) -> int:
    """The int64 of the same 64 bits; it wraps around as unsigned numbers do."""
    return x - (1 << 64) if x >> 63 else x


_GOLDEN, _FIRST, _SECOND = map(_signed, (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


class CounterRNG:
    """One stream of random numbers per index; each call of a method draws from all of them.

    Args:
        seed: Any whole number.
        stream: Separates uses that must not see the same numbers.
        indices: Whole numbers from 0, one per stream.

    Example:
        >>> some, all_of_them = (CounterRNG(0, "test", x).integers(100) for x in (range(3, 6), range(9)))
        >>> bool((some == all_of_them[3:6]).all())
        True
    """

    def __init__(self, seed: int, stream: str, indices: Any) -> None:
        start = seed & _MASK
        for letter in stream.encode():
            start = (start * 0x100000001B3 + letter + 1) & _MASK
        keys: Ints = np.asarray(indices, dtype=np.int64) * _GOLDEN + _signed(start)
        self._keys = _mix(_mix(keys) + _signed(seed & _MASK))
        self._drawn = 0

    def __len__(self) -> int:
        return len(self._keys)

    def integers(self, n: int) -> Ints:
        """Whole numbers from 0 to ``n - 1``, all as likely, (len(self),)."""
        return _shift(_shift(self._bits(1)[:, 0], 32) * n, 32)

    def uniform(self, low: float, high: float) -> Floats:
        """Numbers of a fine grid from ``low`` to ``high``, (len(self),)."""
        return (low + self.integers(1025) * ((high - low) / 1024)).astype(np.float32)

    def bernoulli(self, percent: int) -> npt.NDArray[np.bool_]:
        """True so many times in a hundred, (len(self),)."""
        return self.integers(100) < percent

    def permutation(self, n: int) -> Ints:
        """The numbers 0 to ``n - 1`` shuffled, (len(self), n)."""
        return np.argsort(self._bits(n).view(np.uint64), axis=1, kind="stable").astype(np.int64)

    def noise(self, n: int) -> npt.NDArray[np.int8]:
        """Whole numbers between -15 and 15, most of them near 0 (the sum of two dice), (len(self), n)."""
        words = self._bits(-(-n // 8)).astype("<i8")  # eight bytes a word, in the same order everywhere
        sums = words.view(np.uint8)[:, :n]
        return ((sums >> 4) + (sums & 15)).astype(np.int8) - np.int8(15)

    def _bits(self, n: int) -> Ints:
        """``n`` new words of 64 bits per stream, (len(self), n)."""
        counters = np.arange(self._drawn + 1, self._drawn + n + 1, dtype=np.int64) * _GOLDEN
        self._drawn += n
        return _mix(self._keys[:, None] + counters)


def random_uniform(
    seed: int, epoch: int | Int[Tensor, ""], indices: Int[Tensor, " B"], n: int, *, stream: int = 0
) -> Float[Tensor, "B n"]:
    """Draw ``n`` numbers in [0, 1) per example.

    Args:
        seed, epoch: Of the run; the epoch may be a tensor, so that a device need not wait for the host.
        indices: Of the examples.
        n: How many per example.
        stream: Separates uses that must not see the same numbers.

    Example:
        >>> whole = random_uniform(0, 3, torch.arange(5), 2)
        >>> torch.equal(random_uniform(0, 3, torch.tensor([4, 1]), 2), whole[[4, 1]])
        True
    """
    bits = _shift(_hash(seed, epoch, indices, n, stream), 40)  # 24 bits, what a float32 holds
    return bits.float() / (1 << 24)


def random_integers(
    n: int, seed: int, epoch: int | Int[Tensor, ""], indices: Int[Tensor, " B"], *, stream: int = 0
) -> Int[Tensor, " B"]:
    """Draw a whole number in ``0 .. n - 1`` per example; arguments as for :func:`random_uniform`.

    Example:
        >>> drawn = random_integers(3, 0, 0, torch.arange(100))
        >>> sorted(set(drawn.tolist()))
        [0, 1, 2]
    """
    return _shift(_hash(seed, epoch, indices, 1, stream)[:, 0], 1) % n


def hashed_integers(places: Ints, seed: int) -> Ints:
    """A whole number from 0 to 2**63 - 1 per place."""
    return _shift(_mix(places + _signed(seed & _MASK)), 1)


def _hash(seed: int, epoch: int | Tensor, indices: Tensor, n: int, stream: int) -> Int[Tensor, "B n"]:
    key = torch.full((), seed % (1 << 62), dtype=torch.long, device=indices.device)
    for part in (stream, epoch, indices):
        key = _mix(key + _GOLDEN) ^ part
    key = _mix(key + _GOLDEN)[:, None] ^ torch.arange(n, device=indices.device)  # (B, n)
    return _mix(key + _GOLDEN)


def _mix(x: _Words) -> _Words:
    """SplitMix64's finaliser: each bit of x flips each bit of the result with even odds."""
    x = (x ^ _shift(x, 30)) * _FIRST
    x = (x ^ _shift(x, 27)) * _SECOND
    return x ^ _shift(x, 31)


def _shift(x: _Words, by: int) -> _Words:
    """Shift right and fill with zeros, as unsigned numbers do."""
    return (x >> by) & ((1 << (64 - by)) - 1)
