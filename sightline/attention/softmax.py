"""Softmax over the keys that a query may look at."""

import torch
from torch import Tensor

from sightline.shapes import Float


def masked_softmax(scores: Float[Tensor, "... T S"], mask: Tensor | None = None) -> Float[Tensor, "... T S"]:
    """Turn scores into weights; a query that may look at nothing gets a row of zeros, never NaN.

    Args:
        scores: How well each query matches each key.
        mask: Boolean, True = may look, or float, added to the scores; broadcasts to them.

    Example:
        >>> masked_softmax(torch.zeros(2, 2), torch.tensor([[True, True], [False, False]]))
        tensor([[0.5000, 0.5000],
                [0.0000, 0.0000]])
    """
    if mask is None:
        return scores.softmax(-1)
    if mask.dtype == torch.bool:
        forbidden = ~mask
    else:
        mask = mask.to(scores.dtype)  # in half precision a huge negative number is -inf
        forbidden, scores = mask == -torch.inf, scores + mask
    scores = scores.masked_fill(forbidden, -torch.inf)  # also where the score itself is not a number
    nothing_to_see = forbidden.all(-1, keepdim=True)
    return scores.masked_fill(nothing_to_see, 0.0).softmax(-1).masked_fill(nothing_to_see, 0.0)
