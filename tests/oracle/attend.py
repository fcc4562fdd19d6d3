"""Attention by the equation in float64, with its gradients."""

import torch

from tests.oracle.dense import matrix, repeated
from tests.oracle.draw import randn
from tests.oracle.masks import as_added


def plain(q, k, v, allowed=None, added=None, score=None, scale=None):
    """The mixed values, of any score function; a query with nothing to look at gets zeros."""
    k, v = repeated(q, k), repeated(q, v)
    scores = None if score is None else score(q, k) * (1.0 if scale is None else scale)
    forbidden = None if allowed is None else as_added(allowed).to(q.dtype)
    parts = [x for x in (added, forbidden) if x is not None]
    return matrix(q, k, sum(parts) if parts else None, scores=scores, scale=scale)[0] @ v


def qkv(*lead, t=5, s=7, d=3, d_v=3, dtype=torch.float64):
    """Draw queries, keys and values of the sizes that these tests share."""
    sizes = ((t, d), (s, d), (s, d_v))
    return [randn(*lead, *size, seed=seed, dtype=dtype) for seed, size in enumerate(sizes)]


def value_and_gradients(function, tensors):
    """The output and the gradients of a fixed mix of it; zeros where there is none."""
    tensors = [x.detach().clone().requires_grad_() for x in tensors]
    output = function(*tensors)
    upstream = randn(*output.shape, seed=77).to(output)
    grads = torch.autograd.grad(output, tensors, upstream, allow_unused=True)
    return [output.detach()] + [
        torch.zeros_like(x) if g is None else g for x, g in zip(tensors, grads, strict=True)
    ]


def close(found, expected, atol=1e-12):
    """Check each of several tensors."""
    for ours, truth in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, truth, rtol=0, atol=atol)
