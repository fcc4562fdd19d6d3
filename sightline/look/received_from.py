"""Which keys some queries looked at: what a key-value cache may forget.

    received[s] = Σ_t w[t, s], or the mean, or the maximum, over a window of queries

Over a window of the last queries it is SnapKV's vote, over all of them H2O's; reduced over the query heads
that share a key head it has one number per entry of the cache.
"""

from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from sightline.look.inputs import Tile
from sightline.look.kernels.covers import covers
from sightline.look.tile_pass import over_tiles
from sightline.shapes import Float

if TYPE_CHECKING:
    from sightline.look.sight_data import SavedInputs, SightData

__all__ = ["Reduce", "received_from"]

Reduce = Literal["sum", "mean", "max"]


def received_from(
    sight: "SightData",
    queries: tuple[int, int] | None = None,
    reduce: Reduce = "sum",
    n_kv_heads: int | None = None,
) -> Float[Tensor, "... S"]:
    """See :meth:`sightline.Sight.received_from`."""
    first, last = sight.check_span("queries", queries)
    if sight.averaged and (reduce == "max" or n_kv_heads is not None):
        raise ValueError(
            f"a maximum and groups of heads belong to single heads, got reduce={reduce!r} of averaged heads; "
            "ask the sight before mean_heads()"
        )
    group = _group_size(sight, n_kv_heads)
    kept = sight.require_kept("what keys received from a window of queries", history=True)
    if len(kept) == 1 and covers(kept[0].inputs, kept[0].lse, maxima=reduce == "max"):
        from sightline.look.kernels.received_from import received_from as on_gpu  # noqa: PLC0415

        total = on_gpu(kept[0].inputs, kept[0].lse, (first, last), largest=reduce == "max")
    else:
        total = _by_tiles(sight, kept, (first, last), reduce)
    total = sight.restore_lead(total)
    if reduce == "mean":
        total = total / (~sight.is_padding[..., first:last]).sum(-1, keepdim=True).clamp(min=1)
    if group == 1:
        return total
    grouped = total.unflatten(-2, (-1, group))  # query heads that share their keys follow each other
    return grouped.amax(-2) if reduce == "max" else grouped.sum(-2) if reduce == "sum" else grouped.mean(-2)


def _by_tiles(
    sight: "SightData", kept: "tuple[SavedInputs, ...]", queries: tuple[int, int], reduce: Reduce
) -> Float[Tensor, "B H S"]:
    first, last = queries
    b, h = kept[0].inputs.shape[:2]
    total = kept[0].lse.new_zeros(b, h, sight.s)
    position = 0
    for inputs, lse, first_key, _ in kept:
        t = inputs.shape[2]
        window = max(first - position, 0), min(last - position, t)
        position += t
        if window[0] >= window[1]:
            continue

        def ask(weights: Tensor, _tile: Tile) -> Tensor:
            return weights.amax(-2) if reduce == "max" else weights.sum(-2)

        for tile, part in over_tiles(inputs, lse, ask, queries=window):
            left, right = tile.columns
            index = (tile.batch, tile.heads, slice(left + first_key, right + first_key))
            if reduce == "max":
                total[index] = torch.maximum(total[index].clone(), part)
            else:
                total[index] += part
    return total


def _group_size(sight: "SightData", n_kv_heads: int | None) -> int:
    """How many query heads share a key head."""
    if n_kv_heads is None:
        return 1
    heads = sight.lead[-1] if sight.has_heads else 1
    if n_kv_heads < 1 or heads % n_kv_heads:
        raise ValueError(
            f"n_kv_heads must divide the number of query heads, got {n_kv_heads} for {heads} heads; a "
            "model's config calls it num_key_value_heads"
        )
    return heads // n_kv_heads
