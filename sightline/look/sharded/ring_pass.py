"""Two rounds of a ring: the first gives each query its log-sum-exp over all keys, the second the statistics.

A weight is exp(score - lse) on its own (``stream.py``), so once a query's lse over the keys of all ranks is
known, every block of visiting keys adds its part and is gone:

    lse       log Σ over blocks of exp(lse of the block): local
    entropy   a sum over blocks: local           peak, top   a maximum over blocks: local
    received  a sum over the queries of all ranks: one reduce-scatter, each rank gets its own keys
    map       a sum over all blocks of all ranks: one all-reduce of the bins

The lse is carried in float64, as are its digits below float32 when it is taken off a score: the parts of a
row then sum to one however large its scores are.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from sightline.attention.attend import attention
from sightline.look.inputs import ScoreInputs, Tile
from sightline.look.mass import unfitted
from sightline.look.sharded.axes import Spans
from sightline.look.sharded.blocks import Block
from sightline.look.sharded.collectives import add_up, reduce_scatter
from sightline.look.sharded.ring import Ring
from sightline.look.threads import by_tile
from sightline.look.tile_stats import Cells, StatsRequest, TilePart, reduce_tile
from sightline.shapes import Float

__all__ = ["Lse", "Partial", "attend_round", "lse_round", "measure_round", "over_block", "reduce_partials"]

_TILE = {"cpu": 1 << 19, "cuda": 1 << 26}  # weights alive at a time
_LOG_ZERO = -1e4  # log w is cut off here, so that 0 * log 0 is 0


class Lse:
    """A log-sum-exp in two parts, whose sum has more digits than either.

    Args:
        lse: (B, H, T), float64; -inf for a query that may look at nothing.
        dtype: What scores are computed in.
    """

    def __init__(self, lse: Tensor, dtype: torch.dtype) -> None:
        known = lse.masked_fill(lse == -torch.inf, 0.0)
        self.high = known.to(dtype)
        self.low = (known - self.high.double()).to(dtype)

    def logs(self, block: Block, tile: Tile) -> Float[Tensor, "b h t s"]:
        """The logarithms of the weights of a tile of a block; -inf where a query may not look."""
        index = (tile.batch, tile.heads, slice(*(x + block.rows.start for x in tile.rows)))
        logs = block.inputs.scores(tile)
        return logs.sub_(self.high[index].unsqueeze(-1)).sub_(self.low[index].unsqueeze(-1))


def over_block(
    block: Block,
    ask: Callable[[Tile], Any],
    *,
    queries: tuple[int, int] | None = None,
    keys: tuple[int, int] | None = None,
) -> Iterator[tuple[Tile, Any]]:
    """Ask a question of every tile of a block: pairs of a tile and the answer.

    Args:
        block: Which rectangle.
        ask: Takes a tile; on a CPU several threads may call it.
        queries, keys: Look at these of its queries and keys only.
    """
    size = _TILE.get(block.inputs.q.device.type, _TILE["cuda"])
    tiles = (x for x in block.inputs.tiles(size, queries, keys) if x.columns[0] < x.columns[1])
    yield from by_tile(block.inputs, ask, tiles)


def lse_round(inputs: ScoreInputs, ring: Ring) -> Float[Tensor, "B H T"]:
    """Each query's log-sum-exp over the keys of all ranks, float64."""
    lse = inputs.q.new_full(inputs.q.shape[:3], -torch.inf, dtype=torch.float64)
    for block, _ in ring.blocks(inputs):
        _add_lse(lse[:, :, block.rows], _lse_of(block))
    return lse


def attend_round(
    inputs: ScoreInputs, v: Tensor, ring: Ring
) -> tuple[Float[Tensor, "B H T Dv"], Float[Tensor, "B H T"]]:
    """The output of attention to the keys of all ranks, by the fused kernel on each block, and the lse."""
    b, h, t = inputs.q.shape[:3]
    lse = inputs.q.new_full((b, h, t), -torch.inf, dtype=torch.float64)
    output = inputs.q.new_zeros((b, h, t, v.size(-1)), dtype=inputs.dtype)
    for block, (values,) in ring.blocks(inputs, v):
        part, own = lse[:, :, block.rows], _lse_of(block)
        before = part.clone()
        _add_lse(part, own)
        mask = unfitted(block.inputs.mask)
        mixed = attention(
            block.inputs.q, block.inputs.k, values, mask, score=block.inputs.score, scale=block.inputs.scale
        )
        rows = output[:, :, block.rows]
        rows.mul_(_share(before, part).to(rows.dtype))
        rows.add_(mixed.to(rows.dtype) * _share(own, part).to(rows.dtype))
    return output.to(v.dtype), lse


def _lse_of(block: Block) -> Float[Tensor, "B H T"]:
    """Each query's log-sum-exp over the keys of a block, float64."""
    inputs = block.inputs
    lse = inputs.q.new_full(inputs.q.shape[:3], -torch.inf, dtype=torch.float64)

    def ask(tile: Tile) -> Tensor:
        scores = inputs.scores(tile)
        largest = scores.amax(-1)
        finite = largest.masked_fill(largest == -torch.inf, 0.0)
        return finite.double() + scores.sub_(finite.unsqueeze(-1)).exp_().sum(-1).double().log()

    for tile, part in over_block(block, ask):
        lse[tile.row_index] = part
    return lse


def _add_lse(total: Tensor, part: Tensor) -> None:
    """Add in place."""
    total.copy_(torch.logaddexp(total, part))


def _share(part: Tensor, total: Tensor) -> Float[Tensor, "B H T 1"]:
    """What a part has of a total; nothing of nothing, and NaN of a query that is NaN."""
    return (part - total).masked_fill(total == -torch.inf, -torch.inf).exp().unsqueeze(-1)


@dataclass(eq=False)
class Partial:
    """What the second round has found on this rank.

    Attributes:
        statistics: What is whole already: one number per query of this rank.
        received: (B, H, S), the weight that each key of the whole received from this rank's queries.
        sums: (B, H, rows, columns), the sums in the cells of a map over this rank's queries.
        cells: That map.
        ring: How the sequence is spread.
    """

    ring: Ring
    cells: Cells | None = None
    received: Tensor | None = None
    sums: Tensor | None = None
    statistics: dict[str, Tensor] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """How much has to be reduced."""
        return sum(x.nbytes for x in (self.received, self.sums) if x is not None)


def measure_round(
    inputs: ScoreInputs, lse: Float[Tensor, "B H T"], request: StatsRequest, ring: Ring
) -> Partial:
    """Pass the keys of all ranks by once more, and reduce their weights to what was asked.

    Args:
        inputs: This rank's queries and keys, and the mask of the whole.
        lse: Of the whole rows; float64 keeps all its digits.
        request: What to measure; cells are of the whole T x S.
        ring: How the sequence is spread.
    """
    b, h, t = inputs.q.shape[:3]
    lse = lse.double()
    zeros = inputs.q.new_zeros
    found = Partial(ring, request.cells)
    found.statistics["lse"] = lse.to(inputs.dtype)
    if request.received:
        found.received = zeros((b, h, ring.keys.size), dtype=inputs.dtype)
    if request.cells is not None:
        found.sums = zeros((b, h, request.cells.rows, request.cells.columns), dtype=inputs.dtype)
    if request.entropy:
        found.statistics["entropy"] = zeros((b, h, t), dtype=inputs.dtype)
    for name, width in (("peak", 1 if request.peak else None), ("top", request.top)):
        if width:
            found.statistics[name] = zeros((b, h, t, width), dtype=inputs.dtype)
            found.statistics[f"{name}_at"] = zeros((b, h, t, width), dtype=torch.long) - 1
    if request != StatsRequest():
        split = Lse(lse, inputs.dtype)
        for block, _ in ring.blocks(inputs):
            _measure_block(block, split, request, found)
    for name in ("peak", "peak_at"):
        if name in found.statistics:
            found.statistics[name] = found.statistics[name].squeeze(-1)
    return found


def _measure_block(block: Block, lse: Lse, request: StatsRequest, found: Partial) -> None:
    cells, columns = request.cells, lse.high.new_zeros(0)
    queries, keys = (0, block.inputs.shape[2]), (0, block.inputs.shape[3])
    if cells is not None:
        cells = cells._replace(
            queries=(cells.queries[0] - block.first_query, cells.queries[1] - block.first_query),
            keys=(cells.keys[0] - block.first_key, cells.keys[1] - block.first_key),
        )
        columns = cells.column_of(torch.arange(*cells.keys, device=columns.device))
        queries = max(cells.queries[0], 0), min(cells.queries[1], queries[1])  # a window, if it is one
        keys = max(cells.keys[0], 0), min(cells.keys[1], keys[1])
        if queries[0] >= queries[1] or keys[0] >= keys[1]:
            return
    local = request._replace(cells=cells)

    def ask(tile: Tile) -> TilePart:
        logs = lse.logs(block, tile)
        weights = logs.exp()
        return reduce_tile(
            lse.high, logs.clamp_(min=_LOG_ZERO), weights, tile, local, empty=None, columns=columns
        )

    for tile, part in over_block(block, ask, queries=queries, keys=keys):
        _add_part(found, block, tile, part)


def _add_part(found: Partial, block: Block, tile: Tile, part: TilePart) -> None:
    first, last = (x + block.first_key for x in tile.columns)
    if found.received is not None and part.received is not None:
        found.received[tile.batch, tile.heads, first:last] += part.received
    if found.sums is not None and part.cells is not None:
        stop = part.first_cell + part.cells.size(2)
        found.sums[tile.batch, tile.heads, part.first_cell : stop] += part.cells
    rows = (tile.batch, tile.heads, slice(*(x + block.rows.start for x in tile.rows)))
    if part.entropy is not None:
        found.statistics["entropy"][rows] += part.entropy
    if part.peak is not None and part.peak_at is not None:
        _keep_largest(found, "peak", rows, part.peak.unsqueeze(-1), part.peak_at.unsqueeze(-1), block)
    if part.top is not None and part.top_at is not None:
        _keep_largest(found, "top", rows, part.top, part.top_at, block)


def _keep_largest(
    found: Partial, name: str, rows: tuple[slice, ...], values: Tensor, at: Tensor, block: Block
) -> None:
    """Keep the largest of those known and some new ones; of equal ones that with the smaller key."""
    known, known_at = found.statistics[name], found.statistics[f"{name}_at"]
    at = torch.where(values != 0, at + block.first_key, -1)
    both, both_at = torch.cat([known[rows], values], -1), torch.cat([known_at[rows], at], -1)
    by_key = both_at.argsort(dim=-1, stable=True)  # stable sorts: first by the key, then by the weight
    both, both_at = both.gather(-1, by_key), both_at.gather(-1, by_key)
    order = both.argsort(dim=-1, descending=True, stable=True)[..., : known.size(-1)]
    known[rows], known_at[rows] = both.gather(-1, order), both_at.gather(-1, order)


def reduce_partials(partials: list[Partial]) -> list[dict[str, Tensor]]:
    """The statistics of each, with what all ranks of a group have to add up.

    However many layers there are, that is one reduce-scatter for all that was received and one all-reduce for
    all maps; each rank of the group must call it with as many.
    """
    received = [x for x in partials if x.received is not None]
    maps = [x for x in partials if x.sums is not None]
    if received:
        parts = [(x.received, x.ring.keys.parts) for x in received if x.received is not None]
        for one, own in zip(received, scatter_sums(parts, received[0].ring), strict=True):
            one.statistics["received"] = own
    if maps:
        sums = [x.sums for x in maps if x.sums is not None]
        for one, total in zip(maps, add_up(sums, maps[0].ring.group), strict=True):
            assert one.cells is not None  # noqa: S101
            one.statistics["map"] = total.div_(one.cells.areas(total.device))
    return [x.statistics for x in partials]


def scatter_sums(
    parts: list[tuple[Float[Tensor, "B H S"], tuple[Spans, ...]]], ring: Ring, *, largest: bool = False
) -> list[Float[Tensor, "B H s"]]:
    """Add up what all ranks have of all keys, each rank getting its own: one reduce-scatter.

    Args:
        parts: This rank's share of each sum, and which keys each rank has.
        ring: The ranks.
        largest: Whether to take maxima instead of sums.
    """
    by_rank: list[Tensor] = []
    for rank in range(ring.size):
        chosen = [torch.cat([x[..., a:b] for a, b in spans[rank]], -1) for x, spans in parts]
        by_rank.append(torch.cat([x.flatten() for x in chosen]))
    own = reduce_scatter(by_rank, ring.group, largest=largest)
    results, first = [], 0
    for x, spans in parts:
        n = sum(b - a for a, b in spans[ring.rank])
        shape = (*x.shape[:2], n)
        results.append(own[first : first + math.prod(shape)].view(shape).clone())
        first += math.prod(shape)
    return results
