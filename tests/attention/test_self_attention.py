"""The seeds' own modules, and all modules without a token."""

import pytest
import torch

import sightline as sl
from tests.oracle.multihead import B, E, H, K, T, V, twins


def test_self_attention_is_the_equation_of_its_projections():
    ours = sl.nn.SelfAttention(E, K, V)
    x = torch.randn(B, T, E)
    expected, _ = sl.reference.scaled_dot_product_attention(ours.Wq(x), ours.Wk(x), ours.Wv(x))
    torch.testing.assert_close(ours(x), expected)
    mask = torch.ones(T, T, dtype=torch.bool).tril()
    expected, _ = sl.reference.scaled_dot_product_attention(ours.Wq(x), ours.Wk(x), ours.Wv(x), mask)
    torch.testing.assert_close(ours(x, mask), expected)


def test_self_attention_follows_a_shuffle():
    ours, x = sl.nn.SelfAttention(E, K, V), torch.randn(B, T, E)
    order = torch.randperm(T)
    torch.testing.assert_close(ours(x[:, order]), ours(x)[:, order])


@pytest.mark.parametrize("lead", [(), (B,), (2, B)])
def test_multi_head_self_attention_joins_its_heads(lead):
    ours, x = sl.nn.MultiHeadSelfAttention(E, 4, 6, 2), torch.randn(*lead, T, E)
    joined = torch.cat([head(x) for head in ours.heads], dim=-1)
    torch.testing.assert_close(ours(x), ours.Wo(joined))


def test_without_bias_only_matrices_are_left():
    ours = sl.nn.MultiHeadSelfAttention(E, 4, 6, num_heads=2, bias=False)
    assert [name for name in ours.state_dict() if "bias" in name] == []
    assert len(ours.state_dict()) == 7
    ones = sl.nn.SelfAttention(E, K, V, bias=False)
    torch.testing.assert_close(ones(torch.zeros(B, T, E)), torch.zeros(B, T, V))


def test_the_former_name_of_the_number_of_heads_is_taken_for_a_release():
    with pytest.warns(DeprecationWarning, match="n_heads is num_heads now"):
        ours = sl.nn.MultiHeadSelfAttention(E, 4, 6, n_heads=2)
    assert len(ours.heads) == 2


@pytest.mark.bad_input
def test_bad_widths_and_heads_are_named():
    with pytest.raises(ValueError, match="d_k must be at least 1, got 0"):
        sl.nn.SelfAttention(E, 0, V)
    with pytest.raises(ValueError, match="got num_heads=4 for d_k=8 and d_v=6"):
        sl.nn.MultiHeadSelfAttention(E, 8, 6, 4)


@pytest.mark.bad_input
def test_heads_are_counted_once():
    with pytest.raises(TypeError, match=r"needs num_heads, .* got none; num_heads=8"):
        sl.nn.MultiHeadSelfAttention(8, 6, 6)
    with pytest.raises(TypeError, match="same thing, got num_heads=2 and n_heads=3; give num_heads alone"):
        sl.nn.MultiHeadSelfAttention(8, 6, 6, 2, n_heads=3)
    with pytest.raises(TypeError, match="num_heads must be a whole number, got '2'"):
        sl.nn.MultiHeadSelfAttention(8, 6, 6, "2")


def test_a_mask_of_items_stays_one_where_there_are_as_many_heads():
    ours, x = sl.nn.MultiHeadSelfAttention(E, 4, 6, 2), torch.randn(3, T, E)
    mask = torch.rand(3, T, T) < 0.6
    mask[..., 0] = True
    torch.testing.assert_close(ours(x[:2], mask[:2]), ours(x, mask)[:2])


@pytest.mark.parametrize("way", [{"need_weights": False}, {}, {"average_attn_weights": False}], ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_without_keys_the_output_is_the_bias_however_large_the_queries(dtype, way):
    _, ours = twins(E, H, batch_first=True, dtype=dtype)
    query = torch.full((B, T, E), torch.finfo(dtype).max, dtype=dtype, requires_grad=True)
    key = query.new_zeros(B, 0, E)
    output, weights = ours(query, key, key, **way)
    assert torch.equal(output, ours.out_proj.bias.expand(B, T, E))
    assert weights is None or weights.shape[-2:] == (T, 0)
    (gradient,) = torch.autograd.grad(output, query, torch.full_like(output, torch.finfo(dtype).max / E))
    assert not gradient.any()
