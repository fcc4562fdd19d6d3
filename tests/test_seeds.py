"""The figures printed in the documents this package grew from, to the digits they print."""

import importlib.util

import pytest
import torch
import torch.nn.functional as F

import sightline as sl


def printed(rows):
    return torch.tensor(rows)


def agrees(found, figures):
    torch.testing.assert_close(found.detach().float(), printed(figures), rtol=0, atol=5.1e-5)


# 2023.11.09, homework 2

OUTPUT = [
    [[0.2957, 0.3332, 0.0674, 0.2081], [0.2628, 0.4036, 0.0423, 0.2148], [0.3083, 0.4486, 0.2576, 0.2905]],
    [
        [-0.1859, -0.8284, -0.5916, -1.0532],
        [-0.1266, -0.8076, -0.5838, -1.1651],
        [0.1222, -0.4625, -0.4709, -0.1724],
    ],
]
WEIGHTS = [
    [[0.4537, 0.3877, 0.1586], [0.4461, 0.3433, 0.2105], [0.2678, 0.3638, 0.3684]],
    [[0.5597, 0.1483, 0.2920], [0.5515, 0.0702, 0.3784], [0.1524, 0.7299, 0.1178]],
]
MASKED_OUTPUT = [
    OUTPUT[0],
    [
        [-0.5912, -1.0937, -0.6829, -0.9884],
        [-0.6886, -1.1866, -0.7139, -1.1376],
        [0.0322, -0.4995, -0.4843, -0.0339],
    ],
]
MASKED_WEIGHTS = [WEIGHTS[0], [[0.7905, 0.2095, 0.0], [0.8871, 0.1129, 0.0], [0.1727, 0.8273, 0.0]]]


@pytest.fixture
def homework():
    torch.manual_seed(0)
    return torch.randn(2, 3, 4), torch.randn(2, 3, 4), torch.randn(2, 3, 4)


@pytest.fixture
def ones_and_zeros(homework):
    mask = torch.ones_like(homework[0][:, :, 0]).unsqueeze(1)  # (B, 1, S), float
    mask[1, 0, 2:] = 0
    return mask


def test_homework_2_unmasked(homework):
    output, weights = sl.reference.scaled_dot_product_attention(*homework)
    agrees(output, OUTPUT)
    agrees(weights, WEIGHTS)
    agrees(sl.attention(*homework), OUTPUT)


def test_homework_2_masked(homework, ones_and_zeros):
    output, weights = sl.reference.scaled_dot_product_attention(*homework, ones_and_zeros)
    agrees(output, MASKED_OUTPUT)
    agrees(weights, MASKED_WEIGHTS)
    assert (weights[1, :, 2] == 0).all()
    agrees(sl.attention(*homework, sl.masks.from_ones(ones_and_zeros)), MASKED_OUTPUT)
    agrees(sl.attention(*homework, sl.masks.padding([3, 2])), MASKED_OUTPUT)


# ECE 57000, assignment 4


@pytest.mark.skipif(not importlib.util.find_spec("sightline.positions"), reason="positions are not there yet")
def test_ece_57000_positions():
    from sightline.positions import sinusoidal

    words = torch.arange(1, 129).repeat(3, 10, 1).float() * 0.1
    column = [1.4000, 1.0479, 0.2396, -0.4558, -0.5485, 0.0267, 0.8648, 1.3756, 1.1994, 0.4603]
    agrees((words + sinusoidal(10, 128))[:, :, 3], [column] * 3)


def test_ece_57000_att_score():
    q, k, v = torch.rand(20, 5, 512), torch.rand(20, 5, 512), torch.rand(20, 5, 64)
    output, weights = sl.reference.scaled_dot_product_attention(q, k, v)
    assert output.shape == (20, 5, 64)
    assert weights.shape == (20, 5, 5)
    torch.testing.assert_close(output, F.scaled_dot_product_attention(q, k, v))
    past = torch.tril(torch.ones(5, 5) > 0)
    masked, _ = sl.reference.scaled_dot_product_attention(q, k, v, past)
    torch.testing.assert_close(masked, F.scaled_dot_product_attention(q, k, v, past))
    torch.testing.assert_close(sl.attention(q, k, v, sl.masks.causal()), masked)


def test_ece_57000_self_attention():
    torch.manual_seed(40)
    x = torch.ones(20, 5, 32)
    output = sl.nn.SelfAttention(32, 512, 64)(x)
    assert output.shape == (20, 5, 64)
    figures = [-0.0166, -0.4199, -0.5860, 0.3721, 0.5411, 0.4073, 0.8418, 0.2554]
    figures += [-0.2712, 0.6178, -0.0495, -0.0552, 0.6988, -0.3643, 0.7696]
    agrees(output[-1, 1, :15], figures)


def test_self_attention_is_permutation_equivariant():
    torch.manual_seed(40)
    attend, x, order = sl.nn.SelfAttention(32, 512, 64).double(), torch.randn(20, 5, 32), torch.randperm(5)
    x = x.double()
    assert not torch.equal(order, torch.arange(5))
    torch.testing.assert_close(attend(x[:, order]), attend(x)[:, order], rtol=0, atol=1e-12)
    moved = attend(x, sl.masks.causal())[:, order]  # a mask knows positions: no longer so
    assert (attend(x[:, order], sl.masks.causal()) - moved).abs().max() > 1e-3


def test_ece_57000_multi_head_self_attention():
    torch.manual_seed(40)
    x = torch.rand(32, 10, 256)  # drawn before the module, as the document does
    output = sl.nn.MultiHeadSelfAttention(256, 512, 64, 8)(x)
    assert output.shape == (32, 10, 64)
    figures = [0.0275, -0.1630, 0.1510, 0.3983, -0.0111, -0.4692, -0.1411, 0.1411]
    figures += [0.2040, 0.0587, 0.1210, -0.1313, -0.0088, 0.1773, -0.0538]
    agrees(output[-1, 1, :15], figures)


# Advanced Data Analysis, week 8


@pytest.mark.parametrize("nn", [torch.nn, sl.nn], ids=["torch", "sightline"])
def test_week_8_multihead_attention_by_hand(nn):
    d, queries, keys, values = 4, *(torch.randn(1, 5, 4) for _ in range(3))
    attend = nn.MultiheadAttention(d, num_heads=1, bias=False, batch_first=True)
    output, attention = attend(queries, keys, values)
    w_q, w_k, w_v = attend.in_proj_weight.chunk(3)
    q, k, v = queries[0] @ w_q.T, keys[0] @ w_k.T, values[0] @ w_v.T
    by_hand, weights = sl.reference.scaled_dot_product_attention(q, k, v)
    torch.testing.assert_close(attention[0], weights)
    torch.testing.assert_close(output[0], by_hand @ attend.out_proj.weight.T)


# Attention-Based Models, lecture notes


def test_lecture_notes_shapes_of_the_projections():
    attend = sl.nn.MultiheadAttention(embed_dim=50, num_heads=1, bias=False, kdim=30, vdim=40)
    assert attend.q_proj_weight.shape == (50, 50)
    assert attend.k_proj_weight.shape == (50, 30)
    assert attend.v_proj_weight.shape == (50, 40)
    assert attend.in_proj_weight is None
    assert sl.nn.MultiheadAttention(50, 1, bias=False).in_proj_weight.shape == (150, 50)


def test_lecture_notes_score_functions():
    s, h = torch.randn(5, 3), torch.randn(7, 2)
    general, low_rank = sl.scores.General(3, 2), sl.scores.LowRank(3, 2, rank=1)
    additive = sl.scores.Additive(3, 2, d_attn=11)
    for t, query in enumerate(s):
        for i, key in enumerate(h):
            torch.testing.assert_close(general(s, h)[t, i], query @ general.W @ key)
            torch.testing.assert_close(low_rank(s, h)[t, i], (low_rank.U @ query) @ (low_rank.V @ key))
            hidden = torch.tanh(additive.W @ key + additive.V @ query)
            torch.testing.assert_close(additive(s, h)[t, i], additive.v @ hidden)
