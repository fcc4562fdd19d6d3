"""What a pass over the weights may find out, and what one tile of them contributes to it."""

import itertools
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from sightline.look.inputs import Tile
from sightline.shapes import Float, Int

__all__ = [
    "Cells",
    "Stats",
    "StatsRequest",
    "TilePart",
    "max_with_index",
    "reduce_tile",
    "sum_columns",
    "sum_rows",
]

_WIDE = 8  # keys in a column of cells; where all have so many, sums are quicker than an index

_Position = TypeVar("_Position", int, Tensor)


class Cells(NamedTuple):
    """A grid laid over some queries and keys, as even as whole numbers allow."""

    rows: int
    columns: int
    queries: tuple[int, int]
    keys: tuple[int, int]

    def column_of(self, positions: Int[Tensor, " x"]) -> Int[Tensor, " x"]:
        """The column of cells that each key falls into."""
        return _cell_index(self.columns, self.keys, positions)

    def areas(self, device: torch.device) -> Int[Tensor, "rows columns"]:
        """How many pairs each cell holds."""
        rows, columns = (
            torch.arange(n + 1, device=device).mul_(span[1] - span[0]).floor_divide_(n).diff()
            for n, span in ((self.rows, self.queries), (self.columns, self.keys))
        )
        return rows[:, None] * columns


class StatsRequest(NamedTuple):
    """What a pass should find out."""

    received: bool = False
    entropy: bool = False
    peak: bool = False
    cells: Cells | None = None
    top: int | None = None


class Stats(NamedTuple):
    """What it found; None for what it was not asked. All differentiable but indices, cells and top."""

    lse: Float[Tensor, "B H T"]
    received: Float[Tensor, "B H S"] | None
    entropy: Float[Tensor, "B H T"] | None
    peak: Float[Tensor, "B H T"] | None
    peak_at: Int[Tensor, "B H T"] | None
    cells: Float[Tensor, "B H rows columns"] | None
    top: Float[Tensor, "B H T K"] | None
    top_at: Int[Tensor, "B H T K"] | None


class TilePart(NamedTuple):
    """What one tile contributes."""

    lse: Tensor
    received: Tensor | None
    entropy: Tensor | None
    peak: Tensor | None
    peak_at: Tensor | None
    cells: Tensor | None
    first_cell: int
    top: Tensor | None
    top_at: Tensor | None

    def stats(self, request: StatsRequest) -> Stats:
        """The same as all that there is to find; the lse may be the kernel's own, so it is copied."""
        lse = self.lse.clone(memory_format=torch.contiguous_format)
        received = self.received if request.received else None
        return Stats(lse, received, self.entropy, self.peak, self.peak_at, self.cells, self.top, self.top_at)


def reduce_tile(
    lse: Tensor,
    logs: Float[Tensor, "b h t s"],
    weights: Float[Tensor, "b h t s"],
    tile: Tile,
    request: StatsRequest,
    *,
    empty: Tensor | None,
    columns: Tensor,
    differentiable: bool = False,
) -> TilePart:
    """What a tile contributes, from its weights and their logarithms, which are written over.

    Args:
        lse: That of its queries, for the record.
        logs, weights: log w and w.
        tile: Which they are.
        request: What to measure.
        empty: Which queries look at nothing, where some may.
        columns: The column of cells of each key.
        differentiable: Whether gradients are wanted; then nothing is written over.
    """
    first_cell, cells, received = 0, None, None
    if request.cells is not None:
        first_cell, by_row = sum_rows(weights.detach(), tile, request.cells)
        cells = sum_columns(by_row, tile, request.cells, columns)
        received = None if differentiable else by_row.sum(-2)  # so the weights need not be added up again
    if request.received and received is None:
        received = weights.sum(-2)
    entropy = peak = peak_at = top = top_at = None
    if request.peak:
        peak, peak_at = max_with_index(weights)
        peak_at = peak_at.add_(tile.columns[0]) if tile.columns[0] else peak_at
        if empty is not None:
            peak_at = peak_at.masked_fill_(empty, -1)
    if request.top:
        top, top_at = weights.detach().topk(min(request.top, weights.size(-1)), dim=-1)
        top_at = top_at.add_(tile.columns[0]).masked_fill_(top == 0, -1)
    if request.entropy:  # the last to need log w
        products = logs * weights if differentiable else logs.mul_(weights)
        entropy = 0.0 - products.sum(-1).clamp(max=0.0)  # 0 - 0 is 0, -0 would be "-0.000"
    return TilePart(lse, received, entropy, peak, peak_at, cells, first_cell, top, top_at)


def sum_rows(weights: Tensor, tile: Tile, cells: Cells) -> tuple[int, Float[Tensor, "b h r s"]]:
    """Add up the queries of a tile in each row of cells: the first of those rows, and the sums."""
    first, last = (_cell_index(cells.rows, cells.queries, x) for x in (tile.rows[0], tile.rows[1] - 1))
    edges = [_cell_start(cells.rows, cells.queries, i) - tile.rows[0] for i in range(first, last + 2)]
    edges = [min(max(edge, 0), weights.size(-2)) for edge in edges]
    sizes = [b - a for a, b in itertools.pairwise(edges)]
    if min(sizes) == max(sizes):
        return first, weights.unflatten(-2, (len(sizes), sizes[0])).sum(-2)
    return first, torch.stack([x.sum(-2) for x in weights.split(sizes, -2)], dim=-2)


def sum_columns(
    by_row: Float[Tensor, "b h r s"], tile: Tile, cells: Cells, columns: Int[Tensor, " keys"]
) -> Float[Tensor, "b h r columns"]:
    """Add up the keys in each column of cells; ``columns`` says into which one each key of the grid falls."""
    sums = by_row.new_zeros(*by_row.shape[:3], cells.columns)
    left, right = cells.keys
    first, last = tile.columns[0] - left, tile.columns[1] - left
    width, rest = divmod(right - left, cells.columns)
    if width >= _WIDE and not (rest or first % width or last % width):
        sums[..., first // width : last // width] = by_row.unflatten(-1, (-1, width)).sum(-1)
        return sums
    return sums.index_add_(-1, columns[first:last], by_row)


def max_with_index(
    weights: Float[Tensor, "... t s"], chunk: int | None = None
) -> tuple[Float[Tensor, "... t"], Int[Tensor, "... t"]]:
    """The largest weight and its place. On a CPU in chunks: a maximum is quick to find, its place is not."""
    s = weights.size(-1)
    chunk = chunk or (32 if s < 512 else 64)
    whole = s - s % chunk
    if weights.is_cuda or weights.requires_grad:
        return weights.amax(-1), weights.detach().argmax(-1)
    if whole <= 4 * chunk or not weights.numel():
        return weights.max(-1)
    chunks = (weights if whole == s else weights[..., :whole]).unflatten(-1, (-1, chunk))
    largest, best = chunks.amax(-1).max(-1)  # of all, and the chunk that holds it
    starts = torch.arange(0, best.numel() * s, s, device=best.device).view_as(best).add_(best, alpha=chunk)
    inside = weights.reshape(-1).unfold(0, chunk, 1).index_select(0, starts.view(-1))
    at = best.mul_(chunk).add_(inside.max(-1).indices.view_as(best))
    if whole == s:
        return largest, at
    rest = weights[..., whole:]
    last = rest.amax(-1)
    return torch.maximum(largest, last), torch.where(last > largest, rest.argmax(-1) + whole, at)


def _cell_index(n: int, span: tuple[int, int], position: _Position) -> _Position:
    """Which of n cells a position, or each of some, falls into: cell i begins at ⌊i · length / n⌋."""
    return ((position - span[0] + 1) * n - 1) // (span[1] - span[0])


def _cell_start(n: int, span: tuple[int, int], cell: int) -> int:
    """Where a cell begins."""
    return span[0] + cell * (span[1] - span[0]) // n
