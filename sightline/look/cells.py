"""A grid over queries and keys, sums of weights in its cells, and the largest weights of rows."""

import itertools
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from sightline.look.inputs import Tile
from sightline.shapes import Float, Int

__all__ = ["Cells", "cell_index", "largest", "max_with_index", "sum_columns", "sum_rows"]

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
        return cell_index(self.columns, self.keys, positions)

    def areas(self, device: torch.device) -> Int[Tensor, "rows columns"]:
        """How many pairs each cell holds."""
        rows, columns = (
            torch.arange(n + 1, device=device).mul_(span[1] - span[0]).floor_divide_(n).diff()
            for n, span in ((self.rows, self.queries), (self.columns, self.keys))
        )
        return rows[:, None] * columns


def sum_rows(weights: Tensor, tile: Tile, cells: Cells) -> tuple[int, Float[Tensor, "b h r s"]]:
    """Add up the queries of a tile in each row of cells: the first of those rows, and the sums."""
    first, last = (cell_index(cells.rows, cells.queries, x) for x in (tile.rows[0], tile.rows[1] - 1))
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


def largest(w: Float[Tensor, "... t s"], k: int) -> tuple[Float[Tensor, "... t k"], Int[Tensor, "... t k"]]:
    """Return the k largest of each row and their places, found one after the other; ``w`` is as before.

    A comb has every n-th key. The maxima of all combs are vectorized, and a place is looked for in one comb
    alone. Of equal ones any may come first.
    """
    s = w.size(-1)
    n = 64 if s >= 2048 else 32  # combs
    if s < 2 * n or w.is_cuda or not w.numel():
        return w.max(dim=-1, keepdim=True) if k == 1 else w.topk(k, dim=-1)
    w = torch.nn.functional.pad(w, (0, -s % n), value=-1.0) if s % n else w
    combs = w.unflatten(-1, (-1, n))
    maxima, taken = combs.amax(-2), []
    teeth = torch.arange(0, w.size(-1), n, device=w.device)
    for left in range(k - 1, -1, -1):
        comb = maxima.max(-1, keepdim=True).indices
        at = comb + teeth
        keys = w.gather(-1, at)
        value, tooth = keys.max(-1, keepdim=True)
        taken.append((value, at.gather(-1, tooth)))
        if left:
            w.scatter_(-1, taken[-1][1], -1.0)
            maxima.scatter_(-1, comb, keys.scatter_(-1, tooth, -1.0).amax(-1, keepdim=True))
    if k == 1:
        return taken[0]
    values, places = (torch.cat(x, -1) for x in zip(*taken, strict=True))
    w.scatter_(-1, places, values)
    return values, places


def cell_index(n: int, span: tuple[int, int], position: _Position) -> _Position:
    """Which of n cells a position, or each of some, falls into: cell i begins at ⌊i · length / n⌋."""
    return ((position - span[0] + 1) * n - 1) // (span[1] - span[0])


def _cell_start(n: int, span: tuple[int, int], cell: int) -> int:
    """Where a cell begins."""
    return span[0] + cell * (span[1] - span[0]) // n
