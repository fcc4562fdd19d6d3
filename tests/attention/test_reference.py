import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import sightline as sl
from sightline.attention.reference import scaled_dot_product_attention as reference


def qkv(*lead, t=5, s=7, d=3, d_v=11, dtype=torch.float64):
    return (torch.randn(*lead, *size, dtype=dtype) for size in ((t, d), (s, d), (s, d_v)))


def by_loops(q, k, v, mask):
    """The equation for one sequence, a number at a time."""
    output = torch.zeros(q.size(0), v.size(1), dtype=q.dtype)
    weights = torch.zeros(q.size(0), k.size(0), dtype=q.dtype)
    for t in range(q.size(0)):
        seen = [s for s in range(k.size(0)) if mask[t][s]]
        scores = {s: sum(a * b for a, b in zip(q[t], k[s], strict=True)) / math.sqrt(q.size(1)) for s in seen}
        total = sum(math.exp(score) for score in scores.values())
        for s in seen:
            weights[t, s] = math.exp(scores[s]) / total
            output[t] += weights[t, s] * v[s]
    return output, weights


def test_it_is_the_equation():
    q, k, v = qkv()
    mask = torch.rand(5, 7) > 0.4
    mask[2] = False
    for given_mask, read in ((mask, mask), (None, torch.ones(5, 7))):
        output, weights = reference(q, k, v, given_mask)
        expected_output, expected_weights = by_loops(q, k, v, read)
        torch.testing.assert_close(output, expected_output, rtol=0, atol=1e-12)
        torch.testing.assert_close(weights, expected_weights, rtol=0, atol=1e-12)


@pytest.mark.parametrize("lead", [(), (3,), (3, 2)])
def test_the_masks_of_the_package_are_read_too(lead):
    q, k, v = qkv(*lead)
    masks = [sl.masks.causal(), sl.masks.window(2, 1) & sl.masks.causal(align="start")]
    masks += [sl.masks.padding([7, 2, 0])] if lead else []
    for mask in masks:
        for found, expected in zip(
            reference(q, k, v, mask), reference(q, k, v, mask.dense(5, 7)), strict=True
        ):
            torch.testing.assert_close(found, expected, rtol=0, atol=0)


@settings(max_examples=20, derandomize=True, deadline=None)
@given(
    lead=st.sampled_from([(), (2,), (2, 3)]),
    t=st.sampled_from([1, 5, 11]),
    s=st.sampled_from([1, 7, 13]),
    share=st.sampled_from([0.0, 0.5, 1.0]),
    loud=st.sampled_from([1.0, 1e4]),
)
def test_rows_sum_to_one_or_to_nothing(lead, t, s, share, loud):
    q, k, v = qkv(*lead, t=t, s=s)
    mask = torch.rand(*lead, t, s) < share
    _, weights = reference(q * loud, k, v, mask)
    torch.testing.assert_close(weights.sum(-1), mask.any(-1).double())
    assert (weights >= 0).all()
    assert (weights[~mask] == 0).all()


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float16, torch.float64])
@pytest.mark.parametrize("shape", [(2, 1, 7), (5, 7), (2, 5, 7), (7,), (1, 1), (2, 1, 1), (1, 5, 1)])
def test_masks_of_ones_and_zeros_of_any_dtype_and_shape(dtype, shape):
    q, k, v = qkv(2)
    mask = torch.randint(0, 2, shape).to(dtype)
    full = torch.broadcast_to(mask, (2, 5, 7)).bool()
    expected = [by_loops(*x) for x in zip(q, k, v, full, strict=True)]
    output, weights = reference(q, k, v, mask)
    torch.testing.assert_close(output, torch.stack([o for o, _ in expected]), rtol=0, atol=1e-12)
    torch.testing.assert_close(weights, torch.stack([w for _, w in expected]), rtol=0, atol=1e-12)


def test_three_dimensions_of_a_mask_belong_to_the_batch():
    q, k, v = qkv(2, 2)  # as many heads as items: only the rule tells them apart
    mask = torch.ones(2, 1, 7)
    mask[1, :, 3:] = 0
    output, weights = reference(q, k, v, mask)
    assert (weights[1, :, :, 3:] == 0).all()
    assert (weights[0, :, :, 3:] > 0).all()
    torch.testing.assert_close(output, sl.attention(q, k, v, mask.bool()))


def test_the_lower_triangle_looks_at_the_past():
    q, k, v = qkv(2, t=7)
    output, weights = reference(q, k, v, torch.tril(torch.ones(7, 7) > 0))
    assert torch.equal(weights, weights.tril())
    torch.testing.assert_close(output, F.scaled_dot_product_attention(q, k, v, is_causal=True))


def test_an_empty_row_is_zeros_and_passes_no_gradient():
    q, k, v = (x.requires_grad_() for x in qkv(2))
    mask = torch.ones(2, 5, 7)
    mask[0] = 0
    mask[1, 3] = 0
    output, weights = reference(q, k, v, mask)
    assert (output[0] == 0).all()
    assert (weights[1, 3] == 0).all()
    (output * torch.randn_like(output)).sum().backward()
    for x in (q, k, v):
        assert (x.grad[0] == 0).all()
        assert x.grad.isfinite().all()
    assert (q.grad[1, 3] == 0).all()
    assert (q.grad[1, 2] != 0).all()


def test_its_gradients():
    mask = torch.ones(3, 5).tril().bool()
    inputs = [x.requires_grad_() for x in qkv(t=3, s=5, d=2, d_v=2)]
    assert torch.autograd.gradcheck(lambda q, k, v: reference(q, k, v, mask), inputs)


def test_it_fits_on_one_screen():
    from pathlib import Path

    from sightline.attention import reference as module

    assert len(Path(module.__file__).read_text().splitlines()) <= 70


@pytest.mark.bad_input
@pytest.mark.parametrize("value", [-math.inf, -1e9, 0.5, 2.0, math.nan])
def test_a_mask_to_be_added_is_not_read_upside_down(value):
    mask = torch.zeros(5, 7)
    mask[3, 2] = value
    with pytest.raises(ValueError, match=rf"got {value} in a mask of shape \(5, 7\); sl.attention"):
        reference(*qkv(), mask)


@pytest.mark.bad_input
def test_a_mask_that_is_no_tensor():
    with pytest.raises(TypeError, match=r"mask must be a torch\.Tensor, got list"):
        reference(*qkv(), [[1, 0]])
    with pytest.raises(ValueError, match="masks that allow or forbid, got a bias"):
        reference(*qkv(), sl.masks.causal() & sl.masks.bias(torch.zeros(5, 7)))


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("q", "k", "v", "mask", "words"),
    [
        ((5, 3), (7, 2), (7, 11), None, r"D=3 and D=2 for q \(5, 3\) and k \(7, 2\)"),
        ((5, 3), (7, 3), (6, 11), None, r"S=7 for k \(7, 3\) and S=6 for v \(6, 11\)"),
        ((3,), (7, 3), (7, 11), None, r"q of shape \(3,\)"),
        ((2, 5, 3), (3, 7, 3), (3, 7, 11), None, r"q \(2, 5, 3\), k \(3, 7, 3\)"),
        (
            (2, 6, 5, 3),
            (2, 3, 7, 3),
            (2, 3, 7, 3),
            None,
            r"one head .* k \(2, 3, 7, 3\).*_interleave\(2, 1\)",
        ),
        ((2, 5, 3), (2, 7, 3), (2, 7, 11), (5, 6), r"\(2, 5, 7\), got a mask of shape \(5, 6\)"),
        ((5, 3), (7, 3), (7, 11), (2, 5, 7), r"\(5, 7\), got a mask of shape \(2, 5, 7\)"),
    ],
)
def test_shapes_that_do_not_fit(q, k, v, mask, words):
    with pytest.raises(ValueError, match=words):
        reference(*(torch.ones(x) for x in (q, k, v)), None if mask is None else torch.ones(mask))


@pytest.mark.bad_input
def test_masks_that_are_elsewhere_or_not_called():
    q = torch.randn(2, 5, 3)
    with pytest.raises(ValueError, match="must be on the device of q, got meta and cpu; build it from"):
        sl.reference.scaled_dot_product_attention(q, q, q, torch.ones(5, 5, device="meta"))
    with pytest.raises(TypeError, match=r"got the function causal; call it, causal\(\)"):
        sl.reference.scaled_dot_product_attention(q, q, q, sl.masks.causal)
