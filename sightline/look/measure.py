"""The second pass, by the fastest way these inputs can go: the kernels on a GPU, the stream anywhere.

The fastest of all is none: if nothing but the log-sum-exp is wanted, the fused kernel has given it already.
"""

import torch
from torch import Tensor

from sightline.look import kernels, stream
from sightline.look.inputs import PrecomputedWeights, ScoreInputs
from sightline.look.kernels import plans
from sightline.look.stream import Stats, StatsRequest
from sightline.look.weights import measure_weights
from sightline.shapes import Float

_NOTHING = StatsRequest()
_EMPTY = 1e30  # kernels on a GPU give more than this, of either sign, for a query that may look at nothing


def measure(inputs: ScoreInputs, request: StatsRequest, lse: Float[Tensor, "B H T"] | None = None) -> Stats:
    """Pass over all weights once and reduce them to what was asked; see :func:`stream.measure`."""
    if isinstance(inputs, PrecomputedWeights) and lse is not None:
        return measure_weights(inputs, request, lse)
    known = _usable_lse(inputs, lse) if request == _NOTHING else None
    if known is not None:
        return Stats(known, *(None,) * 7)
    differentiable, key = inputs.requires_grad, None
    if inputs.q.is_cuda and not differentiable:
        if lse is not None and (lse.dtype is not torch.float32 or not lse.is_contiguous()):
            lse = lse.float().contiguous()  # as the kernels read it
        key = plans.key_of(inputs, request, lse)
        stats = plans.measure_again(key, inputs, lse)
        if stats is not None:
            return stats
    if not kernels.supports(inputs, request):
        return stream.measure(inputs, request, lse)
    if not inputs.q.is_cuda:  # interpreted
        lse = _usable_lse(inputs, lse)
    if differentiable:
        from sightline.look.kernels.differentiable import measure as measure_on_gpu  # noqa: PLC0415

        return measure_on_gpu(inputs, request, lse)
    from sightline.look.kernels.measure import measure as measure_on_gpu  # noqa: PLC0415

    return plans.planned(key, inputs, lse, lambda: measure_on_gpu(inputs, request, lse))


def _usable_lse(inputs: ScoreInputs, lse: Float[Tensor, "B H T"] | None) -> Float[Tensor, "B H T"] | None:
    """The kernel's log-sum-exp, where it is as good as one computed here; else None."""
    if lse is None or inputs.requires_grad or inputs.padding is not None or inputs.sink is not None:
        return None
    if lse.is_cuda:
        if inputs.mask.added:  # too few digits, see kernels.measure
            return None
        return torch.where(lse.abs() < _EMPTY, lse, -torch.inf) if inputs.may_have_empty_rows() else lse
    if inputs.q.dtype != inputs.dtype:  # the CPU's kernels are coarse in half precision
        return None
    return None if bool(((lse == 0) | ~lse.isfinite()).any()) else lse  # what they give for an empty row
