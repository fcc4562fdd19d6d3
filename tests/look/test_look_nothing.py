"""A look that asks for nothing takes what the kernel knows, and no more."""

import pytest
import torch
from torch import nn

import sightline as sl
from sightline.look import engine
from tests.look.look_oracle import MASKS, agrees, matrix, near, randn

NOTHING = sl.Look(received=False, entropy=False, peak=False)
LEAD, T, S, D = (2, 3), 5, 7, 4


def inputs(dtype=torch.float32):
    return [randn(*LEAD, n, D, seed=n, dtype=dtype) for n in (T, S, S)]


class Attends(nn.Module):
    def forward(self, q, k, v, mask):
        return sl.attention(q, k, v, mask)


@pytest.fixture
def no_pass(monkeypatch):
    """Refuse to go over the weights."""

    def refused(*_):
        raise AssertionError("passed over the weights")

    with monkeypatch.context() as patched:
        patched.setattr(engine, "over_tiles", refused)
        yield patched


@pytest.mark.parametrize(
    "mask", ["nothing", "causal", "causal_from_start", "bias", "bias_with_huge", "bias_of_heads"]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_no_weight_is_computed(mask, dtype, no_pass):
    q, k, v = inputs(dtype)
    given, added = MASKS[mask](LEAD, T, S)
    sight, model = sl.look(q, k, v, given, measure=NOTHING), Attends()
    with sl.watch(model, measure=NOTHING) as seen:
        model(q, k, v, given)
    assert set(sight.statistics) == {"lse", "output"}
    assert set(seen[""].statistics) == {"lse"}
    weights, lse = matrix(q.double(), k.double(), added)
    near(sight.lse, lse, atol=1e-6)
    near(seen[""].lse, lse, atol=1e-6)
    no_pass.undo()
    near(sight.rows(range(T)), weights, atol=2e-6)  # later questions are answered as ever


@pytest.mark.combinations
@pytest.mark.parametrize("mask", sorted(MASKS))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_what_it_knows_is_right(mask, dtype):
    q, k, v = inputs(dtype)
    given, added = MASKS[mask](LEAD, T, S)
    sight = sl.look(q, k, v, given, measure=NOTHING)
    rounded = added.to(dtype).double()  # as the kernel rounds it
    weights, lse = matrix(q.double(), k.double(), rounded)
    near(sight.lse, lse, rtol=1e-5, atol=2e-6)
    near(sight.rows(range(T)), weights, rtol=1e-5, atol=2e-6)


def test_gradients_flow_through_lse_still():
    q, k, v = inputs(torch.float64)
    q.requires_grad_()
    sl.look(q, k, v, measure=NOTHING).lse.sum().backward()
    weights, _ = matrix(q.detach(), k)
    near(q.grad, weights @ k * D**-0.5)


def test_an_additive_score_has_no_kernel_to_ask():
    q, k, v = inputs(torch.float64)
    score = sl.scores.Additive(D, D, 5).double()
    with torch.no_grad():
        sight = sl.look(q, k, v, score=score, measure=NOTHING)
        near(sight.lse, score(q, k).logsumexp(-1))


def test_asking_later_gives_all_that_asking_at_once_gives():
    q, k, v = inputs()
    given, added = MASKS["causal_and_padding"](LEAD, T, S)
    late = sl.look(q, k, v, given, measure=NOTHING)
    at_once = sl.look(q, k, v, given)
    agrees(at_once, *matrix(q.double(), k.double(), added))
    assert torch.equal(late.output, at_once.output)
    near(late.top(3)[0], at_once.top(3)[0])
