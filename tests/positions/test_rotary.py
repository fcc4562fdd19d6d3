import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sightline.positions import Rotary


def by_loop(x, positions, base=10000.0):
    """Turn pairs (i, i + D/2) one by one; x (T, D)."""
    turned, half = torch.empty_like(x), x.size(-1) // 2
    for t, pos in enumerate(positions):
        for i in range(half):
            angle = pos * base ** (-i / half)
            a, b = x[t, i].item(), x[t, i + half].item()
            turned[t, i] = a * math.cos(angle) - b * math.sin(angle)
            turned[t, i + half] = b * math.cos(angle) + a * math.sin(angle)
    return turned


@pytest.mark.parametrize("base", [10000.0, 53.0])
def test_pairs_turn_by_their_angle(base):
    q, k = torch.randn(2, 7, 10, dtype=torch.float64).unbind(0)
    for x, turned in zip((q, k), Rotary(10, base)(q, k, offset=3), strict=True):
        torch.testing.assert_close(turned, by_loop(x, range(3, 10), base), rtol=0, atol=1e-12)


@given(offset=st.integers(0, 1 << 20), seed=st.integers(0, 99))
@settings(deadline=None, max_examples=30)
def test_scores_depend_on_distance_alone(offset, seed):
    generator = torch.Generator().manual_seed(seed)
    q, k = torch.randn(2, 3, 7, 6, dtype=torch.float64, generator=generator)
    rotary = Rotary(6)
    (here_q, here_k), (there_q, there_k) = rotary(q, k), rotary(q, k, offset=offset)
    torch.testing.assert_close(here_q @ here_k.mT, there_q @ there_k.mT, rtol=0, atol=1e-8)


def test_lengths_are_kept():
    q = torch.randn(2, 3, 7, 6, dtype=torch.float64)
    torch.testing.assert_close(Rotary(6).rotate(q).norm(dim=-1), q.norm(dim=-1))


def test_positions_of_each_item():
    q, k = torch.randn(2, 5, 3, 7, 6), torch.randn(2, 5, 1, 7, 6)
    q, k = q[0], k[0]  # (B, H, T, D) with fewer heads in k
    starts = torch.tensor([0, 11, 3, 29, 2])
    rotary = Rotary(6)
    turned_q, turned_k = rotary(q, k, positions=starts[:, None] + torch.arange(7))
    for b, start in enumerate(starts.tolist()):
        one_q, one_k = rotary(q[b], k[b], offset=start)
        torch.testing.assert_close(turned_q[b], one_q)
        torch.testing.assert_close(turned_k[b], one_k)


def test_positions_of_each_head_and_between():
    q = torch.randn(2, 3, 7, 6, dtype=torch.float64)
    positions = torch.rand(2, 3, 7, dtype=torch.float64) * 13
    turned = Rotary(6).rotate(q, positions=positions)
    for b in range(2):
        for h in range(3):
            torch.testing.assert_close(turned[b, h], by_loop(q[b, h], positions[b, h].tolist()))


def test_half_precision_is_rounded_once():
    x = torch.randn(5, 8).bfloat16()
    exact = Rotary(8).rotate(x.double(), offset=100_003)
    error = (Rotary(8).rotate(x, offset=100_003).double() - exact).abs() / exact.abs()
    assert error.max() < 2**-8


def test_gradients_turn_back():
    q = torch.randn(5, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda q: Rotary(6).rotate(q, offset=2), (q,))


def test_nothing_to_save():
    assert Rotary(6).state_dict() == {}


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: Rotary(7), ValueError, "d_head must be even.* got 7; take 8"),
        (lambda: Rotary(6, base=0.0), ValueError, "base must be a positive number, got 0.0"),
        (lambda: Rotary(6)(torch.zeros(5, 6), torch.zeros(3, 6)), ValueError, r"q \(5, 6\) and k \(3, 6\)"),
        (lambda: Rotary(6)(torch.zeros(5, 4), torch.zeros(5, 6)), ValueError, "d_head=6 wide.* width 4"),
        (lambda: Rotary(6).rotate(torch.zeros(5, 6), offset=-1), ValueError, "offset .* got -1"),
        (
            lambda: Rotary(6).rotate(torch.zeros(5, 6), offset=2, positions=torch.arange(5)),
            ValueError,
            "not both, got offset=2",
        ),
        (
            lambda: Rotary(6).rotate(torch.zeros(2, 3, 5, 6), positions=torch.zeros(4, 5)),
            ValueError,
            r"\(2, 3, 5\), got positions \(4, 5\) for x \(2, 3, 5, 6\)",
        ),
        (
            lambda: Rotary(6).rotate(torch.zeros(5, 6), positions=torch.ones(5).bool()),
            TypeError,
            "real numbers, got torch.bool",
        ),
        (lambda: Rotary(6)([1.0], torch.zeros(5, 6)), TypeError, "q must be a torch.Tensor, got list"),
    ],
)
def test_bad_input(call, error, words):
    with pytest.raises(error, match=words):
        call()
