"""The usual measures: what a key receives, how spread out and how large weights are, maps and rows of them.

received[s] = Σ_t w        entropy[t] = -Σ_s w log w        peak[t] = max_s w        map = mean over cells
"""

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sightline.look.cells import Cells, cell_index, largest, max_with_index, sum_columns, sum_rows
from sightline.look.groups import is_integer
from sightline.look.inputs import Tile
from sightline.look.measure import Measure, Tensors, nan_where
from sightline.look.request import Size, Span, check_places, check_top, make_cells, parse_map_size
from sightline.look.source import Block, Out, Window
from sightline.look.weights import TileWeights
from sightline.shapes import Bool

__all__ = ["Entropy", "Logit", "Map", "Peak", "Received", "Rows", "Top"]


class Received(Measure):
    """Measure the weight that each key received, summed over the queries."""

    outputs = (Out("received", "key"),)

    def of_tile(self, x: TileWeights) -> Tensors:
        """Return the sums over the tile's queries."""
        return (x.shared["by_row"].sum(-2) if "by_row" in x.shared else x.w.sum(-2),)


class Entropy(Measure):
    """Measure how spread out each query's weights are, in nats."""

    outputs, order = (Out("entropy", "query"),), 2

    def of_tile(self, x: TileWeights) -> Tensors:
        """Return the part of the tile's keys."""
        products = x.log2_w.mul_(x.w) if x.writable else x.log2_w * x.w
        return (0.0 - products.sum(-1).clamp(max=0.0) * math.log(2),)  # 0 - 0 is 0, -0 would print as -0.000


class Peak(Measure):
    """Measure each query's largest weight, and the key that got it; -1 where it may look at nothing."""

    outputs, op = (Out("peak", "query"), Out("peak_at", "query", -1, torch.long)), "own"

    def of_tile(self, x: TileWeights) -> Tensors:
        """Return the largest weights of the tile."""
        peak, at = largest(x.w, 1) if x.writable else max_with_index(x.w)
        if x.writable:
            peak, at = peak[..., 0], at[..., 0]
        at = at + x.tile.columns[0] if x.tile.columns[0] else at
        if x.block.is_certain or x.block.inputs.may_have_empty_rows():
            at = at.masked_fill(x.lse == -torch.inf, -1)
        return peak, at

    def join(self, old: Tensors, new: Tensors) -> Tensors:
        """Return the larger ones; of equal ones that with the smaller key."""
        is_nan = new[0].isnan(), old[0].isnan()
        is_larger = (new[0] > old[0]) | (old[1] < 0) | (is_nan[0] & ~is_nan[1])
        is_larger |= ((new[0] == old[0]) | (is_nan[0] & is_nan[1])) & (new[1] >= 0) & (new[1] < old[1])
        return tuple(torch.where(is_larger, b, a) for a, b in zip(old, new, strict=True))


class Logit(Measure):
    """Measure each query's largest score before the softmax; -inf where it may look at nothing."""

    outputs, op = (Out("logit", "query", -torch.inf),), "max"

    def of_tile(self, x: TileWeights) -> Tensors:
        """Return the largest score of the tile."""
        empty = x.lse == -torch.inf
        peak = x.w.amax(-1).masked_fill(empty, 1.0)
        return ((peak.log() + x.lse.to(peak.dtype)).masked_fill(empty, -torch.inf),)


@dataclass(frozen=True, eq=False)
class Top(Measure):
    """Measure each query's k largest weights and their keys, largest first; key -1 where it had fewer."""

    k: int
    has_gradients = False
    outputs, op = (Out("top", "query"), Out("top_at", "query", -1, torch.long)), "own"

    def __post_init__(self) -> None:
        if not is_integer(self.k) or self.k < 1:
            raise ValueError(f"top must be a whole number >= 1, got {self.k!r}")

    def check(self, t: int, s: int) -> None:  # noqa: ARG002
        """Refuse more weights than a query has."""
        check_top(self.k, s)

    def fit(self, t: int, s: int, n_calls: int = 1) -> "Top":  # noqa: ARG002
        """Return the same of no more keys than there are."""
        return self if self.k <= s else Top(s) if s else self

    def sizes(self, t: int, s: int) -> Sequence[tuple[int, ...]]:  # noqa: ARG002
        """Return k for each query."""
        return [(t, self.k)] * 2

    def of_tile(self, x: TileWeights) -> Tensors:
        """Return the largest weights of the tile."""
        values, at = (largest if x.writable else torch.topk)(x.w.detach(), min(self.k, x.w.size(-1)))
        at = (at + x.tile.columns[0]).masked_fill(values == 0, -1)
        rest = (0, self.k - values.size(-1))
        return torch.nn.functional.pad(values, rest), torch.nn.functional.pad(at, rest, value=-1)

    def join(self, old: Tensors, new: Tensors) -> Tensors:
        """Return the largest of both; of equal ones that with the smaller key."""
        values, at = (torch.cat(x, -1) for x in zip(old, new, strict=True))
        order = at.argsort(dim=-1, stable=True)
        values, at = values.gather(-1, order), at.gather(-1, order)
        order = values.argsort(dim=-1, descending=True, stable=True)[..., : self.k]
        return values.gather(-1, order), at.gather(-1, order)


@dataclass(frozen=True, eq=False)
class Map(Measure):
    """Measure the T x S picture: the mean weight in each cell of a grid.

    Attributes:
        size: How many cells down and across, a number or (rows, columns).
        queries, keys: Only these, ``(first, past_the_last)``.
        cells: The grid, once T and S are known.
    """

    size: Size
    queries: Span | None = None
    keys: Span | None = None
    cells: Cells | None = None
    has_gradients = False
    outputs, order = (Out("map", "all"),), 0

    def fit(self, t: int, s: int, n_calls: int = 1) -> "Map":  # noqa: ARG002
        """Return the same with its grid, cut to as many cells as there are queries and keys."""
        rows, columns = parse_map_size(self.size)
        size = (rows, columns) if self.queries or self.keys else (min(rows, t), min(columns, s))
        cells = make_cells(size, t, s, self.queries, self.keys) if t and s else Cells(0, 0, (0, 0), (0, 0))
        return Map(self.size, self.queries, self.keys, cells)

    @property
    def grid(self) -> Cells:
        """The grid of a measure that has been fitted."""
        assert self.cells is not None  # noqa: S101
        return self.cells

    def sizes(self, t: int, s: int) -> Sequence[tuple[int, ...]]:  # noqa: ARG002
        """Return the number of cells."""
        return [(self.grid.rows, self.grid.columns)]

    def windows(self, block: Block, t: int, s: int) -> Sequence[Window]:  # noqa: ARG002
        """Return what the grid covers."""
        return (Window(self.grid.queries, self.grid.keys),)

    def of_tile(self, x: TileWeights) -> Tensors:
        """Return the sums in the cells that the tile meets."""
        _, by_row = sum_rows(x.w.detach(), x.tile, self.grid)
        if x.writable:  # without gradients
            x.shared["by_row"] = by_row
        columns = self.grid.column_of(torch.arange(*self.grid.keys, device=by_row.device))
        return (sum_columns(by_row, x.tile, self.grid, columns),)

    def place(self, tile: Tile) -> Sequence[tuple[slice, ...]]:
        """Return the rows of cells that the tile meets."""
        first, last = (
            cell_index(self.grid.rows, self.grid.queries, x) for x in (tile.rows[0], tile.rows[1] - 1)
        )
        return [(slice(first, last + 1), slice(None))]

    def finish(self, *found: Tensor) -> dict[str, Tensor]:
        """Return means."""
        return {"map": found[0] / self.grid.areas(found[0].device).clamp(min=1)}


@dataclass(frozen=True, eq=False)
class Rows(Measure):
    """Measure exact rows of the matrix, for the queries asked; negative ones count from the end.

    Neighbours are computed together, and nothing between them is.
    """

    index: Sequence[int]
    outputs = (Out("rows", "all"),)

    @functools.cached_property
    def _own(self) -> list[int]:
        """Return each of them once, in order."""
        return sorted(set(self.index))

    def check(self, t: int, s: int) -> None:  # noqa: ARG002
        """Refuse queries that there are not."""
        check_places(self.index, t, "rows", "queries")

    def fit(self, t: int, s: int, n_calls: int = 1) -> "Rows":  # noqa: ARG002
        """Return the same with places that are not negative, without those that a call does not have."""
        return Rows(tuple(i % t for i in self.index if -t <= i < t))

    def sizes(self, t: int, s: int) -> Sequence[tuple[int, ...]]:  # noqa: ARG002
        """Return a row of weights for each."""
        return [(len(self._own), s)]

    def windows(self, block: Block, t: int, s: int) -> Sequence[Window]:  # noqa: ARG002
        """Return one for each run of neighbours."""
        runs = itertools.groupby(enumerate(self._own), key=lambda x: x[1] - x[0])
        spans = [[i for _, i in run] for _, run in runs]
        return tuple(Window((span[0], span[-1] + 1), (0, s)) for span in spans)

    def of_tile(self, x: TileWeights) -> Tensors:
        """Return the weights themselves; scratch memory is not for keeping."""
        return (x.w.clone() if x.writable else x.w,)

    def place(self, tile: Tile) -> Sequence[tuple[slice, ...]]:
        """Return the places of the tile's queries among those asked."""
        first = self._own.index(tile.rows[0])
        return [(slice(first, first + tile.rows[1] - tile.rows[0]), slice(*tile.columns))]

    def finish(self, *found: Tensor) -> dict[str, Tensor]:
        """Return them in the order asked."""
        return {"rows": found[0][:, :, [self._own.index(i) for i in self.index]]}

    def hide(self, answers: dict[str, Tensor], padding: Bool[Tensor, "B H T"]) -> dict[str, Tensor]:
        """Return NaN for queries that are padding."""
        return {"rows": nan_where(padding[..., list(self.index)], answers["rows"])}
