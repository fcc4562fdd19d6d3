"""Importance and relevance at any shape, with any mask, grouped queries and in half precision."""

from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import sightline as sl
from sightline.look import flow
from sightline.look import weights as weights_module
from tests.look.look_oracle import near, randn


class Sdpa(nn.Module):
    def forward(self, q, k, v, mask=None, **options):
        return F.scaled_dot_product_attention(q, k, v, mask, **options)


def masks(kind, b, t, s):
    """A mask as torch takes it, True where a query may look."""
    allowed = torch.ones(b, 1, t, s, dtype=torch.bool)
    if kind == "causal":
        return allowed.tril()
    if kind == "window":
        return allowed.tril(1).triu(-2)
    if kind == "padding":
        return allowed & (torch.arange(s) < torch.arange(b).view(b, 1, 1, 1) + s - b + 1)
    if kind == "random":
        return torch.rand(b, 1, t, s, generator=torch.Generator().manual_seed(t * s)) > 0.4
    return None


def dense(q, k, v, gradient, mask):
    """Output and clamped products of weights and their gradients, in float64."""
    group = q.size(1) // k.size(1)
    q, k, v, gradient = (x.double() for x in (q, k, v, gradient))
    k, v = (x.repeat_interleave(group, 1) for x in (k, v))
    scores = q @ k.mT * q.size(-1) ** -0.5
    scores = scores if mask is None else scores.masked_fill(~mask, -torch.inf)
    weights = scores.softmax(-1).nan_to_num(0.0)  # a query that may look at nothing
    return weights @ v, (weights * (gradient @ v.mT)).clamp(min=0)


@settings(max_examples=60, deadline=None)
@given(
    b=st.integers(1, 3),
    kv_heads=st.sampled_from([1, 2]),
    group=st.sampled_from([1, 3]),
    t=st.integers(1, 11),
    s=st.integers(3, 13),
    kind=st.sampled_from(["nothing", "causal", "window", "padding", "random"]),
    dtype=st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
    tile=st.sampled_from([7, 64, 1 << 19]),
)
def test_any_shape_mask_and_precision(b, kv_heads, group, t, s, kind, dtype, tile):
    if kind in ("padding", "random") and t == s:
        s += 1  # self-attention: queries that are padding would be left out
    h, d = kv_heads * group, 5
    q = randn(b, h, t, d, seed=1, dtype=dtype).requires_grad_()
    k, v = (randn(b, kv_heads, s, d, seed=i, dtype=dtype).requires_grad_() for i in (2, 3))
    gradient, mask = randn(b, h, t, d, seed=4, dtype=dtype), masks(kind, b, t, s)
    model = Sdpa()
    with sl.watch(model, grad=True) as seen:
        output = model(q, k, v, mask, enable_gqa=group > 1)
    output.backward(gradient)
    (sight,) = seen.calls("")
    context, products = dense(q.detach(), k.detach(), v.detach(), gradient, mask)
    with mock.patch.object(weights_module, "_TILE", {"cpu": tile, "cuda": tile}):
        keys, queries = sight.relevance
    half = dtype != torch.float32
    near(keys, products.sum(-2), rtol=1e-5, atol=1e-5)  # half precision rounds the inputs alone
    near(queries, products.sum(-1), rtol=1e-5, atol=1e-5)
    expected = (context * gradient.double()).sum((-2, -1)).abs()
    near(sight.importance, expected, rtol=3e-2 if half else 1e-5, atol=0.3 if half else 1e-5)  # of the output


class Layer(nn.Module):
    def __init__(self, width, n_heads):
        super().__init__()
        self.n_heads, self.attend = n_heads, Sdpa()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.n_heads, -1)).permute(2, 0, 3, 1, 4)
        return x + self.out(self.attend(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


@pytest.mark.plain
def test_eight_layers_of_257_tokens_are_the_dense_product():
    torch.manual_seed(0)
    model = nn.Sequential(*(Layer(32, 4) for _ in range(8)))
    with sl.watch(model, grad=True) as seen:
        y = model(torch.randn(1, 257, 32))
    y[:, -1].square().mean().backward()
    sights = [seen.calls(name)[0] for name in seen.names()]
    assert len(sights) == 8
    with torch.no_grad():
        for trace in (flow.rollout, flow.relevance):
            whole = torch.eye(257, dtype=torch.float64)
            for sight in sights:
                step = dense_step(sight, trace is flow.relevance)
                whole = step @ whole
            assert (trace(sights, token=-1)[0] - whole[-1]).abs().max() < 1e-6
            assert (trace(sights)[0] - whole).abs().max() < 1e-6


def dense_step(sight, graded):
    """One layer's matrix, heads averaged, in float64: what a flow multiplies with."""
    q, k, v = (
        x[0].detach().double() for x in (sight.kept[0].inputs.q, sight.kept[0].inputs.k, sight.backward.v)
    )
    scores = (q @ k.mT * q.size(-1) ** -0.5).masked_fill(~torch.ones(257, 257).bool().tril(), -torch.inf)
    weights, eye = scores.softmax(-1), torch.eye(257, dtype=torch.float64)
    if not graded:
        return (weights.mean(0) + eye) / 2
    slopes = sight.backward.gradient[0].double() @ v.mT
    return (weights * slopes).clamp(min=0).mean(0) + eye
