"""Additive scores without the hidden layer: vᵀ tanh(a + b) for every pair, a tile of pairs at a time.

The plain way stores ``tanh(a + b)``, T x S x r numbers, twice over for the backward pass. Here a tile of
it lives in a scratch buffer, is reduced to its scores, and is computed again when gradients are asked for.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from sightline.shapes import Float

TILE = 1 << 21  # hidden values alive at a time: 8 MB of float32, a size that caches hold


def additive_scores(
    a: Float[Tensor, "... T r"], b: Float[Tensor, "... S r"], v: Float[Tensor, " r"]
) -> Float[Tensor, "... T S"]:
    """Score projected queries ``a`` against projected keys ``b``.

    score[t, s] = Σ_r v[r] tanh(a[t, r] + b[s, r])

    Example:
        >>> a, b, v = torch.zeros(1, 2), torch.tensor([[0.0, 0.0], [99.0, 99.0]]), torch.ones(2)
        >>> additive_scores(a, b, v)
        tensor([[0., 2.]])
    """
    lead = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = (x.expand(*lead, *x.shape[-2:]).reshape(math.prod(lead), *x.shape[-2:]) for x in (a, b))
    scores: Tensor = _AdditiveScores.apply(a, b, v)  # type: ignore[no-untyped-call]
    return scores.reshape(*lead, a.size(-2), b.size(-2))


class _AdditiveScores(torch.autograd.Function):
    """(N, T, r), (N, S, r), (r,) -> (N, T, S)."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, v: Tensor) -> Tensor:
        ctx.save_for_backward(a, b, v)
        scores = torch.empty(a.size(0), a.size(1), b.size(1), dtype=a.dtype, device=a.device)
        for rows, columns in _tiles(a, b):
            scores[:, rows, columns] = _hidden(a[:, rows], b[:, columns]) @ v
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        a, b, v = ctx.saved_tensors
        grad_a, grad_b, grad_v = torch.zeros_like(a), torch.zeros_like(b), torch.zeros_like(v)
        for rows, columns in _tiles(a, b):
            hidden = _hidden(a[:, rows], b[:, columns])  # (N, t, s, r)
            tile = grad[:, rows, columns].unsqueeze(-1)
            grad_v += (tile.mT @ hidden).sum((0, 1, 2))
            inner = hidden.square_().neg_().add_(1).mul_(v).mul_(tile)  # d score / d (a + b)
            grad_a[:, rows] += inner.sum(2)
            grad_b[:, columns] += inner.sum(1)
        return grad_a, grad_b, grad_v


def _hidden(a: Tensor, b: Tensor) -> Tensor:
    return (a.unsqueeze(-2) + b.unsqueeze(-3)).tanh_()


def _tiles(a: Tensor, b: Tensor) -> Iterator[tuple[slice, slice]]:
    """Cut T x S into tiles of about ``TILE`` hidden values."""
    pairs = max(1, TILE // max(1, a.size(0) * a.size(2)))
    s = min(b.size(1), max(1, pairs // max(1, min(a.size(1), math.isqrt(pairs)))))
    t = max(1, pairs // max(1, s))
    for top in range(0, a.size(1), t):
        for left in range(0, b.size(1), max(1, s)):
            yield slice(top, top + t), slice(left, left + s)
