"""The Triton twins of the engine: the same questions, the same answers, at the speed of the tensor cores.

Nothing here is imported before it is needed, since Triton is there where a GPU is.
"""

import functools
import importlib.util

import torch
from torch import Tensor

from sightline.attention.kernels import interpreted
from sightline.look.inputs import ScoreInputs
from sightline.look.kernels.request import StatsRequest

_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
_MAX_WIDTH = 256
_MAX_TOP = 32
_MAX_WIDTH_OF_PEAKS = 128  # under a bias


def supports(inputs: ScoreInputs, request: StatsRequest) -> bool:
    """Whether the kernels can measure this: a dot product, on an NVIDIA GPU of Ampere's kind or newer."""
    if type(inputs) is not ScoreInputs or inputs.score is not None or inputs.modify is not None:
        return False
    if inputs.sink is not None:
        return False
    q, k, mask = inputs.q, inputs.k, inputs.mask
    if request.top is not None and request.top > _MAX_TOP:
        return False
    return (
        (q.is_cuda or interpreted())
        and q.dtype in _DTYPES
        and k.dtype == q.dtype
        and q.size(3) <= _MAX_WIDTH
        and inputs.shape[2] * inputs.shape[3] > 0
        and not any(x.requires_grad for x in mask.added)
        and not _is_miscompiled(inputs, request)
        and (not q.is_cuda or _is_available(q.device.index or 0))
    )


def are_here(q: Tensor) -> bool:
    """Return whether kernels may run where this tensor is."""
    return _is_available(q.device.index or 0) if q.is_cuda else interpreted()


def _is_miscompiled(inputs: ScoreInputs, request: StatsRequest) -> bool:
    """Return whether Triton 3.6 or 3.7 compiles these maxima into wrong ones.

    Where a tensor of the mask is loaded, the maxima of groups of keys may come to lie in lanes of a warp
    whose numbers do not follow each other. Those compilers then compare the wrong lanes.
    """
    if request.top is not None:
        return bool(inputs.mask.allowed or inputs.mask.added)
    by_width = bool(inputs.mask.added) and inputs.q.size(3) > _MAX_WIDTH_OF_PEAKS
    return request.peak and (by_width or bool(inputs.mask.allowed))


@functools.cache
def _is_available(device: int) -> bool:
    """Whether Triton is installed and this device can run it."""
    return importlib.util.find_spec("triton") is not None and torch.cuda.get_device_capability(device) >= (
        8,
        0,
    )
