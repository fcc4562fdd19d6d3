"""The second pass on a GPU of Hopper's kind, in Gluon, the lower language beneath Triton.

It takes what is asked most: half precision, heads of 64 or 128, and masks that are bands and lengths.
The rest is left to the plain kernel. Gluon's names change from one Triton to the next, so it runs with
the one it was measured with, and is not imported elsewhere.
"""

import functools
from typing import TYPE_CHECKING

import torch
import triton
from torch import Tensor

if TYPE_CHECKING:
    from sightline.look.kernels.args import KernelArgs

_DTYPES = (torch.float16, torch.bfloat16)
_WIDTHS = (64, 128)
_HOPPER = 9
_TRITON = "3.6."
BLOCK = 64  # queries of a tile, keys of half of one
WARPS = 4
MAX_TOP = 8  # of the largest weights, for which a thread has registers
MAX_PROGRAMS = 65_535  # of a head, by CUDA


def supports(args: "KernelArgs") -> bool:
    """Whether this kernel can add up the weights."""
    q, k, limits = args.q, args.k, args.limits
    return (
        q.is_cuda
        and q.dtype in _DTYPES
        and q.size(3) in _WIDTHS
        and limits.allowed is None
        and limits.added is None
        and 0 < min(args.t, args.s) <= max(args.t, args.s) <= MAX_PROGRAMS * BLOCK
        and _is_aligned(q)
        and _is_aligned(k)
        and _is_available(q.device.index)
    )


def _is_aligned(x: Tensor) -> bool:
    """Whether the copy engine can read it where it lies."""
    strides = x.stride()
    return strides[3] == 1 and x.data_ptr() % 16 == 0 and all(n > 0 and n % 8 == 0 for n in strides[:3])


@functools.cache
def _is_available(device: int) -> bool:
    """Whether this device is one of Hopper's kind, and Gluon the one we know."""
    return torch.cuda.get_device_capability(device)[0] == _HOPPER and triton.__version__.startswith(_TRITON)
