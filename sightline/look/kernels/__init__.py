"""The Triton twins of stream.py: the same questions, the same answers, at the speed of the tensor cores.

Nothing here is imported before it is needed, since Triton is there where a GPU is.
"""

import functools
import importlib.util

import torch

from sightline.look.pairs import Pairs
from sightline.look.stream import Want

_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
_WIDEST = 256
_MOST_KEPT = 32


def takes(pairs: Pairs, want: Want) -> bool:
    """Whether the kernels can measure this: a dot product, on an NVIDIA GPU of Ampere's kind or newer."""
    if type(pairs) is not Pairs or pairs.score is not None:
        return False
    q, k, mask = pairs.q, pairs.k, pairs.mask
    if want.top is not None and want.top > _MOST_KEPT:
        return False
    if mask.allowed and (want.peak or want.top is not None):  # Triton 3.6 takes wrong maxima there
        return False
    return (
        q.is_cuda
        and q.dtype in _DTYPES
        and k.dtype == q.dtype
        and q.size(3) <= _WIDEST
        and pairs.shape[2] * pairs.shape[3] > 0
        and not any(x.requires_grad for x in mask.added)
        and _present(q.device.index or 0)
    )


@functools.cache
def _present(device: int) -> bool:
    """Whether Triton is installed and this device can run it."""
    return importlib.util.find_spec("triton") is not None and torch.cuda.get_device_capability(device) >= (
        8,
        0,
    )
