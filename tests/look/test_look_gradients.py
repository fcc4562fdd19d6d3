"""Gradients of what a look measures, and the memory that it takes."""

import subprocess
import sys

import pytest
import torch

import sightline as sl
from sightline.attention.masks import as_mask
from sightline.look.score_inputs import make_score_inputs
from tests.look.look_oracle import (
    INF,
    MASKS,
    entropy,
    matrix,
    near,
    plain_scores,
    randn,
    score_of,
    sizes_created,
    statistics_of,
    tile_of,
)
from tests.look.stream_oracle import attention_in_blocks, inputs

# Gradients


GRADS = ("received", "entropy", "peak", "lse")


def measured(weights, lse):
    """What a look measures, by the matrix."""
    return {"received": weights.sum(-2), "entropy": entropy(weights), "peak": weights.amax(-1), "lse": lse}


def gradients(statistic, of):
    upstream = randn(*statistic.shape, seed=31).to(statistic)
    visible = torch.where(statistic.detach().isfinite(), statistic, 0.0)  # the lse of an empty row is -inf
    return torch.autograd.grad(visible, of, upstream, allow_unused=True, retain_graph=True)


def same_gradients(found, expected, atol=1e-9):
    for ours, theirs in zip(found, expected, strict=True):
        if theirs is None:
            assert ours is None or not ours.any()
        else:
            near(ours, theirs, rtol=1e-9, atol=atol)


@pytest.mark.parametrize("mask", ["nothing", "causal", "window", "padding", "dense", "bias_with_inf"])
@pytest.mark.parametrize("kv_heads", [None, 2])
@pytest.mark.parametrize("tile", [41, 1 << 19])
def test_gradients_are_those_of_the_matrix(mask, kv_heads, tile):
    q, k, v = (x.requires_grad_() for x in inputs((3, 4), 7, 5, 3, kv_heads=kv_heads, dtype=torch.float64))
    given_mask, added = MASKS[mask]((3, 4), 7, 5)
    with tile_of(tile):
        sight = sl.look(q, k, v, given_mask)
        weights, lse = matrix(q, k, added)
        expected = measured(weights, lse)
        for name in GRADS:
            same_gradients(gradients(getattr(sight, name), (q, k)), gradients(expected[name], (q, k)))


@pytest.mark.parametrize("score", ["general", "low_rank", "additive", "cosine"])
def test_gradients_reach_the_parameters_of_a_score(score):
    q, k, v = (x.requires_grad_() for x in inputs((2, 3), 7, 5, 3, dtype=torch.float64))
    built = score_of(score, 3, torch.float64)
    of = (q, k, *(built.parameters() if isinstance(built, torch.nn.Module) else ()))
    mask, added = MASKS["causal"]((2, 3), 7, 5)
    with tile_of(23):
        sight = sl.look(q, k, v, mask, score=built)
        weights, lse = matrix(q, k, added, scores=plain_scores(score, built, q, k))
        expected = measured(weights, lse)
        for name in GRADS:
            same_gradients(gradients(getattr(sight, name), of), gradients(expected[name], of))


def test_gradients_reach_a_bias_alone():
    q, k, v = inputs((2, 3), 7, 5, 3, dtype=torch.float64)
    bias = randn(3, 7, 5, seed=9).requires_grad_()
    with tile_of(23):
        sight = sl.look(q, k, v, sl.masks.bias(bias) & sl.masks.causal())
        weights, _ = matrix(q, k, bias + MASKS["causal"]((2, 3), 7, 5)[1])
        for found, expected in (
            (sight.received, weights.sum(-2)),
            (sight.entropy, entropy(weights)),
            (sight.peak, weights.amax(-1)),
        ):
            same_gradients(gradients(found, (bias,)), gradients(expected, (bias,)))


@pytest.mark.parametrize("mask", [None, "causal", "dense"])
def test_gradcheck(mask):
    q, k = (randn(1, 1, 3, 2, seed=n).requires_grad_() for n in (1, 2))
    v = randn(1, 1, 3, 2, seed=3)
    given_mask = None if mask is None else MASKS[mask]((1, 1), 3, 3)[0]

    def statistics(q, k):
        sight = sl.look(q, k, v, given_mask)
        return sight.received, sight.entropy, sight.peak

    with tile_of(4):
        assert torch.autograd.gradcheck(statistics, (q, k), fast_mode=True)


def test_gradients_in_float32_are_finite_around_empty_rows_and_huge_negatives():
    q, k, v = (x.requires_grad_() for x in inputs((2, 3), 5, 7, 11))
    added = torch.zeros(5, 7)
    added[1], added[2], added[3, 2:] = -INF, torch.finfo(torch.float32).min, -INF
    sight = sl.look(q, k, v, added)
    loss = sight.received.square().sum() + sight.entropy.sum() + sight.peak.sum()
    for grad in torch.autograd.grad(loss, (q, k)):
        assert grad.isfinite().all()
        assert grad.any()


def test_nothing_is_differentiable_where_nothing_asks_for_it():
    q, k, v = (x.requires_grad_() for x in inputs((2, 3), 5, 7, 11))
    with torch.no_grad():
        sight = sl.look(q, k, v)
    assert not any(x.requires_grad for x in sight.statistics.values())
    assert not any(x.requires_grad for x in (sight.mass([[0]]), sight.received_from((0, 2))))
    sight = sl.look(q, k, v, measure=sl.Look(map=3, top=2))
    assert all(getattr(sight, name).requires_grad for name in GRADS)
    assert sight.mass([[0]]).requires_grad
    assert not any(x.requires_grad for x in (sight.rows([0]), sight.map(2), sight.top(1)[0]))


# Memory


@pytest.mark.combinations
@pytest.mark.parametrize("mask", [None, "causal", "window", "bias"])
@pytest.mark.parametrize("grad", [False, True])
def test_no_tensor_as_large_as_the_matrix_is_ever_created(mask, grad):
    t, s = 211, 223
    q, k, v = (x.requires_grad_(grad) for x in inputs((1, 1), t, s, 3))
    given_mask = {
        None: None,
        "causal": sl.masks.causal(),
        "window": sl.masks.window(5, 0),
        "bias": sl.masks.bias(randn(1, s, dtype=torch.float32)),
    }[mask]
    with tile_of(4001), attention_in_blocks(16, 7), sizes_created() as sizes:
        sight = sl.look(q, k, v, given_mask, measure=sl.Look(map=7, top=3))
        if grad:
            (sight.received.square().sum() + sight.entropy.sum() + sight.peak.sum()).backward()
        sight.map((5, 3))
        sight.rows([0, 200])
        sight.top(5)
    largest, op = max(sizes)
    assert largest < t * s // 4, f"{op} created {largest} elements"


def test_backward_keeps_no_tile():
    """Between forward and backward only O(T + S) is saved for the gradient."""
    t, s = 211, 223
    q, k, v = (x.requires_grad_() for x in inputs((1, 1), t, s, 3))
    pairs, _ = make_score_inputs(q, k, v, as_mask(None))
    saved = []

    def note(x):
        saved.append(x.untyped_storage().nbytes() // x.element_size())
        return x

    with tile_of(4001), torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        statistics_of(pairs)
    assert sum(saved) < t * s // 4


_MEMORY = """
import resource, torch, sightline as sl
torch.set_num_threads(1)
t, d = 16384, 64
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
sl.look(*(torch.randn(1, 1, 300, d) for _ in range(3)), sl.masks.causal(), measure=sl.Look(map=64)).map(32)
q, k, v = (torch.randn(1, 1, t, d) for _ in range(3))
before = peak()
sight = sl.look(q, k, v, measure=sl.Look(map=64))
after = peak()
assert sight.map(64).shape == (1, 1, 64, 64)
assert abs(float(sight.received.sum()) - t) < 1, sight.received.sum()
print(after - before)
"""


@pytest.mark.plain  # long, and its shapes are others' too
def test_a_long_sequence_takes_little_memory():
    """The matrix would take 1.07 GB."""
    command = [sys.executable, "-c", _MEMORY]
    run = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) < 300e6
