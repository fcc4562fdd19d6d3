"""How large the tiles of each kernel are, by the width of a head and the size of its numbers."""

import functools
from typing import NamedTuple

import torch

from sightline.look.inputs import ScoreInputs


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
    weighted_sum: Tile  # of the backward pass, as are the next two
    by_query: Tile
    by_key: Tile


@functools.cache
def tiles_of(width: int, dtype: torch.dtype) -> Tiles:
    """The tiles that were fastest on an H200; ``python -m benchmarks look`` measures them."""
    if dtype == torch.float32:  # without tensor cores, and twice as wide
        small = Tile(16, 32, 4, 2) if width > 128 else Tile(32, 32, 4, 2)
        return Tiles(*[small] * 6)
    if width > 128:
        even = Tile(64, 64, 4, 2)
        return Tiles(*[even] * 6)
    wide = width > 64
    narrow = Tile(64, 64, 4, 3, 168)
    return Tiles(
        weights=Tile(64, 64, 4, 2, None if wide else 168),
        rows=Tile(128, 128, 8, 2),
        top=Tile(128, 64, 8, 3),
        weighted_sum=Tile(128, 128, 8, 2) if wide else narrow,
        by_query=Tile(128, 64, 8, 3) if wide else narrow,
        by_key=Tile(128, 64, 4, 2) if wide else narrow,
    )


def width_of(inputs: ScoreInputs) -> int:
    """The width of a head as the kernels see it: a power of two, at least sixteen."""
    return max(16, power_of_two(inputs.q.size(3)))


def power_of_two(n: int) -> int:
    """The least that is no less than n. Triton's own function takes ten times as long outside a kernel."""
    return 1 << (n - 1).bit_length()


def blocks_of(n: int, size: int) -> int:
    """How many blocks of that size hold n."""
    return -(-n // size)
