"""Tensors of one dtype under an autocast to another: torch puts only one kind of half precision together."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import sightline as sl
from sightline.attention.cache import Cache
from tests.attention.attend_oracle import plain, qkv, value_and_gradients

B, H, T, S, D = 2, 3, 5, 7, 11
CASES = [(torch.float16, torch.bfloat16), (torch.bfloat16, torch.float16), (torch.float32, torch.bfloat16)]
ALLOWED = torch.ones(T, S, dtype=torch.bool).tril(1)


@pytest.fixture(params=CASES, ids=lambda case: "{} in {}".format(*case))
def other(request):
    """The dtype of the inputs, and an autocast to another one."""
    dtype, cast = request.param
    return dtype, lambda: torch.autocast("cpu", cast)


def additive(dtype, shape=(T, S)):
    return torch.linspace(-1, 1, T * S).view(shape).to(dtype)


MASKS = {
    "boolean": lambda _: (ALLOWED, ALLOWED, None),
    "bias": lambda dtype: (additive(dtype), None, additive(dtype)),
    "bias of a batch": lambda dtype: (additive(dtype, (1, 1, T, S)), None, additive(dtype)),
    "forbidding": lambda dtype: (
        torch.zeros(T, S, dtype=dtype).masked_fill(~ALLOWED, -torch.inf), ALLOWED, None
    ),
    "window and bias": lambda dtype: (
        sl.masks.window(None, 3) & sl.masks.bias(additive(dtype)),
        torch.ones(T, S).tril(5) > 0,
        additive(dtype),
    ),
}  # fmt: skip


@pytest.mark.parametrize("lead", [(), (B,), (B, H), (B, 2, H)])
@pytest.mark.parametrize("kind", MASKS)
def test_attention_and_look_take_every_mask(other, kind, lead):
    dtype, cast = other
    mask, allowed, added = MASKS[kind](dtype)
    if len(lead) < 2 and kind == "bias of a batch":
        mask = mask[0, 0]
    q, k, v = qkv(*lead, t=T, s=S, d=D, d_v=D, dtype=dtype)
    with cast():
        attended, *gradients = value_and_gradients(lambda *x: sl.attention(*x, mask), (q, k, v))
        sight, again = sl.look(q, k, v, mask), sl.attention(q, k, v, mask)
        rows = sight.rows(range(T))
    exact = [x.double() for x in (q, k, v)]
    added = None if added is None else added.double()
    close = {"rtol": 0, "atol": 0.03}
    torch.testing.assert_close(attended.double(), plain(*exact, allowed, added), **close)
    assert torch.equal(sight.output, again)
    assert attended.dtype == again.dtype  # with gradients and without
    weights = plain(*exact[:2], torch.eye(S, dtype=torch.float64), allowed, added)
    torch.testing.assert_close(rows.double(), weights, **close)
    assert all(x.isfinite().all() for x in gradients)


@pytest.mark.parametrize("kind", ["boolean", "bias", "forbidding"])
def test_a_watched_model_is_measured(other, kind):
    class Attends(nn.Module):
        def forward(self, function, *inputs):
            return function(*inputs)

    dtype, cast = other
    mask, allowed, added = MASKS[kind](dtype)
    q, k, v = qkv(B, H, t=T, s=S, d=D, d_v=D, dtype=dtype)
    weights = plain(
        q.double(), k.double(), torch.eye(S).double(), allowed, None if added is None else added.double()
    )
    for function in (F.scaled_dot_product_attention, sl.attention):
        model = Attends()
        with cast(), sl.watch(model) as seen:
            model(function, q, k, v, mask)
        torch.testing.assert_close(seen[""].received.double(), weights.sum(-2), rtol=0, atol=0.05)


@pytest.mark.parametrize("call", [{}, {"need_weights": False}], ids=str)
def test_multihead_attention_with_learned_keys(other, call):
    dtype, cast = other
    module = sl.nn.MultiheadAttention(6, 2, add_bias_kv=True, add_zero_attn=True, batch_first=True)
    query, key, mask = torch.randn(B, T, 6), torch.randn(B, S, 6), additive(torch.float32)
    expected, _ = module(query, key, key, attn_mask=mask)
    half = module.to(dtype)
    with cast():
        found, _ = half(query.to(dtype), key.to(dtype), key.to(dtype), attn_mask=mask.to(dtype), **call)
    torch.testing.assert_close(found.float(), expected, rtol=0, atol=0.03)


def test_positions_of_a_grid(other):
    dtype, cast = other
    patches = torch.randn(B, 2, 3, 8).to(dtype)
    positions = sl.positions.SinusoidalPositions2d(8)
    with cast():
        assert torch.equal(positions(patches), patches + sl.positions.sinusoidal_2d(2, 3, 8, dtype=dtype))


def test_a_cache_that_is_trained(other):
    dtype, cast = other
    steps = [torch.randn(B, H, 2, D).to(dtype).requires_grad_() for _ in range(3)]
    cache = Cache()
    with cast():
        for step in steps:
            cache = cache.append(step, step)
    assert torch.equal(cache.k, torch.cat(steps, 2))
    assert cache.k.dtype == dtype
