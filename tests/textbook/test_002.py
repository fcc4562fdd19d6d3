"""2023.11.09, homework 2: scaled dot-product attention without and with a mask, to the digits printed."""

import pytest
import torch
from torch import Tensor

import sightline as sl
from sightline.textbook import scaled_dot_product_attention

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
def qkv():
    torch.manual_seed(0)
    return torch.randn(2, 3, 4), torch.randn(2, 3, 4), torch.randn(2, 3, 4)


@pytest.fixture
def mask(qkv):
    Q, _, _ = qkv
    mask = torch.ones_like(Q[:, :, 0]).unsqueeze(1)  # (batch size, 1, block size)
    mask[1, 0, 2:] = 0
    return mask


def test_exercise_1_unmasked(qkv, agrees):
    Q, K, V = qkv
    output, weights = scaled_dot_product_attention(Q, K, V)
    assert isinstance(output, Tensor)
    agrees(output, OUTPUT)
    agrees(weights, WEIGHTS)
    agrees(scaled_dot_product_attention(Q=Q, K=K, V=V)[0], OUTPUT)
    agrees(sl.reference.scaled_dot_product_attention(*qkv)[0], OUTPUT)
    agrees(sl.attention(*qkv), OUTPUT)
    agrees(sl.look(*qkv).output, OUTPUT)


def test_exercise_2_masked(qkv, mask, agrees):
    Q, K, V = qkv
    output, weights = scaled_dot_product_attention(Q, K, V, mask)
    agrees(output, MASKED_OUTPUT)
    agrees(weights, MASKED_WEIGHTS)
    assert (weights[1, :, 2] == 0).all()
    agrees(scaled_dot_product_attention(Q, K, V, mask=mask)[0], MASKED_OUTPUT)


def test_exercise_2_by_the_other_ways_in(qkv, mask, agrees):
    agrees(sl.attention(*qkv, sl.masks.from_ones(mask)), MASKED_OUTPUT)
    agrees(sl.attention(*qkv, mask.bool()), MASKED_OUTPUT)
    agrees(sl.attention(*qkv, sl.masks.padding([3, 2])), MASKED_OUTPUT)
    agrees(sl.look(*qkv, sl.masks.from_ones(mask)).rows([0, 1, 2]), MASKED_WEIGHTS)


def test_exercise_2_a_mask_of_the_batch_size_and_block_size_as_the_note_says(qkv, mask, agrees):
    output, weights = scaled_dot_product_attention(*qkv, mask[:, 0])  # (batch size, block size)
    agrees(output, MASKED_OUTPUT)
    agrees(weights, MASKED_WEIGHTS)
    rows = torch.tensor([[1.0, 0.0, 1.0]] * 3)  # (block size, block size): the same for every block
    assert (scaled_dot_product_attention(*qkv, rows)[1][:, :, 1] == 0).all()


@pytest.mark.bad_input
def test_exercise_2_where_batch_and_block_have_the_same_size_the_mask_must_say_which(qkv, mask):
    qkv = [torch.cat([x, x[:1]]) for x in qkv]  # three blocks of three
    mask = torch.cat([mask, mask[:1]])
    with pytest.raises(
        ValueError, match=r"got \(3, 3\) for batch size 3 and block size 3; .*mask\[:, None\]"
    ):
        scaled_dot_product_attention(*qkv, mask[:, 0])
    assert scaled_dot_product_attention(*qkv, mask)[1][1, 0, 2] == 0
    assert scaled_dot_product_attention(*qkv, mask[:, 0][None])[1][0, 1, 2] == 0


@pytest.mark.bad_input
def test_exercise_2_a_mask_of_ones_is_not_added_in_silence(qkv, mask):
    with pytest.raises(ValueError, match=r"only ones and zeros hides nothing.*from_ones"):
        sl.attention(*qkv, mask)


@pytest.mark.parametrize("filled", [-torch.inf, -1e9])
def test_exercise_2_masked_positions_are_filled_before_the_softmax(qkv, mask, filled, agrees):
    bias = sl.masks.bias(torch.zeros(mask.shape).masked_fill(mask == 0, filled))
    agrees(sl.attention(*qkv, bias), MASKED_OUTPUT)
    agrees(sl.look(*qkv, bias).rows([0, 1, 2]), MASKED_WEIGHTS)
