"""Attention without cuDNN's kernels, which are planned anew for every shape."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

__all__ = ["without_cudnn_sdpa"]

_UNPLANNED = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


@contextmanager
def without_cudnn_sdpa() -> Iterator[None]:
    """Run a block without cuDNN's attention kernels.

    On a GPU it is torch's first choice, and the fastest for long inputs of one shape. But it plans its
    kernels when it first meets a shape, which takes a tenth of a second and more, and batches of sentences
    come in hundreds of shapes: a training would spend most of its time planning.

    Example:
        >>> with without_cudnn_sdpa():
        ...     torch.nn.functional.scaled_dot_product_attention(*torch.ones(3, 1, 1, 2, 4)).shape
        torch.Size([1, 1, 2, 4])
    """
    if not torch.cuda.is_available():
        yield
        return
    with sdpa_kernel(_UNPLANNED):
        yield
