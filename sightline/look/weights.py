"""Statistics of weights that a model has computed itself: the matrix is there, so it is reduced at once."""

import torch
from torch import Tensor

from sightline.look.inputs import PrecomputedWeights, Tile
from sightline.look.stream import Stats, StatsRequest, max_with_index, sum_columns, sum_rows
from sightline.shapes import Float

_CHUNK = 1 << 22  # weights reduced at a time


def measure_weights(inputs: PrecomputedWeights, request: StatsRequest, lse: Float[Tensor, "B H T"]) -> Stats:
    """Reduce a matrix of weights to what was asked.

    Args:
        inputs: The weights. Rows may sum to less than one, where a sink takes the rest.
        request: What to measure.
        lse: Each query's log-sum-exp, for the record.
    """
    weights = inputs.q
    b, h, t, s = weights.shape
    empty = inputs.empty_rows()
    received = weights.sum(-2) if request.received else None
    rows = max(1, _CHUNK // max(1, h * s))
    chunks = [
        (item, first, weights[item : item + 1, :, first : first + rows])
        for item in range(b)
        for first in range(0, t, rows)
    ]
    entropy = peak = peak_at = cells = top = top_at = None
    if request.entropy:
        entropy = _gather(weights, [torch.special.entr(x).sum(-1) for _, _, x in chunks], (b, h, t))
    if request.peak and s:
        pairs = [max_with_index(x) for _, _, x in chunks]
        peak = _gather(weights, [x for x, _ in pairs], (b, h, t))
        peak_at = _gather(weights, [x for _, x in pairs], (b, h, t)).long().masked_fill_(empty, -1)
    elif request.peak:
        peak = weights.new_zeros(b, h, t)
        peak_at = torch.full_like(peak, -1, dtype=torch.long)
    if request.top:
        top, top_at = weights.topk(request.top, dim=-1)
        top_at = top_at.masked_fill(top == 0, -1)
    if request.cells is not None:
        columns = request.cells.column_of(torch.arange(*request.cells.keys, device=weights.device))
        cells = weights.new_zeros(b, h, request.cells.rows, request.cells.columns)
        for item, first, x in chunks:
            tile = Tile(slice(item, item + 1), slice(0, h), (first, first + x.size(2)), (0, s))
            row, by_row = sum_rows(x, tile, request.cells)
            part = sum_columns(by_row, tile, request.cells, columns)
            cells[item : item + 1, :, row : row + part.size(2)] += part
        cells.div_(request.cells.areas(cells.device))
    return Stats(lse.masked_fill(empty, -torch.inf), received, entropy, peak, peak_at, cells, top, top_at)


def _gather(like: Tensor, parts: list[Tensor], shape: tuple[int, int, int]) -> Tensor:
    """Put chunks of items and rows back together."""
    if not parts:
        return like.new_zeros(shape)
    b, h, t = shape
    per_item = len(parts) // b
    items = [torch.cat(parts[i * per_item : (i + 1) * per_item], dim=-1) for i in range(b)]
    return torch.cat(items).view(b, h, t)
