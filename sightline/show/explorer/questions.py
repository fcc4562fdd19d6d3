"""The questions about one layer: maps, rows, columns, the strongest links, strips beside a map."""

from typing import Any

import torch
from torch import Tensor

from sightline.look.sight import Sight
from sightline.shapes import Float
from sightline.show.explorer.arrays import pack
from sightline.show.explorer.layers import Layer
from sightline.show.explorer.requests import Request

__all__ = ["column", "map_", "quick_map", "row", "strips", "top", "word"]

_QUICK_ROWS = 64  # queries that a quick map looks at
_TOP, _MOST_TOP = 8, 256


def map_(request: Request) -> dict[str, Any]:
    """The weights of a window: exact, or with ``quick`` of evenly spaced queries alone."""
    queries, keys, (rows, columns) = request.span("queries"), request.span("keys"), request.size()
    is_quick = bool(request.fields.get("quick")) and queries[1] - queries[0] > _QUICK_ROWS
    if is_quick:
        cells = quick_map(request.sight, (min(rows, _QUICK_ROWS), columns), queries, keys)
    else:
        cells = request.sight.map((rows, columns), queries=queries, keys=keys)
    return {
        "map": pack(cells),
        "queries": list(queries),
        "keys": list(keys),
        "largest": _largest(cells),
        "quick": is_quick,
    }


def quick_map(
    sight: Sight, size: tuple[int, int], queries: tuple[int, int], keys: tuple[int, int]
) -> Float[Tensor, "... rows columns"]:
    """A map of one query per row, the one in the middle of it."""
    rows, columns = size
    n = queries[1] - queries[0]
    chosen = (queries[0] + (2 * i + 1) * n // (2 * rows) for i in range(rows))
    return torch.cat([sight.map((1, columns), queries=(t, t + 1), keys=keys) for t in chosen], dim=-2)


def row(request: Request) -> dict[str, Any]:
    """What one query read."""
    sight, keys = request.sight, request.span("keys")
    t = request.whole("query", None, sight.t)
    weights = sight.map((1, request.width("keys")), queries=(t, t + 1), keys=keys)[0]
    entropy = sight.statistics.get("entropy")
    return {
        "row": pack(weights),
        "query": t,
        "keys": list(keys),
        "largest": _largest(weights),
        "entropy": None if entropy is None else float(entropy[t]),
    }


def column(request: Request) -> dict[str, Any]:
    """By whom one key was read."""
    sight, queries = request.sight, request.span("queries")
    s = request.whole("key", None, sight.s)
    weights = sight.map((request.width("queries"), 1), queries=queries, keys=(s, s + 1))[:, 0]
    received = sight.statistics.get("received")
    return {
        "column": pack(weights),
        "key": s,
        "queries": list(queries),
        "largest": _largest(weights),
        "received": None if received is None else float(received[s]),
    }


def top(request: Request) -> dict[str, Any]:
    """The strongest links of one query, or of one key: largest first."""
    sight = request.sight
    values, at = _strongest(_line(request, sight), request.count("n", _TOP, _MOST_TOP))
    return {"weights": pack(values), "at": pack(at, "i32")}


def word(request: Request) -> dict[str, Any]:
    """What a query read, or by whom a key was read, in every head of all layers alike."""
    base = request.layer
    side = "queries" if "key" in request.fields else "keys"
    span, width = request.span(side), request.width(side)
    alike = [i for i, layer in enumerate(request.layers) if _is_alike(layer, base)]
    lines, heads = [], []
    for i in alike:
        layer = request.layers[i]
        if side == "keys":
            t = request.whole("query", None, base.sight.t)
            part = layer.sight.map((1, width), queries=(t, t + 1), keys=span)
        else:
            s = request.whole("key", None, base.sight.s)
            part = layer.sight.map((width, 1), queries=span, keys=(s, s + 1))
        lines.append(part.reshape(layer.n_heads, width))
        heads += [[i, h] for h in range(layer.n_heads)]
    every = torch.cat(lines)
    return {"heads": heads, "rows": pack(every), side: list(span), "largest": _largest(every)}


def strips(request: Request) -> dict[str, Any]:
    """What keys received and the entropy of queries, each the mean over the cells of a window's side."""
    sight, (rows, columns) = request.sight, request.size()
    queries, keys = request.span("queries"), request.span("keys")
    found: dict[str, Any] = {"queries": list(queries), "keys": list(keys)}
    for name, n, span in (("entropy", rows, queries), ("received", columns, keys)):
        whole = sight.statistics.get(name)
        if whole is not None:
            found[name] = pack(_means(whole[span[0] : span[1]], n))
            found[f"{name}_largest"] = _largest(whole)
    return found


def _line(request: Request, sight: Sight) -> Float[Tensor, " n"]:
    """A whole row, or a whole column."""
    if "key" in request.fields:
        s = request.whole("key", None, sight.s)
        return sight.map((sight.t, 1), keys=(s, s + 1))[:, 0]
    t = request.whole("query", None, sight.t)
    return sight.map((1, sight.s), queries=(t, t + 1))[0]


def _strongest(weights: Float[Tensor, " n"], n: int) -> tuple[Tensor, Tensor]:
    values, at = weights.topk(min(n, weights.numel()))
    return values[values > 0], at[values > 0]


def _is_alike(layer: Layer, base: Layer) -> bool:
    """Whether a layer looks from the same tokens at the same tokens; it may have more, as an end token."""
    t, queries = base.sight.t, layer.queries
    same_queries = layer.sight.t == t if queries is None else queries[:t] == base.queries
    return same_queries and (layer.sight.s, layer.keys, layer.key_patches, layer.is_cross) == (
        base.sight.s,
        base.keys,
        base.key_patches,
        base.is_cross,
    )


def _means(x: Float[Tensor, " n"], cells: int) -> Float[Tensor, " cells"]:
    """The mean of each of some cells: as even as whole numbers allow, cut where a map's are."""
    edges = torch.arange(cells + 1, device=x.device) * x.numel() // cells
    sums = torch.nn.functional.pad(x.detach().double().cumsum(0), (1, 0))[edges].diff()
    return (sums / edges.diff()).to(x.dtype)


def _largest(x: Tensor) -> float:
    return float(x.max()) if x.numel() else 0.0
