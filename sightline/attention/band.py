"""Limits on the distance between a query and a key: what causal masks and windows are made of."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from sightline.shapes import Bool, Float, Int

__all__ = ["Align", "Band", "check_align", "intersect"]

Align = Literal["end", "start"]  # whether the last query stands at the last key, or the first at the first


@dataclass(frozen=True)
class Band:
    """Keys at most ``left`` positions behind a query and at most ``right`` ahead; None is no limit."""

    left: int | None
    right: int | None
    align: Align = "end"

    def _shift(self, t: int, s: int) -> int:
        """Where among the keys the first query stands."""
        return s - t if self.align == "end" else 0

    def clipped(self, t: int, s: int) -> "Band":
        """The same band without the limits that T queries and S keys can't reach."""
        shift = self._shift(t, s)
        left = None if self.left is not None and self.left >= t - 1 + shift else self.left
        right = None if self.right is not None and self.right >= s - 1 - shift else self.right
        return Band(left, right, self.align)

    def keys(self, queries: tuple[int, int], t: int, s: int) -> tuple[int, int]:
        """The range of keys that at least one of these queries may look at."""
        shift = self._shift(t, s)
        first = 0 if self.left is None else max(0, queries[0] + shift - self.left)
        last = s if self.right is None else min(s, queries[1] + shift + self.right)
        return first, max(first, last)

    def keys_of_all(self, queries: tuple[int, int], t: int, s: int) -> tuple[int, int]:
        """The range of keys that every one of these queries may look at."""
        shift = self._shift(t, s)
        first = 0 if self.left is None else max(0, queries[1] - 1 + shift - self.left)
        last = s if self.right is None else min(s, queries[0] + shift + self.right + 1)
        return first, max(first, last)

    def allows(
        self, queries: Int[Tensor, " t"], keys: Int[Tensor, " s"], t: int, s: int
    ) -> Bool[Tensor, "t s"]:
        """Whether each query position may look at each key position."""
        ahead = keys[None, :] - queries[:, None] - self._shift(t, s)
        allowed = torch.ones_like(ahead, dtype=torch.bool)
        if self.left is not None:
            allowed &= ahead >= -self.left
        if self.right is not None:
            allowed &= ahead <= self.right
        return allowed

    def zero_outside(
        self, x: Float[Tensor, "n q k"], queries: tuple[int, int], keys: tuple[int, int], t: int, s: int
    ) -> None:
        """Write zeros, in place, where these queries may not look at these keys."""
        first = queries[0] + self._shift(t, s) - keys[0]
        if self.right is not None:
            x.tril_(first + self.right)
        if self.left is not None:
            x.triu_(first - self.left)


def check_align(align: Any) -> Align:
    """One of the two ways to line up, or the sentence that names them."""
    known: Align
    for known in ("end", "start"):
        if isinstance(align, str) and align == known:
            return known
    raise ValueError(f"align must be 'end' (the cache's rule) or 'start' (torch's), got {align!r}")


def intersect(bands: tuple[Band, ...]) -> tuple[Band, ...]:
    """Merge the bands that are lined up the same way: at most one is left of each kind."""
    merged = []
    for align in ("end", "start"):
        same = [band for band in bands if band.align == align]
        if same:
            left = [band.left for band in same if band.left is not None]
            right = [band.right for band in same if band.right is not None]
            merged.append(Band(min(left) if left else None, min(right) if right else None, align))
    return tuple(merged)
