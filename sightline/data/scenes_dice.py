"""Dice that fall the same on every machine and under every version: a hash of (seed, stream, index, throw).

Generators may change their streams between versions, and what a logarithm or a sine rounds to depends on
the machine. So a throw is SplitMix64's mixing function of a counter, whole numbers all the way; scene ``i``
is the same whether a hundred or a million are drawn, one by one or all at once.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Dice", "Floats", "Ints"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def _mixed(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """SplitMix64's finaliser: every bit of the input turns every bit of the output with even odds."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


class Dice:
    """One cup of dice for each index; each throw of a method throws them all, once.

    Example:
        >>> all(Dice(0, "test", range(3, 6)).below(100) == Dice(0, "test", range(9)).below(100)[3:6])
        True
    """

    def __init__(self, seed: int, stream: str, indices: Any) -> None:
        start = seed & _MASK
        for letter in stream.encode():
            start = (start * 0x100000001B3 + letter + 1) & _MASK
        cups = np.asarray(indices, dtype=np.uint64)
        self._cups = _mixed(_mixed(cups * np.uint64(_GOLDEN) + np.uint64(start)) + np.uint64(seed & _MASK))
        self._throws = 0

    def __len__(self) -> int:
        return len(self._cups)

    def _bits(self, n: int) -> npt.NDArray[np.uint64]:
        """``n`` new words of 64 bits for each index, (len(self), n)."""
        counters = np.arange(self._throws + 1, self._throws + n + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
        self._throws += n
        return _mixed(self._cups[:, None] + counters)

    def below(self, n: int) -> Ints:
        """Whole numbers from 0 to ``n - 1``, all as likely."""
        return ((self._bits(1)[:, 0] >> np.uint64(32)) * np.uint64(n) >> np.uint64(32)).astype(np.int64)

    def between(self, low: float, high: float) -> Floats:
        """Numbers of a fine grid from ``low`` to ``high``."""
        return (low + self.below(1025) * ((high - low) / 1024)).astype(np.float32)

    def chance(self, percent: int) -> npt.NDArray[np.bool_]:
        """True so many times in a hundred."""
        return self.below(100) < percent

    def order(self, n: int) -> Ints:
        """The numbers 0 to ``n - 1`` shuffled, (len(self), n)."""
        return np.argsort(self._bits(n), axis=1, kind="stable").astype(np.int64)

    def grain(self, n: int) -> npt.NDArray[np.int8]:
        """Noise between -15 and 15, most of it near 0 (the sum of two dice), (len(self), n)."""
        words = self._bits(-(-n // 8)).astype("<u8")  # eight bytes a word, in the same order everywhere
        grains = words.view(np.uint8)[:, :n]
        return ((grains >> 4) + (grains & 15)).astype(np.int8) - np.int8(15)
