"""What a saved page holds: a map of every head, as fine as its size allows, and what else views ask for.

A weight is stored as a whole number of steps, two bytes each, low bytes first and then high bytes, deflated:
most high bytes are zero, so that they take no room.
"""

import base64
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from sightline.show.explorer.layers import Layer
from sightline.show.explorer.questions import quick_map

__all__ = ["StoredMaps", "store"]

_SIDES = (1 << 20, 1024, 768, 512, 384, 256, 192, 128, 96, 64, 48, 32, 16)  # cells a side: all, or so many
_BITS = (16, 14, 13, 12, 11, 10, 9, 8)
_PER_CELL = 1.2  # characters of a cell with so many bits, about
_LONG = 1 << 31  # pairs over all heads of a layer, beyond which a map takes too long
_QUICK_ROWS = 64


@dataclass(frozen=True, kw_only=True)
class StoredMaps:
    """The layers as JSON, and what to say of them.

    Attributes:
        data: For the page's script: ``layers``, ``entropy`` and ``received``, one of each per layer.
        note: What is stored, in a sentence.
    """

    data: dict[str, Any]
    note: str


def store(layers: Sequence[Layer], max_bytes: int) -> StoredMaps:
    """Store a map of every head.

    Args:
        layers: What is shown.
        max_bytes: How many characters the maps may take, about.
    """
    side = _side(layers, max_bytes)
    found = [_map(layer, side) for layer in layers]
    maps = [cells for cells, _ in found]
    packed, bits = _fitting(maps, max_bytes)
    lines: dict[str, list[Any]] = {"entropy": [], "received": []}
    for layer, name in ((layer, name) for layer in layers for name in lines):
        lines[name].append(_line(layer, name, side))
    return StoredMaps(data={"layers": packed, **lines}, note=_note(layers, maps, side, bits, found))


def _side(layers: Sequence[Layer], max_bytes: int) -> int:
    """The largest side whose maps are likely to fit."""

    def cells(side: int) -> int:
        return sum(x.n_heads * min(x.sight.t, side) * min(x.sight.s, side) for x in layers)

    return next((side for side in _SIDES if cells(side) * _PER_CELL <= max_bytes), _SIDES[-1])


def _map(layer: Layer, side: int) -> tuple["npt.NDArray[np.float32]", bool]:
    """(H, rows, columns), and whether it is exact."""
    sight = layer.sight
    size = (min(sight.t, side), min(sight.s, side))
    is_exact = True
    measured = sight.statistics.get("map")
    if measured is not None and (not sight.kept or layer.n_heads * sight.t * sight.s > _LONG):
        cells: Tensor = measured
    elif layer.n_heads * sight.t * sight.s > _LONG:
        is_exact = False
        cells = quick_map(sight, (min(_QUICK_ROWS, size[0]), size[1]), (0, sight.t), (0, sight.s))
    else:
        cells = sight.map(size)
    cells = cells.detach().float().cpu().reshape(layer.n_heads, *cells.shape[-2:])
    return cells.numpy(), is_exact


def _fitting(maps: Sequence["npt.NDArray[np.float32]"], max_bytes: int) -> tuple[list[dict[str, Any]], int]:
    """The maps packed with as many bits as fit."""
    for bits in _BITS:
        packed = [_pack(cells, bits) for cells in maps]
        if sum(len(one["packed"]) for one in packed) <= max_bytes:
            break
    return packed, bits


def _pack(cells: "npt.NDArray[np.float32]", bits: int) -> dict[str, Any]:
    """The cells of each head in steps, the largest the last one."""
    heads = len(cells)
    largest = cells.reshape(heads, -1).max(1) if cells.size else np.zeros(heads, np.float32)
    steps = largest / ((1 << bits) - 1)
    whole = np.rint(cells / np.maximum(steps, 1e-38)[:, None, None]).astype(np.uint16)
    data = (whole & 255).astype(np.uint8).tobytes() + (whole >> 8).astype(np.uint8).tobytes()
    return {
        "packed": base64.b64encode(zlib.compress(data, 9)).decode(),
        "shape": list(cells.shape),
        "steps": [float(f"{step:.7g}") for step in steps],
    }


def _line(layer: Layer, name: str, side: int) -> dict[str, Any] | None:
    """A number per query or key of each head, (H, 1, cells): all of them, or means over cells."""
    values = layer.sight.statistics.get(name)
    if values is None:
        return None
    x = values.detach().float().cpu().reshape(layer.n_heads, -1).numpy().astype(np.float64)
    n, cells = x.shape[1], min(x.shape[1], side)
    edges = np.arange(cells + 1) * n // cells
    sums = np.concatenate([np.zeros((len(x), 1)), x.cumsum(1)], 1)
    means = np.diff(sums[:, edges], axis=1) / np.diff(edges)
    return _pack(means.astype(np.float32)[:, None], 16)


def _note(
    layers: Sequence[Layer],
    maps: Sequence["npt.NDArray[np.float32]"],
    side: int,
    bits: int,
    found: Sequence[tuple[Any, bool]],
) -> str:
    precision = max(float(cells.max()) for cells in maps) / (1 << bits) / 2
    exact = f"to within {np.format_float_positional(precision, precision=1, fractional=False)}"
    if all(max(layer.sight.t, layer.sight.s) <= side for layer in layers):
        return f"This page holds every weight {exact}."
    some = (
        "" if all(is_exact for _, is_exact in found) else ", of some of its queries where there are very many"
    )
    rows, columns = max(cells.shape[1] for cells in maps), max(cells.shape[2] for cells in maps)
    return (
        f"This page holds means over {rows} x {columns} cells of each head {exact}{some}; a notebook and "
        "sightline serve compute every level, down to single weights."
    )
