"""Masks that can't be: what a user gets wrong."""

import pytest
import torch

import sightline as sl
from sightline.attention.masks import as_mask

masks = sl.masks


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: masks.window(-1, 0), ValueError, r"window's left must be a whole number .* got -1"),
        (lambda: masks.window(0, -3), ValueError, r"window's right must be .* None for no limit, got -3"),
        (lambda: masks.window(2.5, 0), ValueError, r"window's left must be .* got 2.5"),
        (lambda: masks.window(True, 0), ValueError, r"window's left must be .* got True"),
        (lambda: masks.window("2", 0), ValueError, r"window's left must be .* got '2'"),
        (lambda: masks.causal(align="left"), ValueError, r"'end' .* or 'start' .*, got 'left'"),
        (lambda: masks.window(1, 1, align=None), ValueError, r"'end' .* or 'start' .*, got None"),
        (
            lambda: masks.padding([1.5, 2.0]),
            TypeError,
            r"lengths must be integers, .* got torch.float32; .*from_ones",
        ),
        (lambda: masks.padding(torch.ones(2, 7).bool()), TypeError, r"got torch.bool; .*from_ones\(marks"),
        (
            lambda: masks.dense(torch.ones(5, 7)),
            TypeError,
            r"boolean, .* got torch.float32; sl.masks.from_ones",
        ),
        (lambda: masks.dense([[True]]), TypeError, r"allowed must be a torch.Tensor, got list"),
        (
            lambda: masks.bias(torch.ones(5, 7).int()),
            TypeError,
            r"float tensor, .* got torch.int32; sl.masks.dense",
        ),
        (lambda: masks.bias(0.5), TypeError, r"added must be a torch.Tensor, got float"),
        (lambda: masks.from_ones(masks.causal()), TypeError, r"got a Mask; mask.dense\(T, S\)"),
        (lambda: masks.from_ones([1]), TypeError, r"mask must be a torch.Tensor, got list"),
        (
            lambda: masks.from_ones(torch.full((5, 7), 0.25)),
            ValueError,
            r"got 0.25 in .* \(5, 7\); .*sl.masks.bias",
        ),
        (
            lambda: as_mask(torch.ones(5, 7).long()),
            TypeError,
            r"boolean .* or float .*, got torch.int64; .*from_ones",
        ),
        (lambda: as_mask("causal"), TypeError, r"one of sl.masks.* got 'causal'; sl.masks.causal\(\)"),
        (
            lambda: as_mask(torch.ones(5, 7).numpy()),
            TypeError,
            r"one of sl.masks, got ndarray; torch.as_tensor\(mask\) makes a tensor of it$",
        ),
        (lambda: as_mask([[1.0] * 7] * 5), TypeError, r"got list; torch.as_tensor\(mask\)"),
        (lambda: as_mask(masks.causal), TypeError, r"got the function causal; call it, causal\(\)$"),
        (lambda: masks.from_ones(masks.causal), TypeError, r"got the function causal; call it, causal\(\)$"),
        (
            lambda: masks.causal() & torch.ones(5, 7).bool(),
            TypeError,
            r"two masks, got Tensor; sl.masks.dense",
        ),
        (
            lambda: torch.ones(5, 7).bool() & masks.causal(),
            TypeError,
            r"two masks, got Tensor; sl.masks.dense",
        ),
        (lambda: masks.causal() & None, TypeError, r"two masks, got NoneType"),
    ],
)
def test_bad_input(call, error, words):
    with pytest.raises(error, match=words):
        call()


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("mask", "lead", "words"),
    [
        (
            masks.dense(torch.ones(5, 6).bool()),
            (2, 3),
            r"\(2, 3, 5, 7\), got a mask of shape \(5, 6\), read as \(1, 1, 5, 6\)",
        ),
        (
            masks.dense(torch.ones(3, 1, 7).bool()),
            (2, 3),
            r"got a mask of shape \(3, 1, 7\), read as \(3, 1, 1, 7\); insert",
        ),
        (
            masks.bias(torch.ones(2, 1, 7)),
            (2, 3),
            r"got a mask of shape \(2, 1, 7\), read as \(1, 2, 1, 7\); insert",
        ),
        (masks.bias(torch.ones(2, 5, 7)), (), r"\(5, 7\), got a mask of shape \(2, 5, 7\); squeeze"),
        (masks.padding([3, 5]), (3,), r"got lengths \(2,\) for \(3,\); give one length"),
        (masks.padding([3, 5]), (), r"got lengths \(2,\) for \(\)"),
        (masks.padding(torch.tensor([[3, 5]])), (2, 3), r"got lengths \(1, 2\) for \(2, 3\)"),
    ],
)
def test_masks_that_do_not_broadcast(mask, lead, words):
    with pytest.raises(ValueError, match=words):
        mask.fitted(lead, 5, 7)


@pytest.mark.bad_input
def test_parts_that_do_not_broadcast_with_each_other():
    with pytest.raises(ValueError, match=r"each other, got shapes \(2,\), \(3, 1, 7\); give"):
        (masks.padding([3, 5]) & masks.dense(torch.ones(3, 1, 7).bool())).dense(5, 7)
    with pytest.raises(ValueError, match=r"\(5, 7\), got a mask of shape \(5, 6\)"):
        masks.dense(torch.ones(5, 6).bool()).dense(5, 7)
