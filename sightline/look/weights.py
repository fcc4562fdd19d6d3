"""Tiles of weights, made again from q, k and the log-sum-exp; here alone a score becomes a weight.

Scores are computed in bits where they can be, that is times log2 e: exp2 takes a third of the time of exp.
"""

import math
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, inf

from sightline.look.inputs import LOG2E, PrecomputedWeights, ScoreInputs, Tile
from sightline.look.source import Block
from sightline.look.threads import shares_tiles
from sightline.shapes import Float

__all__ = ["TileWeights", "WeightMaker", "tile_size", "usable_lse"]

_LOG_ZERO = -1e4  # log2 w is cut off here, so that 0 log 0 is 0; its exp2 is zero in every dtype used
_EMPTY = 1e30  # kernels on a GPU give more than this, of either sign, for a query that may look at nothing
_COARSE = 100.0  # a float32 lse further from zero is rounded to more than 4e-6
_ROW_SUM = 4e-6  # a row of weights that is further from one than this shows that a kernel's lse is off
_NEAR = 1024.0  # rows off by more than this factor are computed again from their maxima
_TILE = {"cpu": 1 << 21, "cuda": 1 << 26}  # weights of a tile, at most: on a GPU enough to fill it
_SHARED_TILE = 1 << 18, 1 << 20  # where threads share the tiles: an eighth of all, but between these

Shape = tuple[int, int, int, int]


class TileWeights(NamedTuple):
    """What a measure is given of a tile.

    Attributes:
        w: The weights, (b, h, t, s).
        log2_w: Their logarithms to base 2, cut off at -1e4; 0 where a band of the mask forbids.
        lse: The log-sum-exp of each query's scores, (b, h, t); -inf for a query that may look at nothing.
        tile: The items, heads, queries and keys, in the T x S that comes out.
        block: The block that the tile is of.
        shared: What two measures need is computed once and kept here.
        writable: Whether a measure of order 2 may write over ``log2_w``; without gradients only.
    """

    w: Float[Tensor, "b h t s"]
    log2_w: Float[Tensor, "b h t s"]
    lse: Float[Tensor, "b h t"]
    tile: Tile
    block: Block
    shared: dict[str, Tensor]
    writable: bool


class WeightMaker:
    """Makes the weights of a block, tile by tile.

    Args:
        block: What they are made of. Parts of rows need its log-sum-exp.
        grad: Whether they are differentiated.
    """

    def __init__(self, block: Block, *, grad: bool = False) -> None:
        inputs = block.inputs
        self._on_cpu = inputs.q.device.type == "cpu"
        if self._on_cpu and not grad:
            inputs = inputs.widened()
            block = block if inputs is block.inputs else replace(block, inputs=inputs)
        self.block, self.inputs, self._dtype = block, inputs, inputs.dtype
        self._unit = inputs.unit
        self._exp, self._log = (torch.exp, torch.log) if self._unit == 1.0 else (torch.exp2, torch.log2)
        # On a GPU a look at the sums waits for the device, and kernels don't agree on whether a sink counts.
        self._believes = self._on_cpu and inputs.sink is None and block.lse is not None
        self._parts: tuple[Tensor, Tensor] | None = None

    def differentiable(self, tile: Tile) -> TileWeights:
        """Return the weights of a tile, in steps that can be differentiated."""
        block, inputs, unit = self.block, self.inputs, self._unit
        is_whole = block.has_whole_rows(tile)
        if not is_whole and self._is_coarse(tile):
            row = self._whole_rows(tile)
            return self._columns_of(self.differentiable(row), tile, row)
        scores = inputs.scores(tile, unit=unit)
        if is_whole:
            high = scores.detach().amax(-1)
            empty = high == -inf
            high = high.masked_fill(empty, 0.0)
            logs = scores - high.unsqueeze(-1)
            rest = self._log(self._exp(logs).sum(-1).masked_fill(empty, 1.0))
            rest = rest - inputs.log_rest((high + rest) / unit, tile) * unit
            logs, lse = logs - rest.unsqueeze(-1), (high.double() + rest) / unit
        else:
            assert block.lse is not None  # noqa: S101
            lse = block.lse[tile.row_index]
            empty = lse == -inf
            high, low = (x.unsqueeze(-1) for x in self._two_parts(lse))
            logs = scores - high - low
        logs = logs.clamp(min=_LOG_ZERO)
        w = self._exp(logs)
        if inputs.may_have_empty_rows(tile):
            w = w.masked_fill(empty.unsqueeze(-1), 0.0)
        log2_w = logs * LOG2E if unit == 1.0 else logs
        return TileWeights(w, log2_w, lse.masked_fill(empty, -inf), block.placed(tile), block, {}, False)

    def in_place(self, tile: Tile, scratch: "Scratch") -> TileWeights:
        """Return the weights of a tile in scratch memory, without gradients.

        A kernel's log-sum-exp is believed as far as rows of weights then sum to one.
        """
        block, inputs, unit = self.block, self.inputs, self._unit
        is_whole = block.has_whole_rows(tile)
        if not is_whole and self._is_coarse(tile):
            row = self._whole_rows(tile)
            return self._columns_of(self.in_place(row, scratch), tile, row)
        logs, w = scratch.take(tile)
        if block.lse is not None and (self._believes or not is_whole):
            lse = self._from_lse(tile, logs, w, is_whole)
            if lse is not None:
                return self._found(tile, w, logs, lse)
        inputs.scores(tile, logs, unit=unit)
        high = logs.amax(-1)
        empty = high == -inf
        high.masked_fill_(empty, 0.0)
        self._exp(logs.sub_(high.unsqueeze(-1)), out=w)
        rest = self._log(w.sum(-1).masked_fill_(empty, 1.0))
        if inputs.sink is not None:
            rest = rest - inputs.log_rest((high + rest) / unit, tile) * unit
        w.mul_(self._exp(rest.neg()).unsqueeze(-1))
        self._cut_off(tile, logs.sub_(rest.unsqueeze(-1)))
        return self._found(tile, w, logs, ((high.double() + rest) / unit).masked_fill_(empty, -inf))

    def _from_lse(self, tile: Tile, logs: Tensor, w: Tensor, is_whole: bool) -> Tensor | None:  # noqa: C901
        """Fill in log w and w from a known lse; return it, -inf for empty rows, or None if it was far off."""
        inputs, unit = self.inputs, self._unit
        is_banded = inputs.has_bands_alone(tile)
        known, index = self.block.lse, tile.row_index
        assert known is not None  # noqa: S101
        if self._parts is None:
            self._parts = self._two_parts(known)
        lse = known[index]
        inputs.scores(tile, logs, less=self._parts[0][index], unit=unit, masked=not is_banded)
        if not is_whole:
            logs.sub_(self._parts[1][index].unsqueeze(-1))
        self._exp(logs, out=w)
        if is_banded:  # exp is slow at -inf, and there is nothing but bands to undo
            inputs.zero_outside_bands(w, tile)
            inputs.zero_outside_bands(logs, tile)
        else:
            self._cut_off(tile, logs)
        if not is_whole:
            if isinstance(inputs, PrecomputedWeights):
                lse = lse if self.block.recorded is None else self.block.recorded[index]
                return lse.masked_fill(~w.any(-1), -inf)
            return lse
        sums = w.sum(-1)
        least, most = _extremes(sums)
        if 1.0 - least < _ROW_SUM and most - 1.0 < _ROW_SUM:
            return lse
        lse = lse.masked_fill(lse.isinf(), 0.0)  # as it was taken off
        if least == 0.0 and inputs.may_have_empty_rows(tile):
            empty = (sums == 0).logical_and_(logs.amax(-1) == _LOG_ZERO)
            sums, lse = sums.masked_fill_(empty, 1.0), lse.masked_fill(empty, -inf)
            least, most = _extremes(sums)
            if 1.0 - least < _ROW_SUM and most - 1.0 < _ROW_SUM:
                return lse
        if not (least > 1.0 / _NEAR and most < _NEAR):  # so far off that weights may have been lost
            return None
        rest = sums.log()
        w.mul_(sums.reciprocal().unsqueeze(-1))
        self._cut_off(tile, logs.sub_((rest * unit).unsqueeze(-1)))
        if is_banded:
            inputs.zero_outside_bands(logs, tile)
        return lse.double() + rest

    def _found(self, tile: Tile, w: Tensor, logs: Tensor, lse: Tensor) -> TileWeights:
        log2_w = logs.mul_(LOG2E) if self._unit == 1.0 else logs
        block = self.block
        place = block.placed(tile) if block.query or block.key else tile
        return TileWeights(w, log2_w, lse, place, block, {}, True)

    def _two_parts(self, lse: Tensor) -> tuple[Tensor, Tensor]:
        """Return a log-sum-exp in the unit of the scores, and its digits below their dtype."""
        whole = lse.double().masked_fill(lse.isinf(), 0.0) * self._unit
        high = whole.to(self._dtype)
        return high, (whole - high).to(self._dtype)

    def _cut_off(self, tile: Tile, logs: Tensor) -> None:
        """Cut logarithms off below, so that 0 log 0 is 0."""
        for first, last in self.inputs.masked_spans(tile):
            logs[..., first - tile.columns[0] : last - tile.columns[0]].clamp_(min=_LOG_ZERO)

    def _is_coarse(self, tile: Tile) -> bool:
        """Return whether a log-sum-exp of a tile has too few digits to tell one weight from another.

        Scores may be large, and the huge negatives that some models forbid with may fill a row.
        """
        lse = self.block.lse
        if lse is None or self.block.is_certain:
            return False
        most = _COARSE if lse.dtype == torch.float32 else _COARSE * 1e6
        own = lse.detach()[tile.row_index]
        return bool((own.abs() > most).logical_and_(own.isfinite()).any())

    def _whole_rows(self, tile: Tile) -> Tile:
        return tile._replace(columns=self.inputs.mask.keys(tile.rows, *self.inputs.shape[2:]))

    def _columns_of(self, x: TileWeights, tile: Tile, row: Tile) -> TileWeights:
        """Return some columns of what was computed for whole rows."""
        columns = slice(tile.columns[0] - row.columns[0], tile.columns[1] - row.columns[0])
        return x._replace(w=x.w[..., columns], log2_w=x.log2_w[..., columns], tile=self.block.placed(tile))


def _extremes(x: Tensor) -> tuple[float, float]:
    least, most = torch.aminmax(x)
    return least.item(), most.item()


_POOLS: dict[torch.dtype, list["Scratch"]] = {}  # buffers on the CPU that no call uses


class Scratch:
    """Two buffers of a thread, kept for later calls: pages of fresh memory cost as much as the arithmetic."""

    @classmethod
    def of(cls, inputs: ScoreInputs) -> "Scratch":
        """Take one that no other thread uses."""
        try:
            return _POOLS[inputs.dtype].pop() if inputs.q.device.type == "cpu" else cls(inputs)
        except (KeyError, IndexError):
            return cls(inputs)

    def __init__(self, inputs: ScoreInputs) -> None:
        self._like = torch.empty(0, dtype=inputs.dtype, device=inputs.q.device)
        self._buffers = self._like, self._like
        self._usual = min(tile_size(inputs), math.prod(inputs.shape))

    def take(self, tile: Tile) -> tuple[Tensor, Tensor]:
        """Return both in the shape of a tile."""
        b, h, rows, columns = tile
        shape = (b.stop - b.start, h.stop - h.start, rows[1] - rows[0], columns[1] - columns[0])
        n = math.prod(shape)
        if self._buffers[0].numel() < n:
            n_kept = max(n, self._usual)  # tiles that follow the edge of a band grow
            with torch.inference_mode(False):  # they outlive this call
                self._buffers = self._like.new_empty(n_kept), self._like.new_empty(n_kept)
        first, second = self._buffers
        return first[:n].view(shape), second[:n].view(shape)

    def give_back(self) -> None:
        """Keep it for another call, if it is on the CPU and not large."""
        if self._like.device.type == "cpu" and self._buffers[0].numel() <= _SHARED_TILE[1]:
            _POOLS.setdefault(self._like.dtype, []).append(self)


def tile_size(inputs: ScoreInputs) -> int:
    """Return how many weights a tile should hold. The sizes do not depend on how many threads there are."""
    most = _TILE.get(inputs.q.device.type, _TILE["cuda"])
    if not shares_tiles(inputs):
        return most
    smallest, largest = _SHARED_TILE
    return min(most, largest, max(smallest, math.prod(inputs.shape) // 8))


def usable_lse(block: Block) -> Tensor | None:
    """Return the log-sum-exp that a kernel gave, where it is as good as one computed here; else None."""
    inputs, lse = block.inputs, block.lse
    if lse is None or block.is_certain or inputs.requires_grad:
        return None
    if inputs.padding is not None or inputs.sink is not None:
        return None
    if lse.is_cuda:
        if inputs.mask.added:  # too few digits, see kernels.measure
            return None
        return torch.where(lse.abs() < _EMPTY, lse, -inf) if inputs.may_have_empty_rows() else lse
    if inputs.q.dtype != inputs.dtype:  # the CPU's kernels are coarse in half precision
        return None
    return None if bool(((lse == 0) | ~lse.isfinite()).any()) else lse  # what they give for an empty row
