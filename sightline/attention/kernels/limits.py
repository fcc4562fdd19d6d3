"""A mask as a kernel reads it: two limits on the distance, a length, and at most two tensors.

    allowed(t, s)  =  low <= s - t <= high   and   s < length   and   allowed[t, s]
    score(t, s)    =  scale score(q, k) + added[t, s]

Every :class:`~sightline.attention.masks.Mask` fits, since bands intersect, lengths have a minimum, boolean
tensors an "and" and float tensors a sum. Size-one dimensions are strides of zero: nothing is expanded.
"""

import functools
from typing import NamedTuple

import torch
from torch import Tensor

from sightline.attention.masks import Mask
from sightline.shapes import Shaped

NO_LIMIT = 1 << 30


class Limits(NamedTuple):
    """What a kernel needs to know of a mask fitted to (B, H, T, S).

    Attributes:
        low, high: The least and the largest s - t that may look; ``NO_LIMIT`` away where there is none.
        lengths: How many keys are real, ``(B, H)`` by strides.
        allowed: True where a query may look, ``(B, H, T, S)`` by strides.
        added: What is added to the scores, likewise.
    """

    low: int
    high: int
    lengths: Tensor | None
    allowed: Tensor | None
    added: Tensor | None


def limits_of(mask: Mask, shape: tuple[int, int, int, int]) -> Limits:
    """Read a fitted mask.

    Example:
        >>> from sightline.attention.masks import causal, window
        >>> limits_of((causal() & window(3, None)).fitted((1, 1), 5, 7), (1, 1, 5, 7))[:2]
        (-1, 2)
    """
    b, h, t, s = shape
    low, high = -NO_LIMIT, NO_LIMIT
    for band in mask.bands:
        shift = s - t if band.align == "end" else 0
        low = low if band.left is None else max(low, shift - band.left)
        high = high if band.right is None else min(high, shift + band.right)
    lengths = functools.reduce(torch.minimum, mask.lengths) if mask.lengths else None
    if lengths is not None:
        lengths = lengths.reshape(lengths.shape[:2]).expand(b, h)
    allowed = functools.reduce(torch.logical_and, mask.allowed) if mask.allowed else None
    added = functools.reduce(torch.add, mask.added) if mask.added else None
    return Limits(low, high, lengths, _expanded(allowed, shape), _expanded(added, shape))


def window_of(limits: Limits, queries: tuple[int, int], keys: tuple[int, int]) -> Limits:
    """The same for some of the queries and some of the keys, which then count from zero."""
    moved = keys[0] - queries[0]
    lengths = None if limits.lengths is None else limits.lengths - keys[0]
    at = (slice(None), slice(None), slice(*queries), slice(*keys))
    return Limits(
        limits.low - moved,
        limits.high - moved,
        lengths,
        None if limits.allowed is None else limits.allowed[at],
        None if limits.added is None else limits.added[at],
    )


def _expanded(x: Shaped[Tensor, "..."] | None, shape: tuple[int, ...]) -> Tensor | None:
    return None if x is None else x.expand(shape)
