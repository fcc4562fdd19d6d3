"""The second pass, by the fastest way these inputs can go: the kernels on a GPU, the stream anywhere.

The fastest of all is none: if nothing but the log-sum-exp is wanted, the fused kernel has given it already.
"""

import torch
from torch import Tensor

from sightline.look import kernels, stream
from sightline.look.pairs import Pairs
from sightline.look.stream import Found, Want
from sightline.shapes import Float

_EMPTY = 1e30  # kernels on a GPU give more than this, of either sign, for a query that may look at nothing


def measure(pairs: Pairs, want: Want, lse: Float[Tensor, "B H T"] | None = None) -> Found:
    """Pass over all weights once and reduce them to what was asked; see :func:`stream.measure`."""
    known = _known(pairs, lse) if want == Want() else None
    if known is not None:
        return Found(known, *(None,) * 7)
    if not kernels.takes(pairs, want):
        return stream.measure(pairs, want, lse)
    if pairs.requires_grad:
        from sightline.look.kernels.differentiable import measure as by_kernels  # noqa: PLC0415
    else:
        from sightline.look.kernels.measure import measure as by_kernels  # noqa: PLC0415
    return by_kernels(pairs, want, lse)


def _known(pairs: Pairs, lse: Float[Tensor, "B H T"] | None) -> Float[Tensor, "B H T"] | None:
    """The kernel's log-sum-exp, where it is as good as one computed here; else None."""
    if lse is None or pairs.requires_grad:
        return None
    if lse.is_cuda:
        if pairs.mask.added:  # too few digits, see kernels.measure
            return None
        return torch.where(lse.abs() < _EMPTY, lse, -torch.inf) if pairs.may_be_empty() else lse
    if pairs.q.dtype != pairs.dtype:  # the CPU's kernels are coarse in half precision
        return None
    return None if bool(((lse == 0) | ~lse.isfinite()).any()) else lse  # what they give for an empty row
