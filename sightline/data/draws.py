"""Random numbers that are a function of their place: the same for (seed, epoch, index) on every device.

Each number is a hash (SplitMix64) of where it is used, so nothing has to be drawn in order: a run that was
stopped goes on with the same numbers, and an example gets the same ones in whichever batch, process or
order it comes.
"""

import torch
from torch import Tensor

from sightline.shapes import Float, Int

__all__ = ["below", "uniform"]

_GOLDEN, _FIRST, _SECOND = (
    x - (1 << 64) if x >> 63 else x for x in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)  # int64 holds them as negative numbers and wraps around as unsigned ones would


def uniform(
    seed: int, epoch: int | Int[Tensor, ""], indices: Int[Tensor, " B"], n: int, *, stream: int = 0
) -> Float[Tensor, "B n"]:
    """Draw ``n`` numbers in [0, 1) for each example.

    Args:
        seed, epoch: Of the run; the epoch may be a tensor, so that a device need not wait for the host.
        indices: Of the examples.
        n: How many for each.
        stream: Tells uses apart that must not see the same numbers.

    Example:
        >>> whole = uniform(0, 3, torch.arange(5), 2)
        >>> torch.equal(uniform(0, 3, torch.tensor([4, 1]), 2), whole[[4, 1]])
        True
    """
    bits = _shifted(_hashed(seed, epoch, indices, n, stream), 40)  # 24 bits, what a float32 holds
    return bits.float() / (1 << 24)


def below(
    most: int, seed: int, epoch: int | Int[Tensor, ""], indices: Int[Tensor, " B"], *, stream: int = 0
) -> Int[Tensor, " B"]:
    """Draw a whole number in ``0 .. most - 1`` for each example.

    Example:
        >>> draws = below(3, 0, 0, torch.arange(100))
        >>> sorted(set(draws.tolist()))
        [0, 1, 2]
    """
    return _shifted(_hashed(seed, epoch, indices, 1, stream)[:, 0], 1) % most


def _hashed(seed: int, epoch: int | Tensor, indices: Tensor, n: int, stream: int) -> Int[Tensor, "B n"]:
    key = torch.full((), seed % (1 << 62), dtype=torch.long, device=indices.device)
    key = _mixed(_mixed(_mixed(key) ^ stream) ^ epoch)
    place = torch.arange(n, device=indices.device)
    return _mixed(_mixed(key ^ indices)[:, None] ^ place)


def _mixed(x: Int[Tensor, "..."]) -> Int[Tensor, "..."]:
    """SplitMix64's step: every bit of the result depends on every bit of x."""
    x = x + _GOLDEN
    x = (x ^ _shifted(x, 30)) * _FIRST
    x = (x ^ _shifted(x, 27)) * _SECOND
    return x ^ _shifted(x, 31)


def _shifted(x: Int[Tensor, "..."], by: int) -> Int[Tensor, "..."]:
    """Shift right and fill with zeros, as unsigned numbers do."""
    return (x >> by) & ((1 << (64 - by)) - 1)
