"""Attention by the equation in float64, and the two ways it may go: what the tests of it share."""

import math

import pytest
import torch

import sightline as sl
from sightline.attention import attend


def plain(q, k, v, allowed=None, added=None, score=None, scale=None):
    if q.dim() == k.dim() == v.dim() == 4 and k.size(1) == v.size(1) and q.size(1) % k.size(1) == 0:
        k, v = (x.repeat_interleave(q.size(1) // k.size(1), 1) for x in (k, v))
    if score is None:
        scores = torch.einsum("...td,...sd->...ts", q, k) * (q.size(-1) ** -0.5 if scale is None else scale)
    else:
        scores = score(q, k) * (1.0 if scale is None else scale)
    if added is not None:
        scores = scores + added
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -math.inf)
    empty = (scores == -math.inf).all(-1, keepdim=True)
    return scores.masked_fill(empty, 0.0).softmax(-1).masked_fill(empty, 0.0) @ v


def randn(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def qkv(*lead, t=5, s=7, d=3, d_v=3, dtype=torch.float64):
    sizes = ((t, d), (s, d), (s, d_v))
    return [randn(*lead, *size, seed=seed, dtype=dtype) for seed, size in enumerate(sizes)]


def value_and_gradients(function, tensors):
    tensors = [x.detach().clone().requires_grad_() for x in tensors]
    output = function(*tensors)
    upstream = randn(*output.shape, seed=77).to(output)
    grads = torch.autograd.grad(output, tensors, upstream, allow_unused=True)
    return [output.detach()] + [
        torch.zeros_like(x) if g is None else g for x, g in zip(tensors, grads, strict=True)
    ]


def close(found, expected, atol=1e-12):
    for ours, truth in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, truth, rtol=0, atol=atol)


class in_blocks:
    """Take the block path at any size, two queries at a time, so that small tests reach it."""

    def __init__(self, pairs=1, block=2):
        self.small = {"_PAIRS": pairs, "_BLOCK": block}

    def __enter__(self):
        self.patch = pytest.MonkeyPatch()
        for name, value in self.small.items():
            self.patch.setitem(getattr(attend, name), "cpu", value)

    def __exit__(self, *_):
        self.patch.undo()


class in_one_call(in_blocks):
    def __init__(self):
        super().__init__(pairs=1 << 40, block=1 << 40)


def scored(name, d):
    built = {
        "general": lambda: sl.scores.General(d, d),
        "low_rank": lambda: sl.scores.LowRank(d, d, 2),
        "additive": lambda: sl.scores.Additive(d, d, 5),
    }
    return built[name]().double() if name in built else name
