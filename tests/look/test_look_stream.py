"""The second pass against the whole matrix in float64: every statistic, mask, score, dtype and tile."""

import math
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import sightline as sl
from sightline.attention import attend
from sightline.attention.masks import as_mask
from sightline.look.cells import Cells
from sightline.look.score_inputs import make_score_inputs
from tests.look.look_oracle import (
    INF,
    MASKS,
    SCORES,
    agrees,
    entropy,
    matrix,
    near,
    picture,
    plain_scores,
    randn,
    score_of,
    sizes_created,
    statistics_of,
    tile_of,
)
from tests.look.stream_oracle import inputs, truth

LEADS = [(), (3,), (2, 3), (2, 3, 2)]


# Exactness


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    lead=st.sampled_from([*LEADS, "grouped"]),
    t=st.sampled_from([1, 2, 5, 13, 29]),
    s=st.sampled_from([1, 3, 7, 11, 31]),
    d=st.sampled_from([1, 3, 7]),
    mask=st.sampled_from(sorted(MASKS)),
    score=st.sampled_from(SCORES),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    tile=st.sampled_from([1, 17, 83, 1 << 19]),
)
def test_every_statistic_is_that_of_the_matrix(lead, t, s, d, mask, score, dtype, tile):
    kv_heads = 2 if lead == "grouped" else None
    lead = (3, 6) if lead == "grouped" else lead
    q, k, v = inputs(lead, t, s, d, kv_heads=kv_heads, dtype=dtype)
    given_mask, added = MASKS[mask](lead, t, s)
    built = score_of(score, d, dtype)
    with tile_of(tile), torch.no_grad():
        sight = sl.look(q, k, v, given_mask, score=built)
        tight = {"rtol": 1e-9, "atol": 1e-9} if dtype == torch.float64 else {}
        agrees(sight, *truth(q, k, added, score, built), **tight)
        assert torch.equal(sight.output, sl.attention(q, k, v, given_mask, score=built))


@pytest.mark.combinations
@pytest.mark.parametrize("mask", sorted(MASKS))
@pytest.mark.parametrize("lead", [(), (2, 3), "grouped"], ids=str)
def test_every_mask_in_many_tiles(mask, lead):
    kv_heads = 2 if lead == "grouped" else None
    lead = (3, 4) if lead == "grouped" else lead
    q, k, v = inputs(lead, 13, 11, 5, kv_heads=kv_heads)
    given_mask, added = MASKS[mask](lead, 13, 11)
    weights, lse = truth(q, k, added)
    with tile_of(83):  # of the 143 pairs of a head
        sight = sl.look(q, k, v, given_mask, measure=sl.Look(map=(3, 7), top=4))
        agrees(sight, weights, lse)
        measured = sight.forget()
    near(measured.map((3, 7)), picture(weights, 3, 7), atol=2e-6)
    near(measured.top(4)[0], weights.topk(4).values, atol=2e-6)
    assert torch.equal(sight.output, sl.attention(q, k, v, given_mask))


@pytest.mark.combinations
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("kv_heads", [None, 2])
def test_every_score(score, kv_heads):
    q, k, v = inputs((3, 4), 13, 7, 5, kv_heads=kv_heads)
    mask, added = MASKS["causal"]((3, 4), 13, 7)
    built = score_of(score, 5)
    with tile_of(50), torch.no_grad():
        sight = sl.look(q, k, v, mask, score=built)
        agrees(sight, *truth(q, k, added, score, built))
        assert torch.equal(sight.output, sl.attention(q, k, v, mask, score=built))


@pytest.mark.parametrize("scale", [0.37, -1.3, 0.0])
@pytest.mark.parametrize("score", ["scaled_dot", "additive"])
def test_a_scale_of_ones_own(scale, score):
    q, k, v = inputs((2, 3), 5, 7, 11)
    built = score_of(score, 11)
    own = 1.0
    scores = plain_scores(score, built, q.double(), k.double()) / own * scale
    with torch.no_grad():
        sight = sl.look(q, k, v, score=built, scale=scale)
        agrees(sight, *matrix(q, k, scores=scores))
        assert torch.equal(sight.output, sl.attention(q, k, v, score=built, scale=scale))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("mask", ["nothing", "causal", "padding", "dense", "bias_with_inf"])
@pytest.mark.parametrize("lead", [(2, 3), "grouped", (5,)], ids=str)
def test_half_precision_only_rounds_the_inputs(dtype, mask, lead):
    kv_heads = 2 if lead == "grouped" else None
    lead = (3, 4) if lead == "grouped" else lead
    q, k, v = inputs(lead, 13, 11, 7, d_v=7, kv_heads=kv_heads, dtype=dtype)
    given_mask, added = MASKS[mask](lead, 13, 11)
    if mask == "bias_with_inf":  # the kernel takes a bias in the dtype of q
        added = added.to(dtype).double()
    sight = sl.look(q, k, v, given_mask)
    agrees(sight, *truth(q, k, added))
    assert sight.entropy.dtype == torch.float32
    assert sight.output.dtype == dtype
    assert torch.equal(sight.output, sl.attention(q, k, v, given_mask))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("score", ["cosine", "general", "additive"])
def test_half_precision_with_a_score(dtype, score):
    """Scores are mapped in half precision, as the attention itself maps them."""
    q, k, v = inputs((2, 3), 13, 11, 7, dtype=dtype)
    built = score_of(score, 7, dtype)
    with torch.no_grad():
        sight = sl.look(q, k, v, score=built)
        atol = 8 * torch.finfo(dtype).eps
        agrees(sight, *truth(q, k, None, score, built), rtol=atol, atol=atol)


@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_long_rows_with_the_kernels_own_lse(dtype, d):
    """S past several chunks of the argmax and blocks of the kernel, with a peak in the last few keys."""
    q, k, v = inputs((1, 2), 307, 523, d, d_v=d, dtype=dtype)
    k[0, 0, 521] += 2 * q[0, 0, 11]
    sight = sl.look(q, k, v, sl.masks.causal())
    weights, lse = truth(q, k, MASKS["causal"]((1, 2), 307, 523)[1])
    near(sight.lse, lse, atol=2e-6)
    near(sight.entropy, entropy(weights), atol=5e-6)
    near(sight.received, weights.sum(-2), atol=5e-6)
    near(sight.peak, weights.amax(-1), atol=2e-6)
    near(weights.take_along_dim(sight.peak_at[..., None], -1)[..., 0], weights.amax(-1), atol=2e-6)
    near(sight.map((31, 43)), picture(weights, 31, 43), atol=2e-7)


@pytest.mark.parametrize("s", [63, 64, 65, 127, 128, 129, 191, 192, 193, 257])
def test_the_place_of_the_peak_at_every_chunk_border(s):
    k = torch.zeros(s, 1)
    for at in {0, 1, 63, 64, 127, 128, s - 2, s - 1} & set(range(s)):
        k.zero_()[at] = 1.0
        sight = sl.look(torch.ones(1, 1), k, torch.zeros(s, 1))
        assert sight.peak_at.tolist() == [at]


@pytest.mark.parametrize(("t", "s"), [(0, 5), (5, 0), (0, 0)])
def test_no_queries_or_no_keys(t, s):
    q, k, v = inputs((2, 3), t, s, 5)
    sight = sl.look(q, k, v)
    assert sight.received.shape == (2, 3, s)
    assert not sight.received.any()
    assert sight.entropy.shape == sight.peak.shape == (2, 3, t)
    assert (sight.peak_at == -1).all()
    assert (sight.lse == -INF).all()
    assert torch.equal(sight.output, sl.attention(q, k, v))
    assert "T=" in repr(sight)


def test_no_items_in_the_batch():
    q, k, v = inputs((0, 3), 5, 7, 2)
    assert sl.look(q, k, v).received.shape == (0, 3, 7)


# Empty rows


@pytest.mark.parametrize("mask", ["boolean", "float"])
@pytest.mark.parametrize("tile", [1, 1 << 19])
def test_a_query_with_nothing_to_look_at(mask, tile):
    allowed = torch.ones(5, 7, dtype=torch.bool)
    allowed[[1, 4]] = False
    given_mask = allowed if mask == "boolean" else torch.zeros(5, 7).masked_fill(~allowed, -INF)
    q, k, v = inputs((2, 3), 5, 7, 11)
    with tile_of(tile):
        sight = sl.look(q, k, v, given_mask, measure=sl.Look(top=2, map=5))
        rows, later_map, (values, places) = sight.rows([1, 4]), sight.map((5, 7)), sight.top(3)
    for x in (sight.entropy[..., [1, 4]], sight.peak[..., [1, 4]], rows, later_map[..., [1, 4], :]):
        assert torch.equal(x, torch.zeros_like(x))
        assert not x.signbit().any()  # nor minus nothing
    assert (sight.peak_at[..., [1, 4]] == -1).all()
    assert (sight.lse[..., [1, 4]] == -INF).all()
    assert (places[..., [1, 4], :] == -1).all()
    assert not values[..., [1, 4], :].any()
    others = sl.look(q[..., [0, 2, 3], :], k, v)
    near(sight.received, others.received)
    near(sight.received.sum(-1), torch.full((2, 3), 3.0))


def test_entropy_is_never_minus_zero():
    q, k, v = inputs((2, 3), 5, 5, 7)
    sight = sl.look(q, k, v, sl.masks.causal())
    assert not sight.entropy.signbit().any()  # the first query sees one key alone


@pytest.mark.parametrize("huge", [torch.finfo(torch.float32).min, -1e30, -1e9, -1e5])
@pytest.mark.parametrize("t", [5, 13])
def test_a_row_of_huge_negatives_looks_at_all_alike(huge, t):
    """As torch does with finite masks; its lse is too coarse to tell the weights, so rows are read anew."""
    added = torch.zeros(t, 7)
    added[2] = huge
    added[3, 4:] = huge
    q, k, v = torch.zeros(2, 3, t, 5), *inputs((2, 3), t, 7, 5)[1:]
    sight = sl.look(q, k, v, added)
    even = torch.full((2, 3, 7), 1 / 7)
    near(sight.rows([2])[..., 0, :], even, atol=1e-6)
    near(sight.map((t, 7))[..., 2, :], even, atol=1e-6)
    near(sight.map((1, 3), queries=(2, 3), keys=(4, 7))[..., 0, :], even[..., 4:], atol=1e-6)
    near(sight.entropy[..., 2], torch.full((2, 3), math.log(7)))
    near(sight.entropy[..., 3], torch.full((2, 3), math.log(4)))
    near(sight.received.sum(-1), torch.full((2, 3), float(t)))
    near(sight.top(7)[0][..., 2, :], even, atol=1e-6)
    near(sight.output[..., 2, :], v.mean(-2), atol=1e-6)


# The kernel's lse is checked, not believed


def captured_lse(q, k, v, mask, lse):
    pairs, _ = make_score_inputs(q, k, v, as_mask(mask))
    return statistics_of(pairs, lse)


@pytest.mark.parametrize("wrong", [0.01, -0.5, 3.0, math.nan, INF, -INF])
@pytest.mark.parametrize("mask", [None, "dense"])
def test_a_wrong_lse_is_found_out(wrong, mask):
    q, k, v = inputs((2, 3), 5, 7, 11)
    given_mask, added = MASKS[mask or "nothing"]((2, 3), 5, 7)
    weights, lse = truth(q, k, added)
    offered = lse.float() + wrong * (torch.arange(5) == 3)
    found = captured_lse(q, k, v, given_mask, offered)
    near(found.lse, lse, atol=1e-6)
    near(found.received, weights.sum(-2), atol=1e-6)
    near(found.entropy, entropy(weights), atol=1e-6)


def test_a_right_lse_saves_a_maximum():
    q, k, v = inputs((2, 3), 5, 7, 11)
    lse = truth(q, k, None)[1].float()
    with sizes_created() as known:
        found = captured_lse(q, k, v, None, lse)
    with sizes_created() as unknown:
        captured_lse(q, k, v, None, None)
    assert torch.equal(found.lse.float(), lse)
    known, unknown = (sum("amax" in op for _, op in created) for created in (known, unknown))
    assert known < unknown


def test_a_map_alone_is_all_that_is_told():
    q, k, v = inputs((2, 3), 5, 7, 11)
    sight = sl.look(q, k, v, measure=sl.Look(received=False, entropy=False, peak=False, map=3))
    assert set(sight.statistics) == {"lse", "map", "output"}


def test_a_mask_of_the_batch_with_a_scale():
    q, k, v = inputs((2, 3), 5, 7, 11)
    allowed = torch.rand(2, 1, 7, generator=torch.Generator().manual_seed(1)) < 0.6
    allowed[..., 0] = True
    added = torch.zeros(2, 1, 1, 7).masked_fill(~allowed[:, None], -INF)
    sight = sl.look(q, k, v, allowed, scale=0.3)
    near(sight.received, matrix(q.double(), k.double(), added, scale=0.3)[0].sum(-2), atol=1e-6)


def test_a_slightly_wrong_lse_costs_less_than_the_tolerance():
    """What passes the check may be off by no more than what is promised of every statistic."""
    q, k, v = inputs((2, 3), 5, 7, 11)
    weights, lse = truth(q, k, None)
    for off in (1e-5, 3e-5, 1e-4, 3e-4, 9e-4):
        found = captured_lse(q, k, v, None, lse.float() + off)
        near(found.received, weights.sum(-2), rtol=1.2e-5)


# Output: looking changes nothing


@pytest.mark.combinations
@pytest.mark.parametrize("mask", sorted(MASKS))
@pytest.mark.parametrize("pairs", [16, 1 << 22])
@pytest.mark.parametrize("grad", [False, True])
def test_output_is_bit_equal_on_every_path(mask, pairs, grad):
    q, k, v = (x.requires_grad_(grad) for x in inputs((2, 3), 13, 11, 7))
    given_mask, _ = MASKS[mask]((2, 3), 13, 11)
    with (
        mock.patch.object(attend, "_PAIRS", {"cpu": pairs, "cuda": pairs}),
        mock.patch.object(attend, "_BLOCK", {"cpu": 3, "cuda": 3}),
    ):
        blind = sl.attention(q, k, v, given_mask)
        sight = sl.look(q, k, v, given_mask)
        assert torch.equal(sight.output, blind)
        if grad:
            upstream = randn(*blind.shape, seed=5, dtype=torch.float32)
            expected, found = (torch.autograd.grad(x, (q, k, v), upstream) for x in (blind, sight.output))
            assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))


@pytest.mark.parametrize("mask", ["window", "causal_and_padding", "causal"])
def test_blocks_of_queries_are_overheard_one_after_the_other(mask):
    q, k, v = inputs((2, 3), 13, 17, 7, d_v=7)
    given_mask, added = MASKS[mask]((2, 3), 13, 17)
    with (
        mock.patch.object(attend, "_PAIRS", {"cpu": 16, "cuda": 16}),
        mock.patch.object(attend, "_BLOCK", {"cpu": 5, "cuda": 5}),
    ):
        agrees(sl.look(q, k, v, given_mask), *truth(q, k, added))


# The cells of a map


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.integers(1, 97), st.integers(1, 97), st.integers(0, 13))
def test_cells_are_even_and_in_order(length, n, first):
    n = min(n, length)
    positions = torch.arange(first, first + length)
    cells = Cells(1, n, (0, 1), (first, first + length)).column_of(positions)
    begins = [first + length * i // n for i in range(n)]
    assert cells.tolist() == [max(i for i in range(n) if begins[i] <= p) for p in positions.tolist()]
    counts = cells.bincount(minlength=n)
    assert counts.max() - counts.min() <= 1
