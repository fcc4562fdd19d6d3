"""Beam search between two steps: the items of a cache are put into another order, some into several places.

    keys = keys.index_select(0, parents)                    # item i goes on from where item parents[i] was

So the rows of item i belong to the history of whichever item it came from. Selections are told from others by
their shape: as many items as the batch has, of a cache that is as long as the next call says.
"""

from typing import Any

import torch
from torch import Tensor

from sightline.shapes import Int

__all__ = ["SELECTIONS", "BeamReorderTracker"]

SELECTIONS = frozenset({torch.ops.aten.index_select.default, torch.ops.aten.index.Tensor})
_DIMENSIONS = 4  # (B, H, S, D), as caches are kept


class BeamReorderTracker:
    """The latest order of the items of each cache, and which modules have not heard of it yet."""

    def __init__(self) -> None:
        self._count = 0
        self._latest: dict[tuple[int, int], tuple[int, Tensor]] = {}  # by batch and length of the cache
        self._heard: dict[str, int] = {}  # the count at the last call of each module

    def note(self, func: Any, args: tuple[Any, ...]) -> None:
        """An operator has selected items of something; if it may be a cache, remember in which order."""
        x = args[0]
        if x.dim() != _DIMENSIONS or not x.is_floating_point():
            return
        if func is torch.ops.aten.index.Tensor:
            indices = args[1]
            if len(indices) != 1:
                return
            index = indices[0]
        elif args[1] == 0:
            index = args[2]
        else:
            return
        if index is None or index.dim() != 1 or index.dtype not in (torch.int64, torch.int32):
            return
        if index.numel() == x.size(0):
            self._count += 1
            self._latest[x.size(0), x.size(2)] = (self._count, index)

    def parents(self, name: str, batch: int, t: int, s: int) -> Int[Tensor, " B"] | None:
        """Which item of a module's last call each item of this one goes on from; None if the same one.

        Args:
            name: The module.
            batch: Its items.
            t, s: Its queries and keys: the cache had the keys before the queries, or room for all.
        """
        heard, self._heard[name] = self._heard.get(name), self._count
        if not heard and not self._latest:
            return None
        found = [self._latest.get((batch, length)) for length in {s - t, s}]
        count, index = max((x for x in found if x is not None), key=lambda x: x[0], default=(0, None))
        return None if heard is None or count <= heard else index
