"""More measures: groups of keys, windows and spans, distances, and products with the matrix of weights."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from sightline.look.groups import Groups, KeyGroups, is_integer, read_groups
from sightline.look.inputs import Tile
from sightline.look.measure import Measure, Tensors
from sightline.look.output_gradient import OutputGradient
from sightline.look.request import Span, check_places, check_span
from sightline.look.source import Block, Out, Window
from sightline.look.weights import TileWeights
from sightline.messages import check_choice, format_value
from sightline.shapes import Bool, Float, Int

__all__ = [
    "Applied", "Band", "Columns", "Coverage", "Distance", "Mass", "Offsets", "ReceivedFrom", "Reduce",
    "Relevance", "RelevanceMatrix", "Segments", "Weighted",
]  # fmt: skip

Reduce = Literal["sum", "mean", "max"]
_ROWS = 256  # queries at a time: a band of n diagonals is then n + 255 keys wide


@dataclass(frozen=True, eq=False)
class Mass(Measure):
    """Measure the weight that each query gives to groups of keys: ``w @ members``.

    Attributes:
        groups: As :meth:`sightline.Sight.mass` takes them, or a boolean tensor of keys, which is one group.
        name: What a sight calls the answer.
    """

    groups: Groups | KeyGroups | Bool[Tensor, " S"]
    name: str = "mass"

    @property
    def outputs(self) -> tuple[Out, ...]:  # type: ignore[override]
        """Return one output, under its own name."""
        return (Out(self.name, "query"),)

    def fit(self, t: int, s: int, n_calls: int = 1) -> "Mass":  # noqa: ARG002
        """Return the same with its groups read."""
        groups = self.groups
        if isinstance(groups, Tensor) and groups.dtype == torch.bool:
            groups = [groups.nonzero().flatten().tolist()]
        read = groups if isinstance(groups, KeyGroups) else read_groups(groups, s, torch.device("cpu"))
        return replace(self, groups=read.repeated(n_calls))

    def sizes(self, t: int, s: int) -> Sequence[tuple[int, ...]]:  # noqa: ARG002
        """Return a number for each query and group."""
        return [(t, len(self.groups.names))]  # type: ignore[union-attr]

    def of_tile(self, x: TileWeights) -> Tensors:
        """Return the sums over the tile's keys."""
        members: Tensor = self.groups.on(x.w.device).members[..., slice(*x.tile.columns), :].to(x.w.dtype)  # type: ignore[union-attr]
        if members.dim() == 3:
            members = members[x.tile.batch if members.size(0) > 1 else slice(None)].unsqueeze(1)
        return (x.w @ members,)


@dataclass(frozen=True, eq=False)
class Columns(Measure):
    """Measure exact columns of the matrix, for the keys asked; negative ones count from the end."""

    index: Sequence[int]
    outputs = (Out("columns", "query"),)

    def check(self, t: int, s: int) -> None:  # noqa: ARG002
        """Refuse keys that there are not."""
        check_places(self.index, s, "columns", "keys")

    def fit(self, t: int, s: int, n_calls: int = 1) -> "Columns":  # noqa: ARG002
        """Return the same with places that are not negative, without those that a call does not have."""
        return Columns(tuple(i % s for i in self.index if -s <= i < s))

    def sizes(self, t: int, s: int) -> Sequence[tuple[int, ...]]:  # noqa: ARG002
        """Return a number for each query and key."""
        return [(t, len(self.index))]

    def windows(self, block: Block, t: int, s: int) -> Sequence[Window]:  # noqa: ARG002
        """Return all queries, and the keys between the first and the last."""
        return (Window((0, t), (min(self.index), max(self.index) + 1)),) if self.index else ()

    def of_tile(self, x: TileWeights) -> Tensors:
        """Return the weights of the keys that the tile has."""
        first, last = x.tile.columns
        index = torch.tensor(self.index, device=x.w.device)
        is_here = (index >= first) & (index < last)
        return (x.w[..., (index - first).clamp(0, last - first - 1)] * is_here,)


@dataclass(frozen=True, eq=False)
class ReceivedFrom(Measure):
    """Measure the weight that each key received from a window of queries: SnapKV's vote; of all, H2O's.

    Attributes:
        queries: The queries, ``(first, past_the_last)``. Default: all.
        reduce: ``"sum"``, ``"mean"``, or ``"max"``, the largest weight that a query gave.
    """

    queries: Span | None = None
    reduce: Reduce = "sum"
    outputs = (Out("received_from", "key"),)

    @property
    def op(self) -> str:  # type: ignore[override]
        """Return how parts are put together."""
        return "max" if self.reduce == "max" else "sum"

    def fit(self, t: int, s: int, n_calls: int = 1) -> "ReceivedFrom":  # noqa: ARG002
        """Return the same with its window."""
        return replace(self, queries=check_span("queries", self.queries, t))

    def windows(self, block: Block, t: int, s: int) -> Sequence[Window]:  # noqa: ARG002
        """Return the window of queries."""
        return (Window(self.queries or (0, t), (0, s)),)

    def of_tile(self, x: TileWeights) -> Tensors:
        """Return the sums or maxima over the tile's queries."""
        return (x.w.amax(-2) if self.reduce == "max" else x.w.sum(-2),)

    def finish(self, *found: Tensor) -> dict[str, Tensor]:
        """Return means where they are asked."""
        first, last = self.queries or (0, 1)
        return {"received_from": found[0] / (last - first) if self.reduce == "mean" else found[0]}

    def hide(self, answers: dict[str, Tensor], padding: Bool[Tensor, "B H T"]) -> dict[str, Tensor]:
        """Return means over the queries that are not padding."""
        if self.reduce != "mean" or self.queries is None:
            return answers
        first, last = self.queries
        real = (~padding[..., first:last]).sum(-1, keepdim=True).clamp(min=1)
        return {name: x * ((last - first) / real) for name, x in answers.items()}


@dataclass(frozen=True, eq=False)
class Offsets(Measure):
    """Measure the weight at each distance t - s = 0 ... n - 1, summed along the diagonals.

    Attributes:
        n: How many distances.
        first: Where the first query is among the keys. Default: at the first, or where its step is.
    """

    n: int
    first: int | None = None
    outputs = (Out("offsets", "all"),)

    def sizes(self, t: int, s: int) -> Sequence[tuple[int, ...]]:  # noqa: ARG002
        """Return a number for each distance."""
        return [(self.n,)]

    def windows(self, block: Block, t: int, s: int) -> Sequence[Window]:  # noqa: ARG002
        """Return some queries at a time, and the keys near them."""
        return near(block, self.first, self.n - 1, 0)

    def of_tile(self, x: TileWeights) -> Tensors:
        """Return the sums along the tile's diagonals."""
        lags = _sum_diagonals(x.w).flip(-1)  # from the nearest to the furthest
        furthest = position_of(x.block, self.first, x.tile.rows[1] - 1) - x.tile.columns[0]
        nearest = furthest - lags.size(-1) + 1
        low, high = max(nearest, 0), max(min(furthest + 1, self.n), 0)
        if low >= high:
            return (lags.new_zeros(*lags.shape[:2], self.n),)
        return (torch.nn.functional.pad(lags[..., low - nearest : high - nearest], (low, self.n - high)),)

    def place(self, tile: Tile) -> Sequence[tuple[slice, ...]]:  # noqa: ARG002
        """Return all distances."""
        return [(slice(None),)]


@dataclass(frozen=True, eq=False)
class Segments(Measure):
    """Measure the weight between spans of queries and spans of keys, such as sentence by sentence.

    Attributes:
        queries, keys: Lists of spans ``(first, past_the_last)``, which may overlap.
        reduce: ``"mean"`` over the weights of two spans, without queries that are padding, or ``"sum"``.
    """

    queries: Sequence[Span]
    keys: Sequence[Span]
    reduce: Literal["mean", "sum"] = "mean"
    outputs = (Out("segments", "all"),)

    def fit(self, t: int, s: int, n_calls: int = 1) -> "Segments":  # noqa: ARG002
        """Return the same, or refuse spans that the call does not have."""
        check_choice("reduce", self.reduce, ("mean", "sum"))
        for name, spans, n in (("queries", self.queries, t), ("keys", self.keys, s)):
            if not isinstance(spans, list | tuple) or any(span is None for span in spans):
                raise TypeError(f"{name} must be a list of (first, past_the_last), got {format_value(spans)}")
            for i, span in enumerate(spans):
                check_span(f"{name}[{i}]", span, n)
        return self

    def sizes(self, t: int, s: int) -> Sequence[tuple[int, ...]]:  # noqa: ARG002
        """Return a number for each pair of spans."""
        return [(len(self.queries), len(self.keys))]

    def of_tile(self, x: TileWeights) -> Tensors:
        """Return what the tile adds to each pair of spans."""
        keys = self._shares(self.keys, x.tile.columns, x.w)
        return (self._shares(self.queries, x.tile.rows, x.w).mT @ (x.w @ keys),)

    def place(self, tile: Tile) -> Sequence[tuple[slice, ...]]:  # noqa: ARG002
        """Return all pairs of spans."""
        return [(slice(None), slice(None))]

    def hide(self, answers: dict[str, Tensor], padding: Bool[Tensor, "B H T"]) -> dict[str, Tensor]:
        """Return means over the queries that are not padding."""
        found = answers["segments"]
        real = (~padding).to(found) @ self._shares(self.queries, (0, padding.size(-1)), found)
        return answers if self.reduce == "sum" else {"segments": found / real.clamp(min=1e-30).unsqueeze(-1)}

    def _shares(self, spans: Sequence[Span], places: Span, like: Tensor) -> Float[Tensor, "n spans"]:
        """Return what each place counts in each span."""
        at, ends = torch.arange(*places).unsqueeze(-1), torch.tensor(spans, dtype=torch.long).view(-1, 2)
        first, last = ends.unbind(-1)
        count = last - first if self.reduce == "mean" else 1
        return (((at >= first) & (at < last)).double() / count).to(like)


def position_of(block: Block, first: int | None, query: int) -> int:
    """Return where a query, by its place in the T x S that comes out, is among the keys."""
    if first is not None:
        return query + first
    return query if block.position is None else query - block.query + block.position


def near(block: Block, first: int | None, left: int, right: int) -> Sequence[Window]:
    """Return windows of some queries each, with the keys from ``left`` before to ``right`` after them."""
    (top, bottom), (_, last) = block.window
    ahead = position_of(block, first, 0)
    spans = [(a, min(a + _ROWS, bottom)) for a in range(top, bottom, _ROWS)]
    return tuple(
        Window((a, b), (max(0, ahead + a - left), max(0, min(last, ahead + b + right)))) for a, b in spans
    )


def _distances(x: TileWeights, first: int | None) -> Int[Tensor, "t s"]:
    """Return how far before each query of a tile each key is."""
    queries = torch.arange(*x.tile.rows, device=x.w.device) + position_of(x.block, first, 0)
    return queries[:, None] - torch.arange(*x.tile.columns, device=x.w.device)


@dataclass(frozen=True, eq=False)
class Band(Measure):
    """Measure the weight that each query gives to the keys near its own place.

    ``Band(3, 0)`` is that of its own token and the three before it, ``Band(0, 0)`` the diagonal.

    Attributes:
        left, right: How many keys before and after.
        first: Where the first query is among the keys, as for :class:`Offsets`.
    """

    left: int
    right: int = 0
    first: int | None = None
    outputs = (Out("band", "query"),)

    def windows(self, block: Block, t: int, s: int) -> Sequence[Window]:  # noqa: ARG002
        """Return some queries at a time, and the keys near them."""
        return near(block, self.first, self.left, self.right)

    def of_tile(self, x: TileWeights) -> Tensors:
        """Return the sums over the near keys of the tile."""
        distances = _distances(x, self.first)
        return ((x.w * ((distances <= self.left) & (distances >= -self.right))).sum(-1),)


@dataclass(frozen=True, eq=False)
class Distance(Measure):
    """Measure how far away each query looks, in tokens: the mean of abs(t - s) under its weights."""

    first: int | None = None
    outputs = (Out("distance", "query"),)

    def of_tile(self, x: TileWeights) -> Tensors:
        """Return the part of the tile's keys."""
        return (torch.linalg.vecdot(x.w, _distances(x, self.first).abs_().to(x.w.dtype)),)


@dataclass(frozen=True, eq=False)
class Coverage(Measure):
    """Measure how many keys, the largest weights first, hold a share p of each query's weight."""

    p: float
    has_gradients = False
    outputs, whole_rows = (Out("coverage", "query", 0, torch.long),), True

    def __post_init__(self) -> None:
        if not 0 < self.p <= 1:
            raise ValueError(f"the share p of a coverage must be above 0 and at most 1, got {self.p}")

    def of_tile(self, x: TileWeights) -> Tensors:
        """Return the counts of the tile's queries."""
        shares = x.w.detach().sort(-1, descending=True).values.cumsum(-1)
        enough = self.p * shares[..., -1:] * (1 - 2 * torch.finfo(shares.dtype).eps)
        count = 1 + (shares < enough).sum(-1)
        return (count.masked_fill(x.lse == -torch.inf, 0),)


@dataclass(frozen=True, eq=False)
class Applied(Measure):
    """Multiply the matrix of weights with columns: ``A @ x``.

    Attributes:
        x: (S, C), or (B or 1, H or 1, S, C).
    """

    x: Float[Tensor, "... S C"]
    outputs = (Out("applied", "query"),)

    @property
    def factors(self) -> Sequence[Tensor]:  # type: ignore[override]
        """Return what the weights are multiplied with."""
        return (self.x,)

    def sizes(self, t: int, s: int) -> Sequence[tuple[int, ...]]:  # noqa: ARG002
        """Return a row for each query."""
        return [(t, self.x.size(-1))]

    def of_tile(self, x: TileWeights) -> Tensors:
        """Return the part of the tile's keys."""
        return (x.w @ _part(self.x, x.tile, slice(*x.tile.columns)).to(x.w.dtype),)


@dataclass(frozen=True, eq=False)
class Weighted(Measure):
    """Multiply the transposed matrix with columns: ``A.T @ y``; with ``record``, that of the relevance.

    Attributes:
        y: (T, C), or (B or 1, H or 1, T, C).
        record: What a backward pass brought, for the matrix ``max(0, w * dw)`` instead of the weights.
    """

    y: Float[Tensor, "... T C"]
    record: OutputGradient | None = None
    outputs = (Out("weighted", "key"),)

    @property
    def factors(self) -> Sequence[Tensor]:  # type: ignore[override]
        """Return what the weights are multiplied with."""
        return (self.y,)

    def sizes(self, t: int, s: int) -> Sequence[tuple[int, ...]]:  # noqa: ARG002
        """Return a row for each key."""
        return [(s, self.y.size(-1))]

    def of_tile(self, x: TileWeights) -> Tensors:
        """Return the part of the tile's queries."""
        matrix = x.w if self.record is None else relevant(x, self.record)
        return (matrix.mT @ _part(self.y, x.tile, slice(*x.tile.rows)).to(x.w.dtype),)


def _part(x: Tensor, tile: Tile, rows: slice) -> Tensor:
    """Return the items, heads and rows of a tile."""
    if x.dim() == 4:
        x = x[tile.batch if x.size(0) > 1 else slice(None), tile.heads if x.size(1) > 1 else slice(None)]
    return x[..., rows, :]


@dataclass(frozen=True, eq=False)
class Relevance(Measure):
    """Measure ``max(0, w * dw)``, ``dw = dO vᵀ``, summed over queries and over keys (Chefer et al., 2021).

    Attributes:
        record: The values, and the gradient of the output.
    """

    record: OutputGradient
    has_gradients = False
    outputs = (Out("relevance.keys", "key"), Out("relevance.queries", "query"))

    def of_tile(self, x: TileWeights) -> Tensors:
        """Return the sums of the tile."""
        products = relevant(x, self.record)
        return products.sum(-2), products.sum(-1)


@dataclass(frozen=True, eq=False)
class RelevanceMatrix(Measure):
    """Measure the whole matrix of relevance: for short sequences."""

    record: OutputGradient
    has_gradients = False
    outputs = (Out("matrix", "all"),)

    def sizes(self, t: int, s: int) -> Sequence[tuple[int, ...]]:
        """Return a number for each pair."""
        return [(t, s)]

    def of_tile(self, x: TileWeights) -> Tensors:
        """Return the products of the tile."""
        return (relevant(x, self.record),)

    def place(self, tile: Tile) -> Sequence[tuple[slice, ...]]:
        """Return the pairs of the tile."""
        return [(slice(*tile.rows), slice(*tile.columns))]


def relevant(x: TileWeights, record: OutputGradient) -> Float[Tensor, "b h t s"]:
    """Return the clamped products of a tile's weights and their gradients."""
    gradient = record.gradient
    assert gradient is not None  # noqa: S101
    tile, group = x.tile, record.output.size(1) // record.v.size(1)
    kv_heads = slice(tile.heads.start // group, -(-tile.heads.stop // group))
    v = record.v[tile.batch, kv_heads, slice(*tile.columns)].to(x.w.dtype)
    g = gradient[tile.row_index].to(x.w.dtype)
    b, h, t, _ = g.shape
    slopes = (g.reshape(b, v.size(1), -1, g.size(-1)) @ v.mT).view(b, h, t, v.size(2))
    return (x.w * slopes).clamp_(min=0.0)


def _sum_diagonals(weights: Float[Tensor, "b h t s"]) -> Float[Tensor, "b h lags"]:
    """Return sums along the diagonals, from the lower left corner to the upper right.

    Every row is written one place further left than the one before, so that diagonals become columns.
    """
    b, h, t, s = weights.shape
    wide = s + t - 1
    skewed = weights.new_zeros(b, h, t * wide)
    lead = (skewed.stride(0), skewed.stride(1))
    rows = skewed.as_strided((b, h, t, s), (*lead, wide - 1 if t > 1 else wide, 1), t - 1)
    rows.copy_(weights)
    return skewed.view(b, h, t, wide).sum(-2)


def check_distances(n: Any, s: int) -> None:
    """Refuse to measure more distances than there are keys."""
    if not is_integer(n) or not 1 <= n <= max(s, 1):
        raise ValueError(
            "n must be a whole number of distances, at least 1 and at most the number of keys "
            f"S={s}, got {n!r}"
        )
