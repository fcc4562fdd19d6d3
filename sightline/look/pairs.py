"""Queries and keys brought together: any rectangle of their scores can be had, none is kept."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from sightline.attention.masks import Mask
from sightline.attention.scores import Score
from sightline.shapes import Float


class Tile(NamedTuple):
    """Some items of the batch, some heads, some queries, and some keys."""

    batch: slice
    heads: slice
    rows: tuple[int, int]
    columns: tuple[int, int]

    @property
    def at_rows(self) -> tuple[slice, slice, slice]:
        """Where the tile's queries stand in a ``(B, H, T)`` tensor."""
        return self.batch, self.heads, slice(*self.rows)

    @property
    def at_columns(self) -> tuple[slice, slice, slice]:
        """Where its keys stand in a ``(B, H, S)`` tensor."""
        return self.batch, self.heads, slice(*self.columns)


@dataclass(frozen=True, eq=False)
class Pairs:
    """What weights are made of.

    Attributes:
        q: Queries.
        k: Keys; a head of them may serve several of q.
        mask: Fitted to ``(B, H, T, S)``.
        scale: Multiplies the scores.
        score: What matches q and k when it is no dot product.
    """

    q: Float[Tensor, "B H T Dq"]
    k: Float[Tensor, "B Hkv S Dk"]
    mask: Mask
    scale: float
    score: Score | None = None

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(B, H, T, S)."""
        b, h, t = self.q.shape[:3]
        return b, h, t, self.k.size(2)

    @property
    def dtype(self) -> torch.dtype:
        """What statistics are computed in: half precision only rounds the inputs."""
        return torch.float64 if self.q.dtype == torch.float64 else torch.float32

    @property
    def requires_grad(self) -> bool:
        """Whether statistics should be differentiable."""
        parameters = () if self.score is None else tuple(self.score.parameters())
        return torch.is_grad_enabled() and any(
            x.requires_grad for x in (self.q, self.k, *self.mask.added, *parameters)
        )

    def detached(self) -> "Pairs":
        """The same without its history."""
        added = tuple(x.detach() for x in self.mask.added)
        return replace(self, q=self.q.detach(), k=self.k.detach(), mask=replace(self.mask, added=added))

    def to(self, device: torch.device | str) -> "Pairs":
        """The same on another device."""
        tensors = (
            tuple(x.to(device) for x in xs) for xs in (self.mask.lengths, self.mask.allowed, self.mask.added)
        )
        mask = Mask(self.mask.bands, *tensors)
        score = None if self.score is None else copy.deepcopy(self.score).to(device)
        return replace(self, q=self.q.to(device), k=self.k.to(device), mask=mask, score=score)

    def select(self, batch: list[int], heads: list[int]) -> "Pairs":
        """These items of the batch and these heads."""
        group = self.q.size(1) // self.k.size(1)
        kv_heads = [head // group for head in heads]

        def cut(x: Tensor) -> Tensor:
            x = x[places(batch)] if x.size(0) != 1 else x
            return x[:, places(heads)] if x.size(1) != 1 else x

        tensors = (tuple(map(cut, xs)) for xs in (self.mask.lengths, self.mask.allowed, self.mask.added))
        q, k = self.q[places(batch)][:, places(heads)], self.k[places(batch)][:, places(kv_heads)]
        return replace(self, q=q, k=k, mask=Mask(self.mask.bands, *tensors))

    @property
    def nbytes(self) -> int:
        """What keeping it costs, if nobody else holds on to it."""
        return sum(x.nbytes for x in (self.q, self.k, *self.mask.tensors))

    def scores(self, tile: Tile) -> Float[Tensor, "b h t s"]:
        """The scores of a tile, -inf where a query may not look."""
        group = self.q.size(1) // self.k.size(1)
        kv_heads = slice(tile.heads.start // group, -(-tile.heads.stop // group))
        q, k = self.q[tile.at_rows], self.k[tile.batch, kv_heads, slice(*tile.columns)]
        if self.score is not None:
            scores = self.score(q, k.repeat_interleave(group, 1)).to(self.dtype) * self.scale
        else:  # the heads that share their keys are rows of one product
            q, k = q.to(self.dtype), k.to(self.dtype)
            shared = (q * self.scale).reshape(q.size(0), k.size(1), -1, q.size(-1))
            with torch.autocast(q.device.type, enabled=False):
                scores = (shared @ k.mT).view(*q.shape[:3], k.size(2))
        if not self.is_cut(tile):
            return scores
        block = self.mask.block(tile.rows, tile.columns, *self.shape[2:], device=q.device)
        if block.dim() == 4:
            block = block[tile.batch] if block.size(0) != 1 else block
            block = block[:, tile.heads] if block.size(1) != 1 else block
        if block.dtype == torch.bool:
            return scores.masked_fill_(~block, -torch.inf)
        return scores.add_(block)

    def is_cut(self, tile: Tile) -> bool:
        """Whether the mask forbids or tilts anything in a tile, as far as positions tell."""
        t, s = self.shape[2:]
        whole = all(band.allows_all(tile.rows, tile.columns, t, s) for band in self.mask.bands)
        return bool(self.mask.tensors) or not whole

    def tiles(
        self, size: int, queries: tuple[int, int] | None = None, keys: tuple[int, int] | None = None
    ) -> Iterator[Tile]:
        """Cut the pairs into tiles of about ``size``, each with all the keys that it may look at.

        Args:
            size: How many pairs a tile should hold.
            queries, keys: Look at these only.
        """
        b, h, t, s = self.shape
        top, bottom = queries or (0, t)
        left, right = keys or (0, s)
        group = h // self.k.size(1)
        row = max(1, right - left)
        rows = min(max(1, bottom - top), max(1, size // (row * group)))
        heads = min(h, group * max(1, size // (row * rows * group)))
        items = max(1, size // (row * rows * h)) if heads == h else 1
        for item in range(0, b, items):
            for head in range(0, h, heads):
                for first in range(top, bottom, rows):
                    span = (first, min(first + rows, bottom))
                    low, high = self.mask.keys(span, t, s)
                    columns = (max(low, left), max(low, left, min(high, right)))
                    yield Tile(
                        slice(item, min(item + items, b)), slice(head, min(head + heads, h)), span, columns
                    )


class WeightRows(Pairs):
    """Rows of weights that are kept as they are: for a few queries that is less than their keys.

    They stand where q stands; their logarithms are scores whose log-sum-exp is zero.
    """

    def scores(self, tile: Tile) -> Float[Tensor, "b h t s"]:
        """The logarithms of the kept weights."""
        return self.q[tile.at_rows][..., slice(*tile.columns)].log()

    def is_cut(self, tile: Tile) -> bool:  # noqa: ARG002
        """Some weights may be zero."""
        return True


def places(index: list[int]) -> slice | list[int]:
    """An index that copies nothing, where the places follow each other."""
    follow = bool(index) and index == list(range(index[0], index[-1] + 1))
    return slice(index[0], index[-1] + 1) if follow else index
