"""The equation, as the papers write it. Everything else in this package must agree with this file.

    Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V                        (Vaswani et al., 2017, eq. 1)

Read it top to bottom: five lines of arithmetic. It keeps the whole matrix of weights, so it is for
learning and for checking; :func:`sightline.attention` gives the same output without the matrix.
"""

import math

import torch
from torch import Tensor

from sightline.attention.masks import Mask, from_ones, on_device
from sightline.shapes import Bool, Float, Shaped, check_qkv, check_same_width, is_grouped, leading, shown


def scaled_dot_product_attention(
    q: Float[Tensor, "*B T D"],
    k: Float[Tensor, "*B S D"],
    v: Float[Tensor, "*B S Dv"],
    mask: Shaped[Tensor, "..."] | Mask | None = None,
) -> tuple[Float[Tensor, "*B T Dv"], Float[Tensor, "*B T S"]]:
    """Mix the values, each query weighting them by how well it matches the keys.

    Args:
        q, k, v: What each query looks for, what each key offers, and what it then hands over.
        mask: Ones (or True) where a query may look at a key and zeros where it may not, of any dtype;
            any shape that broadcasts to ``(*B, T, S)``, where ``(B, 1, S)`` is one row for each item; or
            one of ``sl.masks``.

    Returns:
        ``(output, weights)``. Each row of ``weights`` sums to one, except that a query with no key
        left to look at gets a row of zeros, never NaN.

    Example:
        >>> q = k = v = torch.eye(2)[None]                         # B=1, T=S=D=2
        >>> only_the_past = torch.ones(2, 2).tril()
        >>> output, weights = scaled_dot_product_attention(q, k, v, only_the_past)
        >>> weights[0, 0]
        tensor([1., 0.])
    """
    allowed = _checked(q, k, v, mask)
    scores = q @ k.mT / math.sqrt(q.size(-1))  # (*B, T, S)
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -torch.inf)
    weights = torch.softmax(scores, dim=-1)
    if allowed is not None:  # a row that may look nowhere is 0 / 0: make it zeros
        weights = weights.masked_fill(~allowed, 0.0)
    return weights @ v, weights


def _checked(
    q: Tensor, k: Tensor, v: Tensor, mask: Shaped[Tensor, "..."] | Mask | None
) -> Bool[Tensor, "..."] | None:
    """Refuse what does not fit together, and read the mask: True where a query may look."""
    check_qkv(q, k, v)
    check_same_width(q, k)
    if is_grouped(q, k, v):
        raise ValueError(
            f"the reference takes one head of k and v for each head of q, got {shown(q=q, k=k, v=v)}; "
            f"k.repeat_interleave({q.size(1) // k.size(1)}, 1) repeats them, or sl.attention groups them"
        )
    lead, t, s = leading(q, k, v), q.size(-2), k.size(-2)
    if mask is None:
        return None
    mask = mask if isinstance(mask, Mask) else from_ones(mask)
    if mask.added:
        raise ValueError("the reference takes masks that allow or forbid, got a bias; sl.attention adds one")
    return on_device(mask, q).fitted(lead, t, s).block((0, t), (0, s), t, s, device=q.device)
