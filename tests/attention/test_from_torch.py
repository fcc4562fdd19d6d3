"""The border with torch: which calls fit, and masks whose True means the opposite."""

import pytest
import torch
from torch import nn

from sightline.attention.from_torch import fits, heads, mask_from_torch
from sightline.attention.masks import Mask

B, H, T, S, E, K, V = 3, 2, 5, 7, 10, 11, 13


def module(**kwargs):
    return nn.MultiheadAttention(E, H, **{"batch_first": True, "kdim": K, "vdim": V} | kwargs)


def inputs():
    return torch.zeros(B, T, E), torch.zeros(B, S, K), torch.zeros(B, S, V)


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, torch.float64])
def test_good_calls_fit(dtype):
    query, key, value = inputs()
    padding, mask = torch.zeros(B, S, dtype=dtype), torch.zeros(T, S, dtype=dtype)
    assert fits(module(), query, key, value, None, None)
    assert fits(module(), query, key, value, padding, mask)
    assert fits(module(), query, key, value, None, torch.zeros(B * H, T, S, dtype=dtype))
    assert fits(module(), query[0], key[0], value[0], padding[0], torch.zeros(H, T, S, dtype=dtype))
    first = [x.transpose(0, 1) for x in (query, key, value)]
    assert fits(module(batch_first=False), *first, padding, mask)
    assert not fits(module(), *first, padding, mask)


@pytest.mark.parametrize(
    "changed",
    [
        {"query": torch.zeros(B, T, E + 1)},
        {"query": torch.zeros(T, E)},
        {"query": torch.zeros(B + 1, T, E)},
        {"key": torch.zeros(B, S, E)},
        {"key": torch.zeros(B, S + 1, K)},
        {"value": torch.zeros(B, S, E)},
        {"value": torch.zeros(S, V)},
        {"key_padding_mask": torch.zeros(B, T)},
        {"key_padding_mask": torch.zeros(S)},
        {"key_padding_mask": torch.zeros(B, S, dtype=torch.int64)},
        {"attn_mask": torch.zeros(S, T)},
        {"attn_mask": torch.zeros(B, T, S)},
        {"attn_mask": torch.zeros(S)},
        {"attn_mask": torch.zeros(T, S, dtype=torch.uint8)},
    ],
    ids=lambda changed: " ".join(f"{name} {tuple(x.shape)} {x.dtype}" for name, x in changed.items()),
)
def test_a_call_that_does_not_fit_is_left_to_torch(changed):
    query, key, value = inputs()
    call = {"query": query, "key": key, "value": value, "key_padding_mask": None, "attn_mask": None}
    assert not fits(module(), **call | changed)


def test_a_module_of_two_dtypes_and_nested_inputs_are_left_to_torch():
    half = module()
    half.in_proj_bias = nn.Parameter(half.in_proj_bias.half())
    assert not fits(half, *inputs(), None, None)
    nested = torch.nested.nested_tensor([torch.zeros(2, E), torch.zeros(3, E)], layout=torch.jagged)
    same = nn.MultiheadAttention(E, H, batch_first=True)
    assert not fits(same, nested, nested, nested, None, None)


def test_true_means_may_not_there_and_may_here():
    may_not, padding = torch.rand(T, S) < 0.4, torch.rand(B, S) < 0.4
    found = mask_from_torch(may_not, padding, H).fitted((B, H), T, S).block((0, T), (0, S), T, S)
    expected = torch.empty(B, H, T, S, dtype=torch.bool)
    for b in range(B):
        for t in range(T):
            for s in range(S):
                expected[b, :, t, s] = not (may_not[t, s] or padding[b, s])
    assert torch.equal(found.expand(B, H, T, S), expected)


def test_three_dimensions_are_batch_times_heads():
    mask = torch.randn(B * H, T, S)
    found = mask_from_torch(mask, None, H).fitted((B, H), T, S).block((0, T), (0, S), T, S)
    for b in range(B):
        for h in range(H):
            assert torch.equal(found[b, h], mask[b * H + h])


def test_a_float_and_a_boolean_mask_meet():
    tilt, padding = torch.randn(T, S), torch.rand(B, S) < 0.4
    found = mask_from_torch(tilt, padding, H).fitted((B, H), T, S).block((0, T), (0, S), T, S)
    expected = tilt.expand(B, H, T, S).masked_fill(padding[:, None, None], -torch.inf)
    assert torch.equal(found.expand(B, H, T, S), expected)


def test_no_mask_limits_nothing():
    assert not mask_from_torch(None, None, H).limits


def test_appended_keys_are_seen_by_all():
    may_not, tilt = torch.ones(T, S, dtype=torch.bool), torch.randn(B, S)
    both = module(add_bias_kv=True, add_zero_attn=True)
    q, k, v, mask = heads(both, *inputs(), mask_from_torch(may_not, tilt, H))
    assert q.shape == (B, H, T, E // H)
    assert k.shape == v.shape == (B, H, S + 2, E // H)
    block = mask.fitted((B, H), T, S + 2).block((0, T), (0, S + 2), T, S + 2)
    block = block.expand(B, H, T, S + 2)
    assert (block[..., :S] == -torch.inf).all()
    assert (block[..., S:] == 0).all()
    assert torch.equal(
        k[:, :, S].transpose(0, 1).flatten(1)[:, : E // H], both.bias_k.view(H, 1, E // H)[:, 0]
    )
    assert (k[:, :, S + 1] == 0).all()
    assert (v[:, :, S + 1] == 0).all()


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_heads_are_slices_of_the_projections(batch_first, bias):
    """However few products are taken, head h of q is x @ W[h].T + b[h]."""
    both = nn.MultiheadAttention(E, H, bias=bias, batch_first=batch_first, dtype=torch.float64)
    x, y, z = (torch.randn(B, n, E, dtype=torch.float64) for n in (T, S, S))
    laid = [a if batch_first else a.transpose(0, 1) for a in (x, y, z)]
    weights = both.in_proj_weight.chunk(3)
    biases = both.in_proj_bias.chunk(3) if bias else (torch.zeros(E, dtype=torch.float64),) * 3
    for picked in ((0, 0, 0), (0, 1, 1), (0, 1, 2)):
        query, key, value = (laid[i] for i in picked)
        *found, _ = heads(both, query, key, value, Mask())
        for projected, i, w, b in zip(found, picked, weights, biases, strict=True):
            expected = ((x, y, z)[i] @ w.T + b).unflatten(-1, (H, -1))
            for h in range(H):
                torch.testing.assert_close(projected[:, h], expected[:, :, h])
