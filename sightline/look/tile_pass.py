"""Later questions: one more pass over tiles of weights, from the kept q, k and log-sum-exp.

Each question is a function of one tile's weights; the tile is dropped when it is answered, so memory is
O(T + S). Where the look's inputs carry gradients so does the answer: a tile is computed again in the
backward pass, and nothing is kept.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from sightline.look.inputs import ScoreInputs, Tile
from sightline.look.stream import tile_weights
from sightline.look.threads import by_tile
from sightline.shapes import Float

_TILE = {"cpu": 1 << 19, "cuda": 1 << 26}  # weights alive at a time
_COARSE = 100.0  # an lse further from zero is rounded to more than 4e-6, see stream.tile_weights

TileQuestion = Callable[[Tensor, Tile], Tensor]


def over_tiles(
    inputs: ScoreInputs,
    lse: Float[Tensor, "B H T"],
    ask: TileQuestion,
    *,
    queries: tuple[int, int] | None = None,
    keys: tuple[int, int] | None = None,
) -> Iterator[tuple[Tile, Tensor]]:
    """Ask a question of every tile of weights: pairs of a tile and the answer.

    Args:
        inputs: What the weights are made of.
        lse: Each query's log-sum-exp.
        ask: Takes the weights (b, h, t, s) of a tile and the tile; on a CPU several threads may call it.
        queries, keys: Look at these only, ``(first, past_the_last)``.
    """
    size = _TILE.get(lse.device.type, _TILE["cuda"])
    tiles = (tile for tile in inputs.tiles(size, queries, keys) if tile.columns[0] < tile.columns[1])
    if needs_grad(inputs, lse):
        for tile in tiles:
            part = lse[tile.row_index]
            yield tile, checkpoint(_answer, inputs, tile, part, ask, use_reentrant=False)
    else:
        yield from by_tile(
            inputs, lambda tile: ask(tile_weights(inputs, tile, lse[tile.row_index]), tile), tiles
        )


def needs_grad(inputs: ScoreInputs, lse: Tensor) -> bool:
    """Whether an answer should carry gradients to what the weights are made of."""
    return inputs.requires_grad or (torch.is_grad_enabled() and lse.requires_grad)


def _answer(inputs: ScoreInputs, tile: Tile, lse: Tensor, ask: TileQuestion) -> Tensor:
    return ask(_differentiable_weights(inputs, tile, lse), tile)


def _differentiable_weights(
    inputs: ScoreInputs, tile: Tile, lse: Float[Tensor, "b h t"]
) -> Float[Tensor, "b h t s"]:
    """The same as ``tile_weights``, with a gradient of zero where there is nothing to look at."""
    empty = (lse == -torch.inf).unsqueeze(-1)
    known = lse.detach()
    if bool((known.abs() > _COARSE).logical_and_(known.isfinite()).any()):
        row = tile._replace(columns=inputs.mask.keys(tile.rows, *inputs.shape[2:]))
        first = row.columns[0]
        scores = inputs.scores(row).masked_fill(empty, 0.0)
        logs = scores.log_softmax(-1)
        if inputs.sink is not None:
            logs = logs + inputs.log_rest(scores.logsumexp(-1), row).unsqueeze(-1)
        logs = logs[..., tile.columns[0] - first : tile.columns[1] - first]
    else:
        shift = lse.unsqueeze(-1).masked_fill(empty, 0.0)
        logs = inputs.scores(tile).masked_fill(empty, 0.0) - shift
    return logs.exp().masked_fill(empty, 0.0)
