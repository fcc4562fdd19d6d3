"""Queries and keys brought together: any rectangle of their scores can be had, none is kept."""

import contextlib
import copy
import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sightline.attention.masks import Mask
from sightline.attention.scores import Score
from sightline.shapes import Bool, Float, autocasting

LOG2E = 1 / math.log(2)


class Tile(NamedTuple):
    """Some items of the batch, some heads, some queries, and some keys."""

    batch: slice
    heads: slice
    rows: tuple[int, int]
    columns: tuple[int, int]

    def is_all(self, shape: tuple[int, int, int, int]) -> bool:
        """Whether it is the only one: all of ``(B, H, T, S)``."""
        b, h, t, s = shape
        return self == (slice(0, b), slice(0, h), (0, t), (0, s))

    @property
    def row_index(self) -> tuple[slice, slice, slice]:
        """Where the tile's queries stand in a ``(B, H, T)`` tensor."""
        return self.batch, self.heads, slice(*self.rows)

    @property
    def column_index(self) -> tuple[slice, slice, slice]:
        """Where its keys stand in a ``(B, H, S)`` tensor."""
        return self.batch, self.heads, slice(*self.columns)


@dataclass(frozen=True, eq=False)
class ScoreModifier:
    """Changes scores by their positions: a soft cap, ALiBi, FlexAttention's functions.

    Attributes:
        function: Takes scores (b, h, t, s) and the positions of its items, heads, queries and keys, one
            vector each, and gives the scores in their place; -inf where a query may not look.
        batch, heads: Which items and heads of the call these are.
    """

    function: Callable[..., Tensor]
    batch: tuple[int, ...]
    heads: tuple[int, ...]

    def __call__(self, scores: Float[Tensor, "b h t s"], tile: Tile) -> Float[Tensor, "b h t s"]:
        """Change the scores of a tile."""
        positions = (
            torch.tensor(self.batch[tile.batch], device=scores.device),
            torch.tensor(self.heads[tile.heads], device=scores.device),
            torch.arange(*tile.rows, device=scores.device),
            torch.arange(*tile.columns, device=scores.device),
        )
        return self.function(scores, *positions)

    def select(self, batch: list[int], heads: list[int]) -> "ScoreModifier":
        """The same for some items and heads."""
        return replace(
            self, batch=tuple(self.batch[i] for i in batch), heads=tuple(self.heads[i] for i in heads)
        )


@dataclass(frozen=True, eq=False)
class ScoreInputs:
    """What weights are made of.

    Attributes:
        q: Queries.
        k: Keys; a head of them may serve several of q.
        mask: Fitted to ``(B, H, T, S)``.
        scale: Multiplies the scores.
        score: What matches q and k when it is no dot product.
        versions: How often q, k and what the score learns had been written to when they were kept.
        modify: Changes the scores before the mask.
        padding: True at queries that are padding: they count as queries that may look at nothing.
        sink: One score per head that takes part in the softmax and is no key: it takes a share of each row.
        is_trained: Whether gradients may flow into the parameters of ``score``, and of what modifies it.
    """

    q: Float[Tensor, "B H T Dq"]
    k: Float[Tensor, "B Hkv S Dk"]
    mask: Mask
    scale: float
    score: Score | None = None
    versions: tuple[int, ...] | None = None
    modify: ScoreModifier | None = None
    padding: Bool[Tensor, "B 1 T"] | None = None
    sink: Float[Tensor, "1 H 1"] | None = None
    is_trained: bool = True

    @functools.cached_property
    def shape(self) -> tuple[int, int, int, int]:
        """(B, H, T, S)."""
        b, h, t = self.q.shape[:3]
        return b, h, t, self.k.size(2)

    @functools.cached_property
    def dtype(self) -> torch.dtype:
        """What statistics are computed in: half precision only rounds the inputs."""
        return torch.float64 if self.q.dtype == torch.float64 else torch.float32

    @property
    def requires_grad(self) -> bool:
        """Whether statistics should be differentiable."""
        if not torch.is_grad_enabled():
            return False
        parameters = () if self.score is None or not self.is_trained else tuple(self.score.parameters())
        return any(
            x.requires_grad
            for x in (self.q, self.k, *self.mask.added, *parameters, self.sink)
            if x is not None
        )

    def with_versions(self) -> "ScoreInputs":
        """The same, remembering how often what it is made of has been written to so far."""
        return replace(self, versions=self._versions)

    @property
    def was_modified(self) -> bool:
        """Whether q, k or a parameter of the score have been written to since."""
        now = self._versions
        return self.versions is not None and now is not None and self.versions != now

    @property
    def _versions(self) -> tuple[int, ...] | None:
        """How often each has been written to; None where inference tensors don't count it."""
        tensors = (self.q, self.k, *(() if self.score is None else self.score.parameters()))
        return None if any(x.is_inference() for x in tensors) else tuple(x._version for x in tensors)  # noqa: SLF001

    def __getstate__(self) -> dict[str, Any]:
        """What is copied or sent: copies count who writes to them from zero."""
        known = None if self.versions is None else (-1,) if self.was_modified else (0,)
        return self.__dict__ | {"versions": known}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take a copy for as old as it is."""
        self.__dict__.update(state)
        if state["versions"] == (0,):
            self.__dict__["versions"] = self.with_versions().versions

    def countable(self) -> "ScoreInputs":
        """The same, with copies of inference tensors, which don't count who writes to them."""
        if not (self.q.is_inference() or self.k.is_inference()):
            return self
        q, k = (x.clone() if x.is_inference() else x for x in (self.q, self.k))
        return replace(self, q=q, k=k)

    def _with_versions_of(self, before: "ScoreInputs") -> "ScoreInputs":
        """A part or a copy of others, as old as they are."""
        return replace(self, versions=(-1,)) if before.was_modified else self.with_versions()

    def detached(self) -> "ScoreInputs":
        """The same without its history."""
        mask, sink = self.mask, None if self.sink is None else self.sink.detach()
        if mask.added:
            mask = replace(mask, added=tuple(x.detach() for x in mask.added))
        q, k = self.q.detach(), self.k.detach()
        return replace(self, q=q, k=k, mask=mask, sink=sink, is_trained=False)

    def to(self, device: torch.device | str) -> "ScoreInputs":
        """The same on another device."""
        tensors = (
            tuple(x.to(device) for x in xs) for xs in (self.mask.lengths, self.mask.allowed, self.mask.added)
        )
        mask = Mask(self.mask.bands, *tensors)
        score = None if self.score is None else copy.deepcopy(self.score).to(device)
        padding = None if self.padding is None else self.padding.to(device)
        sink = None if self.sink is None else self.sink.to(device)
        q, k = self.q.to(device), self.k.to(device)
        there = replace(self, q=q, k=k, mask=mask, score=score, padding=padding, sink=sink)
        return there._with_versions_of(self)  # noqa: SLF001

    def select(self, batch: list[int], heads: list[int]) -> "ScoreInputs":
        """These items of the batch and these heads."""
        group = self.q.size(1) // self.k.size(1)
        kv_heads = [head // group for head in heads]

        def select(x: Tensor) -> Tensor:
            x = x[as_index(batch)] if x.size(0) != 1 else x
            return x[:, as_index(heads)] if x.size(1) != 1 else x

        tensors = (tuple(map(select, xs)) for xs in (self.mask.lengths, self.mask.allowed, self.mask.added))
        q, k = self.q[as_index(batch)][:, as_index(heads)], self.k[as_index(batch)][:, as_index(kv_heads)]
        padding = None if self.padding is None else self.padding[as_index(batch)]
        modify = None if self.modify is None else self.modify.select(batch, heads)
        mask = Mask(self.mask.bands, *tensors)
        sink = None if self.sink is None else self.sink[:, as_index(heads)]
        part = replace(self, q=q, k=k, mask=mask, padding=padding, modify=modify, sink=sink)
        return part._with_versions_of(self)  # noqa: SLF001

    @property
    def may_forbid(self) -> bool:
        """Whether some queries may not look at some keys, as far as that can be told without numbers."""
        return self.mask.limits or self.modify is not None or self.padding is not None

    @property
    def nbytes(self) -> int:
        """What keeping it costs, if nobody else holds on to it."""
        return sum(x.nbytes for x in (self.q, self.k, *self.mask.tensors))

    @functools.cached_property
    def unit(self) -> float:
        """What scores are multiplied by for weights to be 2 ** score: log2 e, or 1 if that could overflow.

        A bias may be the least number that there is, which is finite; so may be what a function gives.
        """
        return LOG2E if self.score is None and self.modify is None and not self.mask.added else 1.0

    def scores(
        self,
        tile: Tile,
        out: Tensor | None = None,
        *,
        less: Float[Tensor, "b h t"] | None = None,
        unit: float = 1.0,
        masked: bool = True,
    ) -> Float[Tensor, "b h t s"]:
        """Return the scores of a tile, -inf where a query may not look.

        Args:
            tile: Which of them.
            out: Where to put them, if not into a new tensor.
            less: What to take off the scores of each query, in the unit of the scores.
            unit: What scores are multiplied by, 1 or that of :attr:`unit`.
            masked: Whether the mask is applied.
        """
        scores = self._products(tile, out, less if self.unit != 1.0 else None, unit)
        if self.modify is not None:
            with torch.set_grad_enabled(self.requires_grad):
                scores = self.modify(scores, tile)
        if masked:
            self._apply_mask(scores, tile)
        if out is not None and scores is not out:
            scores = out.copy_(scores)
        if less is not None and self.unit == 1.0:
            scores = scores.sub_(less.unsqueeze(-1))
        return scores

    def _products(
        self, tile: Tile, out: Tensor | None, less: Tensor | None, unit: float
    ) -> Float[Tensor, "b h t s"]:
        """Return scores before anything changes or forbids them."""
        group = self.q.size(1) // self.k.size(1)
        kv_heads = slice(tile.heads.start // group, -(-tile.heads.stop // group))
        q, k = self.q[tile.row_index], self.k[tile.batch, kv_heads, slice(*tile.columns)]
        if self.score is not None:
            with torch.set_grad_enabled(self.requires_grad):
                return self.score(q, k.repeat_interleave(group, 1)).to(self.dtype) * (self.scale * unit)
        n = q.size(0) * k.size(1)  # the heads that share their keys are rows of one product
        rows = (q.to(self.dtype) * (self.scale * unit)).reshape(n, -1, q.size(-1))
        keys = k.to(self.dtype).reshape(n, k.size(2), k.size(3)).mT
        product = None if out is None else out.view(n, rows.size(1), k.size(2))
        with torch.autocast(q.device.type, enabled=False) if autocasting(q) else contextlib.nullcontext():
            if less is None:
                product = torch.bmm(rows, keys, out=product)
            else:  # a pass less than a subtraction
                product = torch.baddbmm(less.neg().reshape(n, -1, 1), rows, keys, out=product)
        return product.view(*q.shape[:3], k.size(2)) if out is None else out

    def _apply_mask(self, scores: Tensor, tile: Tile) -> None:
        """Write -inf where a query may not look, and add what the mask adds."""
        for span in self._mask_spans(tile):
            part = scores[..., span[0] - tile.columns[0] : span[1] - tile.columns[0]]
            block = self.mask.block(tile.rows, span, *self.shape[2:], device=self.q.device)
            if block.dim() == 4:
                block = block[tile.batch] if block.size(0) != 1 else block
                block = block[:, tile.heads] if block.size(1) != 1 else block
            if block.dtype == torch.bool:
                part.masked_fill_(~block, -torch.inf)
            else:
                part.add_(block)
        if self.padding is not None:
            scores.masked_fill_(self.padding[tile.batch, :, slice(*tile.rows), None], -torch.inf)

    def widened(self) -> "ScoreInputs":
        """The same with q and k in the dtype of statistics, so that not every tile has to convert its own."""
        if self.score is not None or self.q.dtype == self.dtype:
            return self
        return replace(self, q=self.q.to(self.dtype), k=self.k.to(self.dtype))

    def log_rest(self, lse: Float[Tensor, "b h t"], tile: Tile) -> Float[Tensor, "b h t"]:
        """The logarithm of what a sink leaves to the keys of a tile; zero where there is none.

        Args:
            lse: The log-sum-exp of the scores alone, finite.
            tile: Which queries.
        """
        if self.sink is None:
            return torch.zeros_like(lse)
        return -torch.nn.functional.softplus(self.sink[:, tile.heads].to(lse.dtype) - lse)

    def masked_spans(self, tile: Tile) -> list[tuple[int, int]]:
        """The columns of a tile in which something is forbidden or tilted."""
        everywhere = self.modify is not None or self.padding is not None
        return [tile.columns] if everywhere else self._mask_spans(tile)

    def has_bands_alone(self, tile: Tile) -> bool:
        """Whether bands are all that forbids, and every query of a tile has something to look at."""
        return bool(self.mask.bands) and not self.may_have_empty_rows(tile)

    def zero_outside_bands(self, x: Float[Tensor, "b h t s"], tile: Tile) -> None:
        """Write zeros, in place, where the bands of the mask forbid a query of a tile to look."""
        for first, last in self._mask_spans(tile):
            part = x[..., first - tile.columns[0] : last - tile.columns[0]].flatten(0, 1)
            for band in self.mask.bands:
                band.zero_outside(part, tile.rows, (first, last), *self.shape[2:])

    def _mask_spans(self, tile: Tile) -> list[tuple[int, int]]:
        """Those in which the mask does it."""
        mask = self.mask
        if mask.lengths or mask.allowed or mask.added:
            return [tile.columns]
        if not mask.bands:
            return []
        left, right = first, last = tile.columns
        for band in self.mask.bands:
            low, high = band.keys_of_all(tile.rows, *self.shape[2:])
            first, last = max(first, low), min(last, high)
        if first >= last:
            return [tile.columns] if left < right else []
        return [span for span in ((left, first), (last, right)) if span[0] < span[1]]

    def may_have_empty_rows(self, tile: Tile | None = None) -> bool:
        """Whether some query of a tile, or of all, might have nothing to look at."""
        mask = self.mask
        if mask.lengths or mask.allowed or mask.added or len(mask.bands) > 1:
            return True
        if self.modify is not None or self.padding is not None:
            return True
        if not self.mask.bands:
            return self.k.size(2) == 0
        first, last = (0, self.q.size(2)) if tile is None else tile.rows
        ends = (first, first + 1), (last - 1, last)
        spans = (self.mask.keys(row, *self.shape[2:]) for row in ends)
        return any(first >= last for first, last in spans)

    def tiles(
        self,
        size: int,
        queries: tuple[int, int] | None = None,
        keys: tuple[int, int] | None = None,
        n_heads: int | None = None,
    ) -> Iterator[Tile]:
        """Cut the pairs into tiles of about ``size``, each with all the keys that it may look at.

        Args:
            size: How many pairs a tile should hold.
            queries, keys: Look at these only.
            n_heads: How many heads a tile has. Default: as many as fit.
        """
        b, h, t, s = self.shape
        top, bottom = queries or (0, t)
        left, right = keys or (0, s)
        group = n_heads or max(1, h // max(1, self.k.size(1)))  # there may be no head
        row = max(1, right - left)
        rows = min(max(1, bottom - top), max(1, size // (row * group)))
        if self.mask.bands:  # thin tiles follow the edge of a band, and skip what lies behind it
            rows = min(rows, max(64, (bottom - top) // 16))
        rows = _even_share(bottom - top, rows)
        heads = group * _even_share(h // group, size // (row * rows * group))
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


class PrecomputedWeights(ScoreInputs):
    """Rows of weights that are kept as they are: for a few queries that is less than their keys.

    They stand where q stands; their logarithms are scores whose log-sum-exp is zero.
    """

    @classmethod
    def of(cls, weights: Float[Tensor, "B H T S"]) -> "PrecomputedWeights":
        """Keep these weights."""
        b, h, _, s = weights.shape
        return cls(weights, weights.new_empty(b, h, s, 0), Mask(), 1.0)

    @property
    def may_forbid(self) -> bool:
        """Weights don't say why they are zero."""
        return True

    def scores(
        self,
        tile: Tile,
        out: Tensor | None = None,
        *,
        less: Float[Tensor, "b h t"] | None = None,
        unit: float = 1.0,
        masked: bool = True,  # noqa: ARG002
    ) -> Float[Tensor, "b h t s"]:
        """Return the logarithms of the kept weights."""
        weights = self.q[tile.row_index][..., slice(*tile.columns)]
        scores = (torch.log if unit == 1.0 else torch.log2)(weights, out=out)
        return scores if less is None else scores.sub_(less.unsqueeze(-1))

    def masked_spans(self, tile: Tile) -> list[tuple[int, int]]:
        """Some weights may be zero, anywhere."""
        return [tile.columns]

    def may_have_empty_rows(self, tile: Tile | None = None) -> bool:  # noqa: ARG002
        """A query that had nothing to look at is kept as zeros."""
        return True


def _even_share(n: int, most: int) -> int:
    """The size of the parts that n is cut into, as few and as even as they can be; at least one."""
    return -(-n // -(-n // max(1, most))) if n > 0 else 1


def as_index(index: list[int]) -> slice | list[int]:
    """An index that copies nothing, where the places follow each other."""
    follow = bool(index) and index == list(range(index[0], index[-1] + 1))
    return slice(index[0], index[-1] + 1) if follow else index
