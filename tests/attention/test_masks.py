import math
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import sightline as sl
from sightline.attention.band import Band
from sightline.attention.masks import Mask, as_mask

masks = sl.masks
SIZES = [(3, 7), (5, 5), (7, 3), (1, 7), (7, 1), (1, 1)]
REACH = [None, 0, 1, 2, 5, 100]


def by_loops(t, s, may_look):
    return torch.tensor([[may_look(i, j) for j in range(s)] for i in range(t)])


def ahead(i, j, t, s, align):
    """How far key j lies ahead of query i."""
    return j - i if align == "start" else j - (i + s - t)


# The constructors, against loops over (i, j)


@pytest.mark.parametrize("align", ["end", "start"])
@pytest.mark.parametrize(("t", "s"), SIZES)
def test_causal(t, s, align):
    expected = by_loops(t, s, lambda i, j: ahead(i, j, t, s, align) <= 0)
    assert torch.equal(masks.causal(align=align).dense(t, s), expected)


def test_causal_lines_up_at_the_end_unless_told():
    assert torch.equal(masks.causal().dense(3, 7), masks.causal(align="end").dense(3, 7))
    assert masks.causal().dense(1, 7).all()  # one new token after six in the cache sees them all
    top_left = torch.ones(3, 7, dtype=torch.bool).tril()  # torch's rule for is_causal
    assert torch.equal(masks.causal(align="start").dense(3, 7), top_left)


@pytest.mark.parametrize("align", ["end", "start"])
@pytest.mark.parametrize(("t", "s"), SIZES)
def test_window(t, s, align):
    for left in REACH:
        for right in REACH:

            def may_look(i, j, left=left, right=right):
                step = ahead(i, j, t, s, align)
                return (left is None or step >= -left) and (right is None or step <= right)

            found = masks.window(left, right, align=align).dense(t, s)
            assert torch.equal(found, by_loops(t, s, may_look)), (left, right)


@pytest.mark.parametrize(
    "lengths", [[0, 3, 9], torch.tensor([7, 1, 2]), torch.tensor([1, 2, 3]).to(torch.int32)]
)
def test_padding(lengths):
    expected = torch.stack([by_loops(5, 7, lambda _, j, n=n: j < n) for n in lengths])
    assert torch.equal(masks.padding(lengths).dense(5, 7), expected)


def test_padding_of_each_head():
    lengths = torch.tensor([[0, 3, 9], [7, 1, 2]])
    found = masks.padding(lengths).dense(5, 7)
    assert found.shape == (2, 3, 5, 7)
    for b in range(2):
        for h in range(3):
            assert torch.equal(found[b, h], by_loops(5, 7, lambda _, j, b=b, h=h: j < lengths[b, h]))


@pytest.mark.parametrize("shape", [(7,), (5, 7), (1, 7), (5, 1), (2, 1, 7), (2, 3, 5, 7)])
def test_dense_and_bias_show_the_tensor_itself(shape):
    allowed, added = torch.rand(shape) > 0.5, torch.randn(shape)
    full = (*shape[:-2], 5, 7)
    assert torch.equal(masks.dense(allowed).dense(5, 7), allowed.expand(full))
    assert torch.equal(masks.bias(added).dense(5, 7), added.expand(full))
    assert torch.equal(masks.from_ones(allowed).dense(5, 7), allowed.expand(full))


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float16, torch.float32])
def test_from_ones_takes_any_dtype(dtype):
    ones = torch.randint(0, 2, (5, 7))
    assert torch.equal(masks.from_ones(ones.to(dtype)).dense(5, 7), ones.bool())


def test_the_empty_mask_lets_all_see_all():
    assert Mask().dense(5, 7).all()
    assert Mask().dense(5, 7).shape == (5, 7)
    assert not Mask().limits
    assert masks.causal().limits
    assert masks.padding([3]).limits


def test_as_mask_reads_what_a_caller_hands_over():
    mask, allowed, added = masks.causal(), torch.rand(5, 7) > 0.5, torch.randn(5, 7)
    assert as_mask(mask) is mask
    assert not as_mask(None).limits
    assert as_mask(allowed).allowed[0] is allowed
    assert as_mask(added).added[0] is added


def test_gradients_flow_into_a_bias():
    added = torch.randn(5, 7, requires_grad=True)
    (masks.bias(added) & masks.causal()).dense(5, 7).exp().sum().backward()
    assert torch.equal(added.grad != 0, masks.causal().dense(5, 7))


# &

reach = st.sampled_from([None, 0, 1, 2, 4, 11])
align = st.sampled_from(["end", "start"])
BOOLEAN_SHAPES = [
    (7,),
    (5, 7),
    (1, 7),
    (5, 1),
    (2, 1, 7),
    (2, 5, 7),
    (2, 1, 5, 7),
    (2, 3, 5, 7),
    (1, 3, 1, 1),
]


def random_tensor(shape, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def causal(align):
    return masks.causal(align=align)


def window(left, right, align):
    return masks.window(left, right, align=align)


def padding_of_heads(rows):
    return masks.padding(torch.tensor(rows))


def dense(shape, seed):
    return masks.dense(random_tensor(shape, seed) > 0)


def bias(shape, seed):
    return masks.bias(random_tensor(shape, seed))


def later(build, *arguments):
    """A strategy for calls that the test itself makes: strategies run no code of ours."""
    return st.builds(partial, st.just(build), *arguments)


seeds = st.integers(0, 99)
boolean_masks = st.one_of(
    later(causal, align),
    later(window, reach, reach, align),
    later(masks.padding, st.lists(st.integers(0, 9), min_size=2, max_size=2)),
    later(padding_of_heads, st.lists(st.tuples(*[st.integers(0, 9)] * 3), min_size=2, max_size=2)),
    later(dense, st.sampled_from(BOOLEAN_SHAPES), seeds),
)
BIAS_SHAPES = [(7,), (5, 7), (5, 1), (3, 5, 7), (3, 1, 7), (2, 1, 5, 7), (2, 3, 5, 7)]
bias_masks = later(bias, st.sampled_from(BIAS_SHAPES), seeds)
any_mask = st.one_of(boolean_masks, bias_masks)


def on_scores(mask, lead=(2, 3), t=5, s=7):
    """What a mask says of every score, as booleans and as what is added."""
    block = mask.fitted(lead, t, s).block((0, t), (0, s), t, s).expand(*lead, t, s)
    if block.dtype == torch.bool:
        return block, torch.zeros(block.shape, dtype=torch.float64).masked_fill(~block, -math.inf)
    return block > -math.inf, block.double()


@settings(max_examples=60, derandomize=True, deadline=None)
@given(a=boolean_masks, b=boolean_masks, c=boolean_masks)
def test_and_is_the_logical_and(a, b, c):
    a, b, c = a(), b(), c()
    expected = on_scores(a)[0] & on_scores(b)[0] & on_scores(c)[0]
    for combined in (a & b & c, a & (b & c), c & b & a, b & (c & a)):
        assert torch.equal(on_scores(combined)[0], expected)


@settings(max_examples=60, derandomize=True, deadline=None)
@given(a=any_mask, b=any_mask, c=any_mask)
def test_and_adds_the_biases(a, b, c):
    a, b, c = a(), b(), c()
    expected = on_scores(a)[1] + on_scores(b)[1] + on_scores(c)[1]
    for combined in (a & b & c, a & (b & c), c & b & a):
        torch.testing.assert_close(on_scores(combined)[1], expected, rtol=0, atol=1e-12)


@settings(max_examples=60, derandomize=True, deadline=None)
@given(a=any_mask, b=any_mask)
def test_what_dense_shows_can_be_handed_back(a, b):
    a, b = a(), b()
    mask = a & b
    again = as_mask(mask.dense(5, 7))
    torch.testing.assert_close(on_scores(again)[1], on_scores(mask)[1], rtol=0, atol=0)
    q, k, v = (random_tensor((2, 3, n, 3), n) for n in (5, 7, 7))
    torch.testing.assert_close(sl.attention(q, k, v, again), sl.attention(q, k, v, mask), rtol=0, atol=1e-12)


@settings(max_examples=30, derandomize=True, deadline=None)
@given(a=boolean_masks, b=boolean_masks)
def test_and_leaves_its_parts_as_they_were(a, b):
    a, b = a(), b()
    before = on_scores(a)[0].clone(), on_scores(b)[0].clone()
    on_scores(a & b)
    assert torch.equal(on_scores(a)[0], before[0])
    assert torch.equal(on_scores(b)[0], before[1])


def test_bands_merge_so_that_causal_stays_causal():
    assert (masks.causal() & masks.causal()).bands == masks.causal().bands
    assert (masks.causal() & masks.window(3, 5)).bands == masks.window(3, 0).bands
    both = (masks.causal() & masks.causal(align="start")).bands
    assert both == (Band(None, 0, "end"), Band(None, 0, "start"))


# Which dimension is which


def test_three_dimensions_boolean_belong_to_the_batch_and_float_to_the_heads():
    allowed = torch.ones(3, 1, 7, dtype=torch.bool)
    allowed[1] = False
    of_batch, _ = on_scores(masks.dense(allowed), lead=(3, 3))
    assert not of_batch[1].any()
    assert of_batch[[0, 2]].all()
    bias = torch.zeros(3, 1, 7).masked_fill(~allowed, -5.0)
    _, added = on_scores(masks.bias(bias), lead=(2, 3))
    assert (added[:, 1] == -5).all()
    assert (added[:, [0, 2]] == 0).all()


@pytest.mark.bad_input
def test_a_float_mask_that_could_be_of_the_batch_or_of_the_heads_is_refused():
    bias = masks.bias(torch.zeros(3, 1, 7))
    with pytest.raises(ValueError, match=r"batch or the heads of scores \(3, 3, 5, 7\), got \(3, 1, 7\)"):
        bias.fitted((3, 3), 5, 7)


@pytest.mark.bad_input
def test_a_boolean_mask_that_could_be_of_the_batch_or_of_the_heads_is_refused():
    allowed = masks.dense(torch.ones(3, 5, 7, dtype=torch.bool))
    expected = (
        r"boolean mask .* batch or the heads of scores \(3, 3, 5, 7\), got \(3, 5, 7\); write mask\[:, None\]"
    )
    with pytest.raises(ValueError, match=expected):
        allowed.fitted((3, 3), 5, 7)
    assert allowed.fitted((3, 2), 5, 7).allowed[0].shape == (3, 1, 5, 7)  # it can only be the batch


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("shape", "remedy"),
    [
        ((4, 7), "a size is wrong"),
        ((5, 6), "a size is wrong"),
        ((5, 5, 7), "a size is wrong"),
        ((2, 3, 4, 7), "a size is wrong"),
        ((2, 7), "insert the missing dimensions"),
        ((3, 5, 7), "insert the missing dimensions"),
    ],
)
def test_a_mask_that_does_not_fit_is_told_a_missing_dimension_from_a_wrong_size(shape, remedy):
    with pytest.raises(ValueError, match=rf"scores .* = \(2, 3, 5, 7\), got .*; .*{remedy}"):
        masks.dense(torch.ones(shape, dtype=torch.bool)).fitted((2, 3), 5, 7)


def test_with_three_dimensions_of_scores_both_are_the_batch():
    allowed = torch.rand(2, 5, 7) > 0.5
    assert torch.equal(on_scores(masks.dense(allowed), lead=(2,))[0], allowed)
    assert torch.equal(on_scores(masks.bias(allowed.double()), lead=(2,))[1], allowed.double())


def test_dense_keeps_batch_and_heads_apart():
    batch, heads = torch.rand(2, 5, 7) > 0.3, torch.randn(3, 5, 7)
    found = (masks.dense(batch) & masks.bias(heads)).dense(5, 7)
    assert found.shape == (2, 3, 5, 7)
    assert torch.equal(found, torch.where(batch[:, None], heads[None], -math.inf))


# The parts that the fast paths ask for


@settings(max_examples=80, derandomize=True, deadline=None)
@given(
    a=any_mask,
    b=any_mask,
    rows=st.tuples(st.integers(0, 5), st.integers(0, 5)),
    columns=st.tuples(st.integers(0, 7), st.integers(0, 7)),
)
def test_a_block_is_a_cut_of_the_whole(a, b, rows, columns):
    a, b = a(), b()
    rows, columns = tuple(sorted(rows)), tuple(sorted(columns))
    mask = (a & b).fitted((2, 3), 5, 7)
    whole = mask.block((0, 5), (0, 7), 5, 7).expand(2, 3, 5, 7)
    cut = whole[..., slice(*rows), slice(*columns)]
    assert torch.equal(mask.block(rows, columns, 5, 7).expand(cut.shape), cut)


@settings(max_examples=150, derandomize=True, deadline=None)
@given(
    a=boolean_masks,
    b=boolean_masks,
    t=st.integers(1, 9),
    s=st.integers(1, 9),
    rows=st.tuples(st.integers(0, 9), st.integers(0, 9)),
)
def test_keys_leaves_out_nothing_that_may_be_seen(a, b, t, s, rows):
    a, b = a(), b()
    mask = Mask(bands=(a & b).bands)
    top, bottom = sorted(min(row, t) for row in rows)
    whole = mask.dense(t, s)
    for part in (mask, mask.fitted((), t, s)):
        first, last = part.keys((top, bottom), t, s)
        assert 0 <= first <= last or first == last
        seen = whole[top:bottom].clone()
        seen[:, first:last] = False
        assert not seen.any()


@pytest.mark.parametrize(("t", "s"), SIZES)
def test_keys_of_one_window_are_tight(t, s):
    for i in range(t):
        mask = masks.window(1, 0)
        seen = mask.dense(t, s)[i].nonzero().flatten().tolist()
        first, last = mask.keys((i, i + 1), t, s)
        assert list(range(first, min(last, s))) == seen


@pytest.mark.parametrize("align", ["end", "start"])
def test_fitting_changes_nothing_and_drops_what_does_not_limit(align):
    for t, s in SIZES:
        for left in REACH:
            for right in REACH:
                mask = masks.window(left, right, align=align)
                fitted = mask.fitted((), t, s)
                assert torch.equal(fitted.dense(t, s), mask.dense(t, s))
                assert fitted.limits or mask.dense(t, s).all()
    assert not masks.window(100, 100).fitted((), 5, 7).limits
    assert not masks.causal().fitted((), 1, 7).limits  # a single query at the end sees everything


def test_device():
    assert masks.causal().dense(5, 7, device="meta").device.type == "meta"
    assert masks.padding(torch.tensor([3], device="meta")).dense(5, 7).device.type == "meta"
