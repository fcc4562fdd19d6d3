"""Whether a later question can go to the kernels; like ``supports``, it needs no Triton."""

import torch
from torch import Tensor

from sightline.look import kernels
from sightline.look.inputs import ScoreInputs
from sightline.look.kernels.request import StatsRequest
from sightline.shapes import Float

_COARSE = 100.0  # an lse further from zero is rounded to more than 4e-6, see look/weights.py


def covers(inputs: ScoreInputs, lse: Float[Tensor, "B H T"], *, maxima: bool = False) -> bool:
    """Whether kernels can answer from this log-sum-exp, without gradients.

    Args:
        inputs: What the weights are made of.
        lse: Each query's log-sum-exp. Huge negative biases leave it too few digits: then they can't.
        maxima: Whether maxima are asked for.
    """
    if inputs.requires_grad or (torch.is_grad_enabled() and lse.requires_grad):
        return False
    if not kernels.supports(inputs, StatsRequest(peak=maxima)):
        return False
    return not inputs.mask.added or not bool((lse.abs() > _COARSE).logical_and_(lse.isfinite()).any())
