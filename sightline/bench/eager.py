"""Eager attention that is asked everything: what a look is measured against."""

import torch
from torch import Tensor

from sightline.shapes import Float


def eager(
    q: Float[Tensor, "B H T D"],
    k: Float[Tensor, "B H S D"],
    v: Float[Tensor, "B H S D"],
    cells: int,
    *,
    causal: bool,
    stored: torch.dtype | None = None,
) -> tuple[Tensor, ...]:
    """Store the matrix and take output, received, entropy, peak and map from it.

    Args:
        q, k, v: Queries, keys and values.
        cells: Rows and columns of the map.
        causal: Whether the future is hidden.
        stored: What the weights are stored in; None: float32, or float64 for such inputs. Hugging Face's
            models store the dtype of their inputs, which takes less memory and fewer digits.
    """
    scores = (q @ k.mT) * q.size(-1) ** -0.5
    if causal:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill_(future, -torch.inf)
    exact = scores.dtype if scores.dtype == torch.float64 else torch.float32
    weights = scores.softmax(-1, dtype=exact).to(exact if stored is None else stored)
    peak, _ = weights.max(-1)
    picture = weights.unflatten(-1, (cells, -1)).mean(-1).unflatten(-2, (cells, -1)).mean(-2)
    return weights.to(v.dtype) @ v, weights.sum(-2), torch.special.entr(weights).sum(-1), peak, picture
