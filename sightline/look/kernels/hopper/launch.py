"""How the kernel is run: q and k as the copy engine reads them, and places for what is added up."""

import functools

import torch
from torch import Tensor
from triton.experimental.gluon.language import NVMMASharedLayout, bfloat16, float16
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from sightline.look.kernels.hopper import BLOCK, WARPS
from sightline.look.kernels.hopper.weights import weights_kernel
from sightline.look.kernels.measure import KernelArgs
from sightline.look.kernels.shapes import blocks_of
from sightline.look.stream import Cells

_STAGES = 4  # tiles of queries on their way or at work


def launch(
    args: KernelArgs,
    lse: Tensor,
    cells: Cells | None,
    received: Tensor | None,
    parts: Tensor | None,
    sums: Tensor | None,
    packed: Tensor | None,
) -> None:
    """Run the kernel, into what is there to be filled."""
    h, group, t, s, d = args.sizes
    lengths, has = args.limits.lengths, args.has
    weights_kernel[(args.b * h, blocks_of(s, 2 * BLOCK))](
        _tiles(args.q, BLOCK), _tiles(args.k, 2 * BLOCK), lse,
        lse if lengths is None else lengths, *((0, 0) if lengths is None else lengths.stride()),
        *(lse if x is None else x for x in (received, parts, sums, packed)),
        h, group, t, s, *args.scale_and_band,
        1 if cells is None else cells.rows, 1 if cells is None else cells.columns,
        1 if parts is None else parts.size(2),
        RECEIVED=received is not None, CELLS=parts is not None,
        ENTROPY=sums is not None, PEAK=packed is not None,
        HAS_LENGTHS=has["HAS_LENGTHS"], HAS_LOW=has["HAS_LOW"], HAS_HIGH=has["HAS_HIGH"],
        D=d, STAGES=_STAGES, NC=1 if parts is None else parts.size(3),
        ALIGNED=cells is None or t % (cells.rows * BLOCK) == 0, num_warps=WARPS,
    )  # fmt: skip


def _tiles(x: Tensor, rows: int) -> TensorDescriptor:
    shape = [1, 1, rows, x.size(3)]
    return TensorDescriptor(x, list(x.shape), list(x.stride()), shape, _layout(rows, x.size(3), x.dtype))


@functools.cache
def _layout(rows: int, width: int, dtype: torch.dtype) -> NVMMASharedLayout:
    """How a tile lies in shared memory."""
    return NVMMASharedLayout.get_default_for(
        [1, 1, rows, width], float16 if dtype == torch.float16 else bfloat16
    )
