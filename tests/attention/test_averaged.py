"""Weights averaged over the heads: the same as of all heads at once, by either way, and never all at once."""

import importlib
import math

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import forward_ad

import sightline as sl
from sightline.attention.averaged import attention_with_average, attention_with_weights
from sightline.attention.masks import Mask
from tests.attention.created import created

averaged = importlib.import_module("sightline.attention.averaged")  # sl.attention is the function

B, H, T, S, D, DV = 2, 5, 7, 11, 3, 13


@pytest.fixture(params=["small", "large"])
def way(request, monkeypatch):
    """Small inputs go head by head, large ones some queries at a time; here both are tiny."""
    if request.param == "large":
        monkeypatch.setattr(averaged, "_SMALL", 0)
        monkeypatch.setattr(averaged, "_TILE", {"cpu": 2 * B * H * S, "cuda": 2 * B * H * S})
    return request.param


def draw(**kwargs):
    kwargs = {"dtype": torch.float64, "requires_grad": True} | kwargs
    return tuple(torch.randn(B, H, *shape, **kwargs) for shape in ((T, D), (S, D), (S, DV)))


def masks():
    allowed = torch.rand(B, 1, T, S) < 0.6
    allowed[1, 0, 4] = False  # a query with nothing to look at
    return {
        "none": Mask(),
        "causal": sl.masks.causal(),
        "padding": sl.masks.padding(torch.tensor([3, S])),
        "dense": sl.masks.dense(allowed),
        "bias": sl.masks.bias(torch.randn(B, H, T, S, dtype=torch.float64, requires_grad=True)),
        "one bias for all queries": sl.masks.bias(
            torch.randn(B, 1, 1, S, dtype=torch.float64, requires_grad=True)
        ),
        "two biases, dense": sl.masks.bias(torch.randn(T, S, dtype=torch.float64, requires_grad=True))
        & sl.masks.bias(torch.randn(H, T, S, dtype=torch.float64, requires_grad=True))
        & sl.masks.dense(allowed),
    }


def by_the_equation(q, k, v, mask):
    dense = mask.fitted((B, H), T, S).block((0, T), (0, S), T, S)
    scores = q @ k.mT / math.sqrt(D)
    scores = scores.masked_fill(~dense, -torch.inf) if dense.dtype == torch.bool else scores + dense
    empty = (scores == -torch.inf).all(-1, keepdim=True)
    weights = scores.masked_fill(empty, 0).softmax(-1).masked_fill(empty, 0)
    return weights @ v, weights


@pytest.mark.parametrize("kind", masks())
def test_output_average_and_gradients_are_those_of_the_equation(way, kind):
    q, k, v = draw()
    mask = masks()[kind]
    wanted = [q, k, v, *mask.added]
    expected, weights = by_the_equation(q, k, v, mask)
    output, average = attention_with_average(q, k, v, mask)
    torch.testing.assert_close(output, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(average, weights.mean(1), rtol=1e-12, atol=1e-12)
    g_output, g_average = torch.randn_like(output), torch.randn_like(average)
    found = torch.autograd.grad((output, average), wanted, (g_output, g_average))
    truth = torch.autograd.grad((expected, weights.mean(1)), wanted, (g_output, g_average))
    for a, b in zip(found, truth, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", masks())
def test_weights_of_every_head_are_those_of_the_equation(kind):
    q, k, v = draw()
    mask = masks()[kind]
    for found, expected in zip(
        attention_with_weights(q, k, v, mask), by_the_equation(q, k, v, mask), strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_rows_sum_to_one_and_an_empty_row_to_zero(way):
    q, k, v = draw()
    mask = masks()["dense"]
    output, average = attention_with_average(q, k, v, mask)
    sums = torch.ones(B, T, dtype=torch.float64)
    sums[1, 4] = 0
    torch.testing.assert_close(average.sum(-1), sums)
    assert (output[1, :, 4] == 0).all()
    (output.square().sum() + average.square().sum()).backward()
    assert (q.grad[1, :, 4] == 0).all()
    assert all(x.grad.isfinite().all() for x in (q, k, v))


@pytest.mark.parametrize("kind", ["none", "causal", "padding"])
def test_nothing_as_large_as_all_weights_is_created(way, kind):
    q, k, v = draw(dtype=torch.float32)
    v = v[..., :D]  # narrow values, so that nothing else is as large
    mask = masks()[kind]
    with created() as seen:
        output, average = attention_with_average(q, k, v, mask)
        torch.autograd.grad(output.sum() + average.square().sum(), (q, k, v))
    largest = max(seen)
    assert largest[0] < B * H * T * S, largest
    assert any("bmm" in name for _, name in seen)


def test_derivative_of_the_derivative_of_the_average(way):
    """A gradient penalty: a backward pass of steps unseen by torch would lose it."""
    q, k, v = draw()
    bias = torch.randn(T, S, dtype=torch.float64, requires_grad=True)
    c = torch.randn(B, T, S, dtype=torch.float64)
    wanted = (q, k, bias)

    def penalty(average):
        first = torch.autograd.grad((average * c).sum(), wanted, create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), wanted)

    found = penalty(attention_with_average(q, k, v, sl.masks.bias(bias))[1])
    truth = penalty(by_the_equation(q, k, v, sl.masks.bias(bias))[1].mean(1))
    for a, b in zip(found, truth, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-12)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # torch's own, at the first jvp
def test_inside_torch_func_and_with_forward_derivatives(way):
    q, k, v = (x.detach() for x in draw())

    def loss(q):
        output, average = attention_with_average(q, k, v, Mask())
        return output.sum() + average.square().sum()

    def truth(q):
        output, weights = by_the_equation(q, k, v, Mask())
        return output.sum() + weights.mean(1).square().sum()

    torch.testing.assert_close(torch.func.grad(loss)(q), torch.func.grad(truth)(q))
    direction = (torch.randn_like(q),)
    torch.testing.assert_close(torch.func.jvp(loss, (q,), direction), torch.func.jvp(truth, (q,), direction))
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(q, *direction)
        torch.testing.assert_close(*(forward_ad.unpack_dual(f(dual)).tangent for f in (loss, truth)))
    several = torch.stack([q, 2 * q, -q])
    torch.testing.assert_close(torch.vmap(loss)(several), torch.vmap(truth)(several))


@pytest.mark.parametrize("p", [0.3, 0.9])
def test_with_dropout_the_average_is_of_the_weights_that_were_used(way, p):
    q, k, _ = draw()
    shown = torch.eye(S, dtype=torch.float64).expand(B, H, S, S)  # values that copy the weights to the output
    torch.manual_seed(3)
    used, average = attention_with_average(q, k, shown, Mask(), p)
    torch.testing.assert_close(average, used.mean(1))
    _, weights = by_the_equation(q, k, shown, Mask())
    dropped = used == 0
    torch.testing.assert_close(used[~dropped], weights[~dropped] / (1 - p))
    assert abs(dropped.double().mean().item() - p) < 0.08
    heads = dropped.flatten(2).unbind(1)
    assert not any(torch.equal(heads[0], other) for other in heads[1:])


def test_dropout_keeps_the_expectation(way):
    q, k, v = (x.detach() for x in draw())
    expected = attention_with_average(q, k, v, Mask())[1]
    mean = sum(attention_with_average(q, k, v, Mask(), 0.5)[1] for _ in range(400)) / 400
    assert (mean - expected).abs().max() < 0.06


def test_dropout_is_fixed_by_the_seed(way):
    q, k, v = draw()
    found = []
    for seed in (5, 5, 6):
        torch.manual_seed(seed)
        found.append(attention_with_average(q, k, v, Mask(), 0.4))
    assert all(map(torch.equal, found[0], found[1]))
    assert not torch.equal(found[0][1], found[2][1])


def test_gradients_with_dropout_are_those_of_finite_differences(way):
    inputs = tuple(torch.randn(1, 2, *shape, dtype=torch.float64) for shape in ((3, 2), (5, 2), (5, 2)))
    bias = torch.randn(3, 5, dtype=torch.float64)

    def attend(q, k, v, bias):
        torch.manual_seed(11)
        return attention_with_average(q, k, v, sl.masks.bias(bias), 0.4)

    assert torch.autograd.gradcheck(attend, tuple(x.requires_grad_() for x in (*inputs, bias)))


def test_the_large_way_is_taken_by_itself_and_is_right():
    q, k, v = (torch.randn(1, 2, 1511, 2, dtype=torch.float64, requires_grad=True) for _ in range(3))
    assert q.size(1) * q.size(2) ** 2 > averaged._SMALL
    output, average = attention_with_average(q, k, v, sl.masks.causal())
    truth, weights = attention_with_weights(q, k, v, sl.masks.causal())
    torch.testing.assert_close(output, truth)
    torch.testing.assert_close(average, weights.mean(1))
    c = torch.randn_like(average)
    (found,) = torch.autograd.grad((average * c).sum(), k)
    (expected,) = torch.autograd.grad((weights.mean(1) * c).sum(), k)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def test_a_single_head_is_its_own_average(way):
    q, k, v = (x[:, :1] for x in draw())
    output, average = attention_with_average(q, k, v, Mask())
    torch.testing.assert_close(average, F.softmax(q[:, 0] @ k[:, 0].mT / math.sqrt(D), -1))
    torch.testing.assert_close(output[:, 0], average @ v[:, 0])
