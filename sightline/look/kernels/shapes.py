"""How large the tiles of each kernel are, by the width of a head and the size of its numbers."""

from typing import NamedTuple

import torch
import triton

from sightline.look.pairs import Pairs


class Tile(NamedTuple):
    """A tile of pairs, and how a program is run on it."""

    queries: int
    keys: int
    warps: int
    stages: int
    registers: int | None = None  # of a thread at most, so that more programs share a processor


class Tiles(NamedTuple):
    """The tile of each kernel."""

    weights: Tile
    rows: Tile
    top: Tile
    backward: Tile


def tiles_of(pairs: Pairs) -> Tiles:
    """The tiles that were fastest on an H200; ``sightline bench look`` measures them."""
    width = width_of(pairs)
    if pairs.q.dtype == torch.float32:  # without tensor cores, and twice as wide
        small = Tile(16, 32, 4, 2) if width > 128 else Tile(32, 32, 4, 2)
        return Tiles(weights=small, rows=small, top=small, backward=small)
    if width > 128:
        even = Tile(64, 64, 4, 2)
        return Tiles(weights=even, rows=even, top=even, backward=even)
    weights = Tile(64, 64, 4, 2) if width > 64 else Tile(64, 64, 4, 2, 168)
    return Tiles(
        weights=weights, rows=Tile(128, 128, 8, 2), top=Tile(128, 64, 8, 3), backward=Tile(64, 64, 4, 3)
    )


def width_of(pairs: Pairs) -> int:
    """The width of a head as the kernels see it: a power of two, at least sixteen."""
    return max(16, triton.next_power_of_2(pairs.q.size(3)))
