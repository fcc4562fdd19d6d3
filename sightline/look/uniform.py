"""Even attention, what a sight is compared with: every query looks at all it may, alike.

With n[t] keys that query t may look at, causality and padding counted:

    entropy[t] = log n[t]        received[s] = Σ_t [t may look at s] / n[t]

A causal head is not sharp because its first queries have few keys, nor is the first key a sink because all
see it. Windows and lengths are counted in O(T + S), masks that are tensors or functions tile by tile.
"""

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from sightline.look.inputs import PrecomputedWeights, ScoreInputs, Tile
from sightline.shapes import Bool, Float, Int

if TYPE_CHECKING:
    from sightline.look.sight import Sight

__all__ = ["UniformAttention", "even_attention"]

_TILE = {"cpu": 1 << 21}  # pairs at a time
_TILE_ELSEWHERE = 1 << 26
_FORBIDDEN = -1e4  # a bias that leaves no weight, in any dtype


class UniformAttention(NamedTuple):
    """What even attention would give, in the leading dimensions of a sight.

    Attributes:
        reach: How many keys each query may look at.
        entropy: The entropy of its weights, in nats; zero where it may look at nothing.
        received: The weight each key would receive, summed over the queries.
    """

    reach: Int[Tensor, "... T"]
    entropy: Float[Tensor, "... T"]
    received: Float[Tensor, "... S"]


def even_attention(sight: "Sight") -> UniformAttention | None:
    """What even attention would give; None where a mask was there and is not known any more.

    Example:
        >>> x = torch.randn(1, 1, 3, 8)
        >>> even_attention(sl.look(x, x, x, sl.masks.causal())).reach
        tensor([[[1, 2, 3]]])
    """
    if not sight.kept:
        return None if sight.is_masked else _unmasked(sight)
    b, h = sight.kept[0].inputs.shape[:2]
    device = sight.kept[0].inputs.q.device
    received = torch.zeros(b, h, sight.s, device=device)
    counts = []
    for inputs, first_key in ((x.inputs, x.key) for x in sight.kept):
        reach, shares = (_of_bands if _has_bands_alone(inputs) else _of_tiles)(inputs)
        received[..., first_key : first_key + inputs.shape[3]] += shares
        counts.append(reach.expand(inputs.shape[:3]))
    lead = sight.lead
    reach = torch.cat(counts, -1).reshape(*lead, sight.t)
    entropy, whole = reach.clamp(min=1).log(), received.reshape(*lead, sight.s)
    if sight.averaged:
        dim = len(lead) - 1
        return UniformAttention(reach.amax(dim), entropy.mean(dim), whole.mean(dim))
    return UniformAttention(reach, entropy, whole)


def _unmasked(sight: "Sight") -> UniformAttention:
    shape, t, s = sight.shape, sight.t, sight.s
    device = next(iter(sight.statistics.values())).device
    reach = torch.full((*shape, t), s, device=device)
    entropy = torch.full((*shape, t), math.log(max(s, 1)), device=device)
    return UniformAttention(reach, entropy, torch.full((*shape, s), t / max(s, 1), device=device))


def _has_bands_alone(inputs: ScoreInputs) -> bool:
    """Whether a query's keys are a range: nothing but windows and lengths limit them."""
    plain = type(inputs) is ScoreInputs and inputs.modify is None
    return plain and not inputs.mask.allowed and not inputs.mask.added


def _of_bands(inputs: ScoreInputs) -> tuple[Int[Tensor, "b 1 T"], Float[Tensor, "b 1 S"]]:
    """Each query's reach, and what each key would receive, from the ends of the ranges of keys."""
    t, s = inputs.shape[2:]
    places = torch.arange(t, device=inputs.q.device)
    first, last = torch.zeros_like(places), torch.full_like(places, s)
    for band in inputs.mask.bands:
        shift = s - t if band.align == "end" else 0
        first = first if band.left is None else first.clamp(min=0).maximum(places + shift - band.left)
        last = last if band.right is None else last.minimum(places + shift + band.right + 1)
    first, last = first.expand(1, 1, t), last.expand(1, 1, t)
    for lengths in inputs.mask.lengths:
        last = last.minimum(lengths[:, :1, :, 0])
    reach = (last - first).clamp(min=0)
    if inputs.padding is not None:
        reach = reach.masked_fill(inputs.padding, 0)
    first, last, reach = torch.broadcast_tensors(first, last, reach)
    share = torch.where(reach > 0, 1.0 / reach.clamp(min=1), 0.0)
    edges = torch.zeros(*reach.shape[:2], s + 1, device=reach.device, dtype=torch.float64)
    edges.scatter_add_(-1, first.clamp(0, s), share.double())
    edges.scatter_add_(-1, last.clamp(0, s).maximum(first.clamp(0, s)), -share.double())
    return reach, edges.cumsum(-1)[..., :s].float()


def _of_tiles(inputs: ScoreInputs) -> tuple[Int[Tensor, "B H T"], Float[Tensor, "B H S"]]:
    """The same, pair by pair."""
    reach = torch.zeros(inputs.shape[:3], dtype=torch.long, device=inputs.q.device)
    received = torch.zeros(*inputs.shape[:2], inputs.shape[3], device=inputs.q.device)
    for tile in inputs.tiles(_TILE.get(reach.device.type, _TILE_ELSEWHERE)):
        allowed = _allowed(inputs, tile)
        n = reach[tile.row_index] = allowed.sum(-1)
        received[tile.column_index] += (allowed / n.clamp(min=1).unsqueeze(-1)).sum(-2)
    return reach, received


def _allowed(inputs: ScoreInputs, tile: Tile) -> Bool[Tensor, "b h t s"]:
    """Which pairs of a tile may look; of kept weights, those that do."""
    if isinstance(inputs, PrecomputedWeights):
        return inputs.q[tile.row_index][..., slice(*tile.columns)] > 0
    (b, h), (t, s) = (
        (x.stop - x.start for x in (tile.batch, tile.heads)),
        (x[1] - x[0] for x in (tile.rows, tile.columns)),
    )
    allowed = torch.ones(b, h, t, s, dtype=torch.bool, device=inputs.q.device)
    if inputs.modify is not None:
        allowed &= inputs.modify(torch.zeros(b, h, t, s, device=inputs.q.device), tile) > -torch.inf
    if inputs.mask.limits:
        block = inputs.mask.block(tile.rows, tile.columns, *inputs.shape[2:], device=inputs.q.device)
        if block.dim() == 4:
            block = block[tile.batch] if block.size(0) != 1 else block
            block = block[:, tile.heads] if block.size(1) != 1 else block
        allowed &= block if block.dtype == torch.bool else block > _FORBIDDEN
    if inputs.padding is not None:
        allowed &= ~inputs.padding[tile.batch, :, slice(*tile.rows), None]
    return allowed
