import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import sightline as sl
from sightline.attention import additive
from sightline.attention.additive import additive_scores
from tests.attention.created import created


def naive(a, b, v):
    """The plain way, with the whole (T, S, r) tensor."""
    return torch.tanh(a.unsqueeze(-2) + b.unsqueeze(-3)) @ v


def inputs(a_lead=(), b_lead=(), t=5, s=7, r=3, dtype=torch.float64):
    shapes = ((*a_lead, t, r), (*b_lead, s, r), (r,))
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


def values_and_gradients(function, tensors, upstream):
    scores = function(*tensors)
    return scores, *torch.autograd.grad(scores, tensors, upstream.to(scores.dtype))


@settings(max_examples=40, derandomize=True, deadline=None)
@given(
    leads=st.sampled_from(
        [((), ()), ((2,), (2,)), ((2, 3), (2, 3)), ((2, 1), (3,)), ((), (2,)), ((3,), (2, 1))]
    ),
    t=st.sampled_from([1, 5, 13]),
    s=st.sampled_from([1, 7, 11]),
    r=st.sampled_from([1, 3]),
    tile=st.sampled_from([1, 17, 101, 1 << 21]),
)
def test_it_is_the_plain_way(leads, t, s, r, tile):
    tensors = inputs(*leads, t=t, s=s, r=r)
    upstream = torch.randn(naive(*tensors).shape, dtype=torch.float64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(additive, "TILE", tile)
        found = values_and_gradients(additive_scores, tensors, upstream)
    for ours, plain in zip(found, values_and_gradients(naive, tensors, upstream), strict=True):
        torch.testing.assert_close(ours, plain, rtol=0, atol=1e-12)


@settings(max_examples=60, derandomize=True, deadline=None)
@given(
    n=st.integers(1, 5),
    t=st.integers(0, 40),
    s=st.integers(0, 40),
    r=st.integers(1, 7),
    tile=st.integers(1, 400),
)
def test_tiles_cover_every_pair_once_and_stay_small(n, t, s, r, tile):
    a, b = torch.empty(n, t, r, device="meta"), torch.empty(n, s, r, device="meta")
    seen = torch.zeros(t, s)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(additive, "TILE", tile)
        for rows, columns in additive._tiles(a, b):
            seen[rows, columns] += 1
            assert seen[rows, columns].numel() * n * r <= max(tile, n * r)
    assert (seen == 1).all()


@pytest.mark.parametrize("lead", [(), (2,)])
def test_no_tensor_of_all_hidden_values_is_ever_created(monkeypatch, lead):
    t, s, r, tile = 41, 37, 11, 1000
    monkeypatch.setattr(additive, "TILE", tile)
    score = sl.scores.Additive(3, 5, r)
    q, k = torch.randn(*lead, t, 3, requires_grad=True), torch.randn(*lead, s, 5, requires_grad=True)
    with created() as seen:
        score(q, k).sum().backward()
    n = math.prod(lead)
    assert max(seen)[0] == n * t * s  # the scores themselves are the largest
    assert max(size for size, name in seen if "tanh" in name) <= tile
    assert n * t * s < n * t * s * r
    assert all(p.grad is not None for p in (q, k, *score.parameters()))


def test_the_trace_would_see_it():
    with created() as seen:
        naive(*inputs(t=41, s=37, r=11)).sum().backward()
    assert max(seen)[0] == 41 * 37 * 11


def test_float32_is_as_exact_as_the_plain_way(monkeypatch):
    monkeypatch.setattr(additive, "TILE", 5000)
    tensors = [x.detach() for x in inputs((2,), (2,), t=67, s=41, r=13)]
    upstream = torch.randn(2, 67, 41, dtype=torch.float64)
    exact = values_and_gradients(naive, [x.requires_grad_() for x in tensors], upstream)
    single = [x.detach().float().requires_grad_() for x in tensors]
    ours = values_and_gradients(additive_scores, single, upstream)
    plain = values_and_gradients(naive, single, upstream)
    for truth, found, other in zip(exact, ours, plain, strict=True):
        assert (found - truth).square().mean().sqrt() <= 1.5 * (other - truth).square().mean().sqrt()


def test_gradcheck(monkeypatch):
    monkeypatch.setattr(additive, "TILE", 20)
    assert torch.autograd.gradcheck(additive_scores, inputs((2, 1), (3,), t=5, s=3, r=2))


def test_far_values_saturate_without_nan():
    a, b, v = torch.tensor([[1e30], [-1e30]]), torch.zeros(3, 1), torch.ones(1, requires_grad=True)
    a.requires_grad_()
    scores = additive_scores(a, b, v)
    assert torch.equal(scores, torch.tensor([[1.0] * 3, [-1.0] * 3]))
    scores.sum().backward()
    assert torch.equal(a.grad, torch.zeros(2, 1))


@pytest.mark.parametrize(("t", "s"), [(0, 7), (5, 0), (0, 0)])
def test_nothing_to_score(t, s):
    tensors = inputs((2,), (2,), t=t, s=s)
    scores = additive_scores(*tensors)
    assert scores.shape == (2, t, s)
    scores.sum().backward()
    assert all((x.grad == 0).all() for x in tensors)


def test_autocast():
    score, q, k = sl.scores.Additive(3, 5, 7), torch.randn(2, 5, 3), torch.randn(2, 11, 5)
    with torch.autocast("cpu", torch.bfloat16):
        rough = score(q, k)
    assert rough.dtype == torch.bfloat16
    rough.float().sum().backward()
    assert all(p.grad.dtype == torch.float32 for p in score.parameters())
    torch.testing.assert_close(rough.float(), score(q, k), rtol=0, atol=3e-2)
