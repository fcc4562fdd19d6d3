"""All heads at once: a thumbnail of each, what it is like, and what such a head is called."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from torch import Tensor

from sightline.look.head_rows import Head
from sightline.look.heads import head_table, mean_per_head
from sightline.shapes import Float
from sightline.show.explorer.arrays import pack
from sightline.show.explorer.layers import Layer
from sightline.show.explorer.questions import quick_map
from sightline.show.explorer.requests import Request

__all__ = ["overview"]

_SIDE, _MOST_SIDE = 48, 128  # cells of a thumbnail
_FEW = 1 << 25  # pairs of queries and keys, over all heads of a layer, that are looked through at once
_QUICK_ROWS = 24


def overview(request: Request) -> dict[str, Any]:
    """Thumbnails and numbers of all layers, or of one."""
    side = request.count("size", _SIDE, _MOST_SIDE)
    chosen = range(len(request.layers)) if request.fields.get("sight") is None else [request.layer_index]
    return {"sights": [_layer(request.layers[i], i, side) for i in chosen]}


def _layer(layer: Layer, index: int, side: int) -> dict[str, Any]:
    cells, is_exact = _thumbnails(layer, side)
    largest = cells.amax((-2, -1))
    levels = (cells / largest.clamp(min=1e-30)[:, None, None] * 255).round()
    return {
        "sight": index,
        "thumbnails": pack(levels, "u8"),
        "largest": largest.tolist(),
        "exact": is_exact,
        "heads": list(_numbers(layer)),
    }


def _n_pairs(layer: Layer) -> int:
    return layer.n_heads * layer.sight.t * layer.sight.s


def _thumbnails(layer: Layer, side: int) -> tuple[Float[Tensor, "H rows columns"], bool]:
    """A small map of each head: as it was measured, or exact where that is quick, else of some queries."""
    sight = layer.sight
    size = (min(side, sight.t), min(side, sight.s))
    measured = sight.statistics.get("map")
    if measured is not None and not sight.kept:
        cells, is_exact = measured, True
    elif _n_pairs(layer) <= _FEW or (measured is not None and tuple(measured.shape[-2:]) == size):
        cells, is_exact = sight.map(size), True
    else:
        cells = quick_map(sight, (min(_QUICK_ROWS, size[0]), size[1]), (0, sight.t), (0, sight.s))
        is_exact = False
    return cells.detach().float().reshape(layer.n_heads, *cells.shape[-2:]).cpu(), is_exact


def _numbers(layer: Layer) -> Iterator[dict[str, Any]]:
    """What each head is like; None for what is not known, or would take long to find."""
    sight = layer.sight
    known: dict[str, Tensor] = {}
    for name in ("entropy", "peak"):
        if name in sight.statistics:
            known[name] = mean_per_head(sight.statistics[name].sum(-1), sight)
    if "received" in sight.statistics:
        known["first"] = mean_per_head(sight.received[..., 0], sight)
    if sight.backward is not None:
        known["importance"] = sight.importance.reshape(-1, layer.n_heads).mean(0)
    table: list[Head] = []
    if sight.kept and _n_pairs(layer) <= _FEW and {"entropy", "peak", "first"} <= set(known):
        table = head_table({layer.name: sight})
    for h in range(layer.n_heads):
        numbers: dict[str, Any] = {name: _finite(x[h]) for name, x in known.items()}
        if h < len(table) and not layer.is_summary:
            numbers |= {
                "distance": None if layer.is_cross else table[h].distance,
                "evenness": table[h].evenness,
                "kind": table[h].kind,
            }
        yield numbers


def _finite(x: Tensor) -> float | None:
    value = float(x)
    return value if np.isfinite(value) else None
