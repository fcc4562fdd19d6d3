import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import sightline as sl
from tests.attention.attend_oracle import (
    close,
    in_blocks,
    in_one_call,
    plain,
    qkv,
    randn,
    scored,
    value_and_gradients,
)

masks = sl.masks


def test_the_oracle_is_the_reference():
    q, k, v = qkv(2, 3)
    allowed = randn(2, 3, 5, 7, seed=9) > 0.3
    allowed[0, 1, 2] = False
    expected, _ = sl.reference.scaled_dot_product_attention(q, k, v, allowed)
    close([plain(q, k, v, allowed)], [expected])


# The grid: ranks, broadcasting, lengths, widths, masks, scores and both ways

LEADS = [
    ((), (), ()),
    ((2,), (2,), (2,)),
    ((2, 3), (2, 3), (2, 3)),
    ((5, 2, 3), (5, 2, 3), (5, 2, 3)),
    ((2, 3), (1, 3), (2, 1)),
    ((3,), (2, 1), (2, 3)),
    ((2, 3), (), (3,)),
    ((2, 1, 1), (2, 5, 3), (5, 1)),
    ((1,), (2,), (2,)),
    ((2, 6), (2, 3), (2, 3)),  # grouped queries
    ((2, 6), (1, 2), (2, 2)),
    ((1, 6), (2, 2), (2, 2)),
    ((2, 6), (2, 1), (2, 1)),
]
MASKS = ["none", "causal", "causal_from_start", "window", "ahead", "padding", "head_padding"]
MASKS += ["dense_2d", "dense_batch", "dense_full", "bias_2d", "bias_full"]


def drawn(name, lead, t, s, seed):
    """A mask and, by index arithmetic of our own, what it allows and what it adds."""
    i, j = torch.arange(t)[:, None], torch.arange(s)
    step = j - i - (s - t)
    lengths = torch.tensor([(seed * 5 + 3 * b) % (s + 1) for b in range(lead[0] if lead else 1)])
    rows = lengths.reshape(-1, *(1,) * (len(lead) + 1))
    per_head = (lengths[:, None] + torch.arange(lead[1] if len(lead) > 1 else 1)) % (s + 1)
    noise = randn(*lead, t, s, seed=seed)
    batch = lead[:1] or (1,)
    match name:
        case "none":
            return masks.Mask(), None, None
        case "causal":
            return masks.causal(), step <= 0, None
        case "causal_from_start":
            return masks.causal(align="start"), j <= i, None
        case "window":
            return masks.window(2, 1), (step >= -2) & (step <= 1), None
        case "ahead":
            return masks.window(0, None, align="start"), j >= i, None
        case "padding":
            return masks.padding(lengths if lead else lengths[0]), j < (rows if lead else lengths[0]), None
        case "head_padding" if len(lead) > 1:
            shaped = per_head.reshape(*per_head.shape, *(1,) * (len(lead) - 2), 1, 1)
            return masks.padding(per_head), j < shaped, None
        case "dense_2d" | "head_padding":
            allowed = randn(t, s, seed=seed) > 0
            return masks.dense(allowed), allowed, None
        case "dense_batch" if lead:
            allowed = randn(*batch, 1, s, seed=seed) > 0
            return masks.dense(allowed), allowed.reshape(*batch, *(1,) * len(lead), s), None
        case "dense_full" | "dense_batch":
            return masks.dense(noise > 0), noise > 0, None
        case "bias_2d":
            return masks.bias(noise.reshape(-1, t, s)[0]), None, noise.reshape(-1, t, s)[0]
        case "bias_full":
            added = noise.masked_fill(noise > 1, -math.inf)
            return masks.bias(added), None, added
    raise AssertionError(name)


def both(a, b, how):
    return how(a, b) if a is not None and b is not None else (b if a is None else a)


@settings(max_examples=100, derandomize=True, deadline=None)
@given(
    leads=st.sampled_from(LEADS),
    t=st.sampled_from([1, 5, 7]),
    s=st.sampled_from([1, 5, 11]),
    d=st.sampled_from([2, 3]),
    d_v=st.sampled_from([1, 3]),
    names=st.tuples(st.sampled_from(MASKS), st.sampled_from(MASKS)),
    score=st.sampled_from([None, None, "dot", "scaled_dot", "cosine", "general", "low_rank", "additive"]),
    scale=st.sampled_from([None, 0.7, -1.3, 0.0]),
    way=st.sampled_from([in_blocks, in_one_call]),
)
def test_it_is_the_equation(leads, t, s, d, d_v, names, score, scale, way):
    q, k, v = (
        randn(*lead, *x, seed=n)
        for n, (lead, x) in enumerate(zip(leads, ((t, d), (s, d), (s, d_v)), strict=True))
    )
    grouped = len(leads[0]) == 2 and leads[0][1] == 6
    lead = (2, 6) if grouped else tuple(torch.broadcast_shapes(*leads))
    (one, allowed_1, added_1), (two, allowed_2, added_2) = (
        drawn(name, lead, t, s, n) for n, name in enumerate(names)
    )
    allowed = both(allowed_1, allowed_2, torch.logical_and)
    added = both(added_1, added_2, torch.add)
    made = scored(score, d)
    module = made if isinstance(made, sl.scores.Score) else None if score is None else sl.scores.named(score)
    parameters = [] if module is None else list(module.parameters())

    with way():
        found = value_and_gradients(
            lambda *x: sl.attention(*x, one & two, score=made, scale=scale), (q, k, v)
        )
        expected = value_and_gradients(lambda *x: plain(*x, allowed, added, module, scale), (q, k, v))
        assert found[0].shape == (*lead, t, d_v)
        close(found, expected)
        with torch.no_grad():
            close([sl.attention(q, k, v, one & two, score=made, scale=scale)], expected[:1])
        if parameters:
            ours = sl.attention(q, k, v, one & two, score=made, scale=scale).sum()
            truth = plain(q, k, v, allowed, added, module, scale).sum()
            close(torch.autograd.grad(ours, parameters), torch.autograd.grad(truth, parameters))


@pytest.mark.parametrize("way", [in_blocks, in_one_call])
@pytest.mark.parametrize("shape", [(5, 7), (3, 5, 7), (2, 3, 5, 7), (1, 7), (5, 1)])
@pytest.mark.parametrize("score", [None, "additive"])
def test_gradients_reach_a_bias(way, shape, score):
    score = scored(score, 3)
    module = score or None

    def ours(q, k, v, added):
        return sl.attention(q, k, v, masks.bias(added) & masks.causal() & masks.padding([4, 6]), score=score)

    def truth(q, k, v, added):
        i, j = torch.arange(5)[:, None], torch.arange(7)
        allowed = (j <= i + 2) & (j < torch.tensor([4, 6])[:, None, None, None])
        return plain(q, k, v, allowed, added, module)

    tensors = [*qkv(2, 3), randn(*shape, seed=5)]
    with way():
        close(value_and_gradients(ours, tensors), value_and_gradients(truth, tensors))


def test_tensors_are_masks_too():
    q, k, v = qkv(2, 3)
    allowed, added = randn(2, 1, 7, seed=5) > 0, randn(3, 5, 7, seed=6)
    close([sl.attention(q, k, v, allowed)], [plain(q, k, v, allowed[:, None])])
    close([sl.attention(q, k, v, added)], [plain(q, k, v, added=added)])
    close([sl.attention(q, k, v, added.float())], [plain(q, k, v, added=added.float())])


def test_a_score_of_ones_own():
    class Near(sl.scores.Score):
        def forward(self, q, k):
            return -torch.cdist(q, k)

    q, k, v = qkv(2, 3)
    near = Near()
    allowed = torch.arange(7) <= torch.arange(5)[:, None] + 2
    for way in (in_blocks, in_one_call):
        with way():
            close([sl.attention(q, k, v, masks.causal(), score=near)], [plain(q, k, v, allowed, score=near)])


# Exactness in the other dtypes

EXACT_MASKS = {
    "none": masks.Mask(),
    "causal": masks.causal(),
    "window": masks.window(17, 3),
    "padding": masks.padding([67, 29]),
    "both": masks.causal() & masks.padding([67, 29]),
    "bias": masks.bias(randn(67, 71, seed=11).float()),
}


def root_mean_square(x):
    return x.double().square().mean().sqrt().item()


@pytest.mark.parametrize("way", [lambda: in_blocks(block=16), in_one_call], ids=["blocks", "one_call"])
@pytest.mark.parametrize("name", EXACT_MASKS)
def test_float32_is_as_exact_as_torch(name, way):
    q, k, v = qkv(2, 3, t=67, s=71, d=19, d_v=19)
    mask = EXACT_MASKS[name]
    shown = mask.dense(67, 71)
    shown = shown[:, None] if shown.dim() == 3 else shown
    boolean = shown.dtype == torch.bool
    exact = value_and_gradients(
        lambda *x: plain(*x, shown if boolean else None, None if boolean else shown.double()), (q, k, v)
    )
    single = [x.float() for x in (q, k, v)]
    with way():
        ours = value_and_gradients(lambda *x: sl.attention(*x, mask), single)
    torchs = value_and_gradients(lambda *x: F.scaled_dot_product_attention(*x, shown), single)
    for truth, found, other in zip(exact, ours, torchs, strict=True):
        assert root_mean_square(found - truth) <= 1.5 * root_mean_square(other - truth)


@pytest.mark.parametrize("way", [lambda: in_blocks(block=16), in_one_call], ids=["blocks", "one_call"])
@pytest.mark.parametrize(("dtype", "atol"), [(torch.float16, 4e-3), (torch.bfloat16, 3e-2)])
@pytest.mark.parametrize("name", EXACT_MASKS)
def test_half_precision_is_sane(name, dtype, atol, way):
    rough = [x.to(dtype) for x in qkv(2, 3, t=67, s=71, d=19, d_v=13)]
    mask = EXACT_MASKS[name]
    with way():
        ours = value_and_gradients(lambda *x: sl.attention(*x, mask), rough)
        exact = value_and_gradients(lambda *x: sl.attention(*x, mask), [x.double() for x in rough])
    for found, truth in zip(ours, exact, strict=True):
        assert found.dtype == dtype
        assert root_mean_square(found - truth) <= atol * max(1, root_mean_square(truth))


# Rows with nothing to see, and nothing at all


@pytest.mark.parametrize("way", [in_blocks, in_one_call])
@pytest.mark.parametrize("score", [None, "cosine", "additive"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("mask", "t", "empty"),
    [
        (masks.padding([0, 3]), 5, [0, 1, 2, 3, 4]),
        (masks.causal(), 11, [0, 1, 2, 3]),  # the last eleven of seven positions: four stand before all keys
        (masks.window(0, 0) & masks.causal(), 11, [0, 1, 2, 3]),
        (masks.dense(torch.arange(5)[:, None] % 2 > torch.zeros(7)), 5, [0, 2, 4]),
        (masks.bias(torch.zeros(5, 7).masked_fill(torch.arange(5)[:, None] == 3, -math.inf)), 5, [3]),
        (masks.causal() & masks.padding([0, 7]), 7, [0, 1, 2, 3, 4, 5, 6]),
    ],
    ids=["padding", "causal", "window", "dense", "bias", "causal_padding"],
)
def test_a_query_with_nothing_to_see_gets_zeros_and_no_gradient(mask, t, empty, dtype, score, way):
    tensors = [x.to(dtype) for x in qkv(2, 3, t=t)]
    score = scored(score, 3)
    score = score.to(dtype) if isinstance(score, sl.scores.Score) else score
    with way():
        output, *grads = value_and_gradients(lambda *x: sl.attention(*x, mask, score=score), tensors)
    assert output.isfinite().all()
    assert all(grad.isfinite().all() for grad in grads)
    assert (output[0, :, empty] == 0).all()
    assert (grads[0][0, :, empty] == 0).all()
    rest = [i for i in range(t) if i not in empty]
    assert not rest or (output[0, :, rest] != 0).any()


@pytest.mark.parametrize("way", [in_blocks, in_one_call])
@pytest.mark.parametrize("score", [None, "additive"])
@pytest.mark.parametrize("mask", [masks.Mask(), masks.causal(), masks.window(1, 1), masks.padding([0, 0])])
@pytest.mark.parametrize(("t", "s"), [(0, 7), (5, 0), (0, 0)])
def test_no_queries_or_no_keys(t, s, mask, score, way):
    with way():
        output, *grads = value_and_gradients(
            lambda *x: sl.attention(*x, mask, score=scored(score, 3)), qkv(2, 3, t=t, s=s, d_v=2)
        )
    assert output.shape == (2, 3, t, 2)
    assert (output == 0).all()
    assert all((grad == 0).all() for grad in grads)


@pytest.mark.parametrize("mask", [None, masks.causal(), masks.window(1, 1), "boolean", "float"])
@pytest.mark.parametrize("score", [None, "dot", "cosine", "additive"])
@pytest.mark.parametrize("lead", [(), (5,), (2, 5), (2, 5, 3)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_without_keys_the_largest_queries_get_zeros_too(dtype, lead, score, mask):
    if isinstance(mask, str):
        mask = torch.zeros(7, 0, dtype=dtype if mask == "float" else torch.bool)
    score = scored(score, 11)
    score = score.to(dtype) if isinstance(score, sl.scores.Score) else score
    q = torch.full((*lead, 7, 11), torch.finfo(dtype).max, dtype=dtype)  # whose sum is infinite
    k, v = q.new_zeros(*lead, 0, 11), q.new_zeros(*lead, 0, 13)
    for tensors in ((q, k, v), [x.clone().requires_grad_() for x in (q, k, v)]):
        output = sl.attention(*tensors, mask, score=score)
        sight = sl.look(*tensors, mask, score=score)
        assert output.shape == (*lead, 7, 13)
        assert output.dtype == dtype
        assert not output.any()
        assert not sight.output.any()
        assert not sight.entropy.any()
        if tensors[0].requires_grad:
            grads = torch.autograd.grad(output, tensors, torch.full_like(output, torch.finfo(dtype).max))
            assert not any(grad.any() for grad in grads)


def test_an_empty_batch():
    q, k, v = qkv(0, 3)
    assert sl.attention(q, k, v, masks.causal()).shape == (0, 3, 5, 3)
