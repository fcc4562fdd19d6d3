"""The second pass: tiles of weights, computed again from q, k and the log-sum-exp, reduced and dropped.

The fused kernel has already given the output and, for each query, lse = log Σ exp(score). So any weight is

    w[t, s] = exp(score[t, s] - lse[t])

on its own, and every question below is a sum or a maximum over tiles of them:

    received[s] = Σ_t w        entropy[t] = -Σ_s w log w        peak[t] = max_s w        map = mean over cells

A tile holds some queries and all the keys they may look at, so memory is O(T + S). Where gradients are
asked for, a tile is computed once more in the backward pass and nothing is kept.
"""

import functools
import math
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from sightline.look.inputs import ScoreInputs, Tile
from sightline.look.threads import by_tile, one_thread, shares_tiles
from sightline.look.tile_stats import (
    Cells,
    Stats,
    StatsRequest,
    TilePart,
    max_with_index,
    reduce_tile,
    sum_columns,
    sum_rows,
)
from sightline.shapes import Float

__all__ = [
    "Cells",
    "Stats",
    "StatsRequest",
    "max_with_index",
    "measure",
    "pool",
    "sum_columns",
    "sum_rows",
    "tile_weights",
]

_TILE = {"cpu": 1 << 21, "cuda": 1 << 26}  # weights of a tile, at most: on a GPU enough to fill it
_SHARED_TILE = 1 << 18, 1 << 20  # where threads share the tiles: an eighth of all, but between these

_LOG_ZERO = -1e4  # log w is cut off here, so that 0 * log 0 is 0; its exp is zero in every dtype used
_COARSE = 100.0  # an lse further from zero is rounded to more than 4e-6
_ROW_SUM = 4e-6  # a row of weights that is further from one than this shows that a kernel's lse is off


def measure(inputs: ScoreInputs, request: StatsRequest, lse: Float[Tensor, "B H T"] | None = None) -> Stats:
    """Pass over all weights once and reduce them to what was asked.

    Args:
        pairs: What the weights are made of.
        want: What to measure.
        lse: Each query's log-sum-exp, where a kernel has given it. It is believed only as far as the
            rows of weights then sum to one; where gradients are asked for, it is computed.
    """
    differentiable = inputs.requires_grad
    if differentiable or inputs.q.device.type != "cpu":  # on a GPU checking it would wait for the device
        lse = None
    if inputs.sink is not None:  # kernels don't agree on whether theirs holds the sink
        lse = None
    stats = _put_together(inputs, request, _parts(inputs, request, lse))
    if stats.cells is not None and request.cells is not None:
        with one_thread():
            stats.cells.div_(request.cells.areas(stats.cells.device))
    return stats


def _parts(
    inputs: ScoreInputs, request: StatsRequest, lse: Float[Tensor, "B H T"] | None
) -> Iterator[tuple[Tile, "TilePart"]]:
    """Every tile and what it contributes, in order."""
    size = _tile_size(inputs)
    if not inputs.requires_grad and inputs.q.device.type == "cpu":
        inputs = inputs.widened()
    scratches: list[_Scratch] = []  # those that nobody uses; as many are made as there are threads

    def measure_one(tile: Tile) -> TilePart:
        try:
            scratch = scratches.pop()
        except IndexError:
            scratch = _Scratch(inputs, request.cells)
        known = None if lse is None else lse[tile.row_index]
        part = _measure_tile(inputs, tile, request, known, scratch, differentiable=False)
        scratches.append(scratch)
        return part

    if not inputs.requires_grad:
        yield from by_tile(inputs, measure_one, inputs.tiles(size))
        return
    scratch = _Scratch(inputs, request.cells)
    for tile in inputs.tiles(size):
        yield tile, checkpoint(_measure_tile, inputs, tile, request, None, scratch, True, use_reentrant=False)


def _put_together(
    inputs: ScoreInputs, request: StatsRequest, parts: Iterable[tuple[Tile, TilePart]]
) -> Stats:
    """What all tiles contribute; the sums of cells, not their means yet.

    This thread does it alone: others, woken up for each small sum, would take the cores from the tiles.
    """
    stats, tiles, of_queries = None, [], []
    for tile, part in parts:
        if tile.is_all(inputs.shape):  # short inputs: nothing to put together
            return part.stats(request)
        with one_thread():
            stats = _empty_stats(inputs, request) if stats is None else stats
            _add_tile(stats, tile, part)
        tiles.append(tile)
        of_queries.append((part.lse, part.entropy, part.peak, part.peak_at))
    if stats is None:
        return _empty_stats(inputs, request)
    with one_thread():
        lse, entropy, peak, peak_at = (_join(column, tiles) for column in zip(*of_queries, strict=True))
    assert lse is not None  # noqa: S101
    return stats._replace(lse=lse, entropy=entropy, peak=peak, peak_at=peak_at)


def _join(parts: Sequence[Tensor | None], tiles: list[Tile]) -> Tensor | None:
    """Numbers of queries, (b, h, t) of each tile, as (B, H, T): tiles go by items, heads, then queries."""
    joined = [part for part in parts if part is not None]
    if not joined:
        return None
    n_rows, n_heads = len({tile.rows for tile in tiles}), len({tile.heads.start for tile in tiles})
    for dim, n in ((2, n_rows), (1, n_heads), (0, len(tiles) // (n_rows * n_heads))):
        joined = [torch.cat(joined[i : i + n], dim) for i in range(0, len(joined), n)]
    return joined[0]


def _empty_stats(inputs: ScoreInputs, request: StatsRequest) -> Stats:
    """Where the parts will be put: what is found of no keys at all."""
    b, h, t, s = inputs.shape
    zeros = functools.partial(inputs.q.new_zeros, dtype=inputs.dtype)
    indices = functools.partial(inputs.q.new_full, fill_value=-1, dtype=torch.long)
    return Stats(
        lse=zeros((b, h, t)),
        received=zeros((b, h, s)) if request.received else None,
        entropy=zeros((b, h, t)) if request.entropy else None,
        peak=zeros((b, h, t)) if request.peak else None,
        peak_at=indices((b, h, t)) if request.peak else None,
        cells=zeros((b, h, request.cells.rows, request.cells.columns)) if request.cells else None,
        top=zeros((b, h, t, request.top)) if request.top else None,
        top_at=indices((b, h, t, request.top)) if request.top else None,
    )


def pool(
    inputs: ScoreInputs,
    lse: Float[Tensor, "B H T"],
    cells: Cells,
    first_query: int = 0,
    first_key: int = 0,
) -> Float[Tensor, "B H rows columns"]:
    """Sum the weights in each cell of a window, from a known lse: only the window is computed.

    Args:
        pairs: What the weights are made of.
        lse: Each query's log-sum-exp.
        cells: The grid, in positions of the whole picture.
        first_query: Where in that picture the first of these queries stands.
        first_key: Where the first of their keys stands.
    """
    b, h, t, s = inputs.shape
    local = cells._replace(
        queries=(cells.queries[0] - first_query, cells.queries[1] - first_query),
        keys=(cells.keys[0] - first_key, cells.keys[1] - first_key),
    )
    sums = inputs.q.new_zeros((b, h, cells.rows, cells.columns), dtype=inputs.dtype)
    queries = max(local.queries[0], 0), min(local.queries[1], t)
    keys = max(local.keys[0], 0), min(local.keys[1], s)
    if queries[0] >= queries[1] or keys[0] >= keys[1]:
        return sums
    columns = local.column_of(torch.arange(*local.keys, device=sums.device))

    def pool_one(tile: Tile) -> tuple[int, Tensor]:
        first, by_row = sum_rows(tile_weights(inputs, tile, lse[tile.row_index]), tile, local)
        return first, sum_columns(by_row, tile, local, columns)

    tiles = inputs.tiles(_tile_size(inputs), queries, keys)
    for tile, (first, part) in by_tile(inputs, pool_one, tiles):
        sums[tile.batch, tile.heads, first : first + part.size(2)] += part
    return sums


def tile_weights(inputs: ScoreInputs, tile: Tile, lse: Float[Tensor, "b h t"]) -> Float[Tensor, "b h t s"]:
    """The weights of a tile, from the lse of its queries.

    Scores may be large, and the huge negatives that some models forbid with may fill a row. Its lse is too
    coarse then to tell one weight from another, so the whole row is looked at again.
    """
    if bool((lse.abs() > _COARSE).logical_and_(lse.isfinite()).any()):
        t, s = inputs.shape[2:]
        row = tile._replace(columns=inputs.mask.keys(tile.rows, t, s))
        first = row.columns[0]
        scores = inputs.scores(row)
        logs = scores.log_softmax(-1)[..., tile.columns[0] - first : tile.columns[1] - first]
        if inputs.sink is not None:
            logs += inputs.log_rest(scores.logsumexp(-1), row).unsqueeze(-1)
    else:
        logs = inputs.scores(tile) - lse.unsqueeze(-1)
    weights = logs.exp_()
    if not inputs.may_have_empty_rows(tile):
        return weights
    return weights.masked_fill_((lse == -torch.inf).unsqueeze(-1), 0.0)  # nothing to look at: -inf - -inf


def _measure_tile(
    inputs: ScoreInputs,
    tile: Tile,
    request: StatsRequest,
    lse: Tensor | None,
    scratch: "_Scratch",
    differentiable: bool,
) -> TilePart:
    if tile.columns[0] >= tile.columns[1]:
        return _empty_part(inputs.scores(tile), request)
    if differentiable:
        lse, logs, weights, empty = _weights(inputs, tile)
    else:
        lse, logs, weights, empty = _weights_in_place(inputs, tile, lse, scratch)
    return reduce_tile(
        lse, logs, weights, tile, request, empty=empty, columns=scratch.columns, differentiable=differentiable
    )


class _Scratch:
    """What all tiles share: two buffers, since fresh memory would cost as much as the arithmetic."""

    def __init__(self, inputs: ScoreInputs, cells: Cells | None) -> None:
        self._like = inputs.q.new_empty(0, dtype=inputs.dtype)
        self.columns = self._like  # the column of cells of each key
        if cells is not None:
            self.columns = cells.column_of(torch.arange(*cells.keys, device=inputs.q.device))
        self._n_keys = inputs.k.size(2)
        self._buffers = self._like, self._like
        self._views: dict[tuple[int, int, int, int], tuple[Tensor, Tensor]] = {}  # by the shape of a tile

    def take(self, shape: tuple[int, int, int, int]) -> tuple[Tensor, Tensor]:
        """The buffers of a tile, as large as they would be if it had all keys: they need not grow."""
        if shape not in self._views:
            n, largest = math.prod(shape), math.prod(shape[:3]) * self._n_keys
            if self._buffers[0].numel() < n:
                self._buffers = self._like.new_empty(largest), self._like.new_empty(largest)
                self._views.clear()
            first, second = self._buffers
            self._views[shape] = first[:n].view(shape), second[:n].view(shape)
        return self._views[shape]


def _weights(inputs: ScoreInputs, tile: Tile) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """lse, log w, w and which rows are empty, in steps that can be differentiated."""
    scores = inputs.scores(tile)
    if inputs.sink is not None:
        return _weights_beside_sink(inputs, tile, scores)
    if not inputs.masked_spans(tile):
        logs = scores.log_softmax(-1)
        return scores.logsumexp(-1), logs, logs.exp(), None
    empty = scores.amax(-1) == -torch.inf
    scores = scores.masked_fill(empty.unsqueeze(-1), 0.0)
    logs = scores.log_softmax(-1).clamp(min=_LOG_ZERO)
    lse = scores.logsumexp(-1).masked_fill(empty, -torch.inf)
    return lse, logs, logs.exp().masked_fill(empty.unsqueeze(-1), 0.0), empty


def _weights_beside_sink(
    inputs: ScoreInputs, tile: Tile, scores: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    empty = scores.amax(-1) == -torch.inf
    scores = scores.masked_fill(empty.unsqueeze(-1), 0.0)
    lse = scores.logsumexp(-1)
    rest = inputs.log_rest(lse, tile)
    logs = (scores.log_softmax(-1) + rest.unsqueeze(-1)).clamp(min=_LOG_ZERO)
    weights = logs.exp().masked_fill(empty.unsqueeze(-1), 0.0)
    return (lse - rest).masked_fill(empty, -torch.inf), logs, weights, empty


def _weights_in_place(
    inputs: ScoreInputs, tile: Tile, lse: Tensor | None, scratch: _Scratch
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """The same in scratch memory; from the given lse as far as its rows then sum to one."""
    b, h, rows, columns = tile
    shape = (b.stop - b.start, h.stop - h.start, rows[1] - rows[0], columns[1] - columns[0])
    logs, weights = scratch.take(shape)
    banded = lse is not None and inputs.has_bands_alone(tile)
    logs = inputs.scores(tile, out=logs, masked=not banded)
    maybe_empty = inputs.may_have_empty_rows(tile)
    largest = logs.amax(-1) if lse is None or maybe_empty else None
    empty = largest == -torch.inf if maybe_empty and largest is not None else None
    shift = largest if lse is None else lse
    assert shift is not None  # noqa: S101
    shift = shift if empty is None else shift.masked_fill(empty, 0.0)
    logs.sub_(shift.unsqueeze(-1))
    torch.exp(logs, out=weights)
    if banded:  # exp is slow at -inf, and there is nothing but bands to undo
        inputs.zero_outside_bands(weights, tile)
        inputs.zero_outside_bands(logs, tile)
    else:
        for first, last in inputs.masked_spans(tile):
            logs[..., first - columns[0] : last - columns[0]].clamp_(min=_LOG_ZERO)
    if empty is not None:
        weights.masked_fill_(empty.unsqueeze(-1), 0.0)
    sums = weights.sum(-1)
    sums = sums if empty is None else sums.masked_fill_(empty, 1.0)
    if lse is None:
        rest = sums.log()
        if inputs.sink is not None:
            rest = rest - inputs.log_rest(shift + rest, tile)
        weights.mul_((sums.reciprocal() if inputs.sink is None else rest.neg().exp_()).unsqueeze(-1))
        logs.sub_(rest.unsqueeze(-1))
        lse = shift + rest
    elif not _are_ones(sums):
        return _weights_in_place(inputs, tile, None, scratch)
    return lse if empty is None else lse.masked_fill(empty, -torch.inf), logs, weights, empty


def _are_ones(sums: Tensor) -> bool:
    least, most = torch.aminmax(sums)
    return 1.0 - least.item() < _ROW_SUM and most.item() - 1.0 < _ROW_SUM


def _add_tile(stats: Stats, tile: Tile, part: TilePart) -> None:
    """Add what a tile found of keys and cells where it belongs, and write its top there."""
    if stats.received is not None and part.received is not None:
        stats.received[tile.column_index].add_(part.received)
    if stats.cells is not None and part.cells is not None:
        stop = part.first_cell + part.cells.size(2)
        stats.cells[tile.batch, tile.heads, part.first_cell : stop].add_(part.cells)
    if (
        stats.top is not None
        and stats.top_at is not None
        and part.top is not None
        and part.top_at is not None
    ):
        stats.top[tile.row_index][..., : part.top.size(-1)] = part.top
        stats.top_at[tile.row_index][..., : part.top.size(-1)] = part.top_at


def _empty_part(scores: Tensor, request: StatsRequest) -> TilePart:
    """The part of queries that may look at no key at all."""
    zero = scores.sum(-1)
    minus_one = torch.full_like(zero, -1, dtype=torch.long)
    return TilePart(
        lse=zero - torch.inf,
        received=scores.sum(-2) if request.received else None,
        entropy=zero if request.entropy else None,
        peak=zero if request.peak else None,
        peak_at=minus_one if request.peak else None,
        cells=None,
        first_cell=0,
        top=None,
        top_at=None,
    )


def _tile_size(inputs: ScoreInputs) -> int:
    """How many weights a tile should hold; it does not depend on the number of threads."""
    most = _TILE.get(inputs.q.device.type, _TILE["cuda"])
    if not shares_tiles(inputs):
        return most
    smallest, largest = _SHARED_TILE
    return min(most, largest, max(smallest, math.prod(inputs.shape) // 8))
