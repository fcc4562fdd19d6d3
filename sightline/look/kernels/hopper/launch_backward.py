"""How the kernel of the backward pass is run: in what tiles, with what belongs to columns padded to them."""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from sightline.look.kernels import prepared
from sightline.look.kernels.hopper.backward import backward_kernel
from sightline.look.kernels.hopper.launch import as_tiles
from sightline.look.kernels.measure import KernelArgs
from sightline.look.kernels.shapes import blocks_of
from sightline.look.kernels.tiles import EMPTY_LSE

_PADDING = 128  # a multiple of the columns of any tile
_LOG2E = math.log2(math.e)
_LN2 = math.log(2)


class BackwardTile(NamedTuple):
    """How a program is made up.

    Attributes:
        rows: Of a group of warps, 64 for each four of them.
        columns: Of a tile.
        stages: Tiles of columns on their way or at work.
        groups: How many share the columns: one, or three beside a warp that copies.
        registers: Of a thread of a group.
        parts: Of a tile: the product of the first goes on while the second is worked on.
        overlap: Whether a gradient's product and the next tile's scores are waited for together.
    """

    rows: int
    columns: int
    stages: int
    groups: int
    registers: int
    parts: int = 1
    overlap: bool = False


TILES = {  # the quickest on an H200
    "sums": BackwardTile(64, 128, 1, 1, 128),
    "by_query": BackwardTile(64, 128, 4, 3, 160, parts=2),
    "by_key": BackwardTile(64, 64, 3, 1, 168, overlap=True),
}


class BackwardPasses:
    """The passes over the weights that a gradient takes.

    Args:
        args: What every kernel is given.
        lse: Of each query, ``(B, H, T)``.
        g_received: The gradient of what a key receives, ``(B, H, S)``.
    """

    def __init__(self, args: KernelArgs, lse: Tensor, g_received: Tensor | None) -> None:
        self._args = args
        lse = torch.where(lse.abs() < 1e30, lse * -_LOG2E, -EMPTY_LSE.value)
        self._lse = _padded(lse, -EMPTY_LSE.value)
        self._g_received = None if g_received is None else _padded(g_received, 0.0)

    def weighted_sums(self, out: Tensor) -> None:
        """Σ_s w g_received[s] of each query."""
        self._launch("sums", None, None, out)

    def by_query(self, slope: Tensor, g_entropy: Tensor | None, out: Tensor) -> None:
        """The gradient of q, ``(B, H, T, D)``."""
        self._launch("by_query", slope, g_entropy, out)

    def by_key(self, slope: Tensor, g_entropy: Tensor | None, out: Tensor) -> None:
        """The gradient of k for each head of q, ``(B, H, S, D)``."""
        self._launch("by_key", slope, g_entropy, out)

    def _launch(self, name: str, slope: Tensor | None, g_entropy: Tensor | None, out: Tensor) -> None:
        args, lse, g_received = self._args, self._lse, self._g_received
        h, group, t, s, d = args.sizes
        scale2, low, high = args.scale_and_band
        lengths, has = args.limits.lengths, args.has
        has_low, has_high = has["HAS_LOW"], has["HAS_HIGH"]
        own, other, n = args.q, args.k, t
        by_key = name == "by_key"
        if by_key:  # a distance changes its sign
            own, other, n = args.k, args.q, s
            low, high, has_low, has_high = -high, -low, has_high, has_low
        tile = TILES[name]
        slope = None if slope is None else _padded(slope, 0.0)
        g_entropy = None if g_entropy is None else _padded(g_entropy * _LN2, 0.0)
        prepared.launch(
            backward_kernel, (args.b * h, blocks_of(n, tile.groups * tile.rows)),
            as_tiles(own, tile.rows), as_tiles(other, tile.columns), lse,
            *(lse if x is None else x for x in (slope, g_entropy, g_received)),
            lse if lengths is None else lengths, *((0, 0) if lengths is None else lengths.stride()),
            out, h, group, t, s, _padded_size(t), _padded_size(s), scale2, low, high,
            GRADIENT=name != "sums", BY_KEY=by_key, RECEIVED=g_received is not None,
            ENTROPY=g_entropy is not None,
            HAS_LENGTHS=has["HAS_LENGTHS"], HAS_LOW=has_low, HAS_HIGH=has_high, D=d,
            R=tile.rows, N=tile.columns, STAGES=tile.stages, PARTS=tile.parts, OVERLAP=tile.overlap,
            GROUPS=tile.groups, REGISTERS=tile.registers, num_warps=tile.rows // 16,
            maxnreg=tile.registers if tile.groups == 1 else None,
        )  # fmt: skip


def _padded_size(n: int) -> int:
    return blocks_of(n, _PADDING) * _PADDING


def _padded(x: Tensor, value: float) -> Tensor:
    """Contiguous, the last dimension a multiple of what a tile has of columns."""
    missing = _padded_size(x.size(-1)) - x.size(-1)
    return functional.pad(x, (0, missing), value=value) if missing else x.contiguous()
