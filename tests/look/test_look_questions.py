"""What a sight is asked later: mass on groups of keys, columns, who gave what, distances, logits."""

from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import sightline as sl
from sightline.look import groups as groups_module
from sightline.look import measures_more as offsets_module
from sightline.look import weights as weights_module
from sightline.look.groups import read_groups
from tests.look.look_oracle import INF, MASKS, matrix, near, randn, score_of, sizes_created

LEAD, T, S, D = (2, 6), 5, 7, 3


@pytest.fixture(params=[11, 1 << 19], ids=["small tiles", "one tile"])
def _tile(request):
    with (
        mock.patch.object(weights_module, "_TILE", {"cpu": request.param, "cuda": request.param}),
        mock.patch.object(offsets_module, "_ROWS", 2 if request.param == 11 else 256),
    ):
        yield


def inputs(lead=LEAD, t=T, s=S, kv_heads=None, dtype=torch.float64):
    kv_lead = lead if kv_heads is None else (lead[0], kv_heads)
    return (
        randn(*lead, t, D, seed=1, dtype=dtype),
        randn(*kv_lead, s, D, seed=2, dtype=dtype),
        randn(*kv_lead, s, 2, seed=3, dtype=dtype),
    )


def dense_mass(weights, groups):
    return torch.stack([weights[..., keys].sum(-1) for keys in groups], -1)


def dense_offsets(weights, n, first=0):
    t, s = weights.shape[-2:]
    sums = torch.zeros(*weights.shape[:-2], n, dtype=weights.dtype)
    for i in range(t):
        for j in range(s):
            if 0 <= first + i - j < n:
                sums[..., first + i - j] += weights[..., i, j]
    return sums


def dense_logit(q, k, added):
    if q.size(-3) != k.size(-3):
        k = k.repeat_interleave(q.size(1) // k.size(1), 1)
    return (q.double() @ k.double().mT * D**-0.5 + added).amax(-1)


def all_agree(sight, weights, rtol=1e-9, atol=1e-12):
    """Every question against the matrix."""
    t, s = weights.shape[-2:]
    groups = [slice(0, s // 2), sorted({s - 1, 0}), []]
    near(sight.mass(groups), dense_mass(weights, groups), rtol, atol)
    ids = torch.arange(s) % 3 - 1
    if s > 1:
        present = [ids == g for g in range(int(ids.max()) + 1)]
        near(sight.mass(ids), dense_mass(weights, present), rtol, atol)
    near(sight.columns([s - 1, 0, -s]), weights[..., [s - 1, 0, 0]], rtol, atol)
    a, b = t // 3, max(t - 1, t // 3 + 1)
    window = weights[..., a:b, :]
    near(sight.received_from((a, b)), window.sum(-2), rtol, atol)
    near(sight.received_from((a, b), "mean"), window.mean(-2), rtol, atol)
    near(sight.received_from((a, b), "max"), window.amax(-2), rtol, atol)
    near(sight.received_from(), weights.sum(-2), rtol, atol)
    for n in (1, s // 2 + 1, s):
        near(sight.offsets(n, first=s - t), dense_offsets(weights, n, s - t), rtol, atol)


@pytest.mark.combinations
@pytest.mark.usefixtures("_tile")
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("kv_heads", [None, 2])
def test_every_question_with_every_mask(mask, kv_heads):
    q, k, v = inputs(kv_heads=kv_heads, dtype=torch.float32)
    given_mask, added = MASKS[mask](LEAD, T, S)
    sight = sl.look(q, k, v, given_mask)
    weights, _ = matrix(q, k, added.float())  # what is huge is huge in float32
    all_agree(sight, weights, rtol=1e-5, atol=2e-6)
    if mask != "bias_with_huge":
        near(sight.logit, dense_logit(q, k, added), 1e-5, 1e-5)


@pytest.mark.usefixtures("_tile")
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float16, 2e-6), (torch.bfloat16, 2e-6)]
)
def test_half_precision_rounds_the_inputs_alone(dtype, tolerance):
    q, k, v = inputs(kv_heads=3, dtype=dtype)
    sight = sl.look(q, k, v, sl.masks.causal())
    weights, _ = matrix(q.double(), k.double(), MASKS["causal"](LEAD, T, S)[1])
    all_agree(sight, weights, rtol=1e-5, atol=tolerance)
    assert sight.mass([[0]]).dtype == (torch.float64 if dtype == torch.float64 else torch.float32)


@settings(max_examples=30, deadline=None)
@given(
    lead=st.sampled_from([(), (3,), (1, 2), (2, 4), (2, 3, 2)]),
    t=st.integers(1, 11),
    s=st.integers(1, 13),
    mask=st.sampled_from(["nothing", "causal", "window", "padding", "dense_of_all", "nobody"]),
    tile=st.sampled_from([7, 64, 1 << 19]),
)
def test_any_shape(lead, t, s, mask, tile):
    if len(lead) != 2 and mask == "dense_of_all":
        mask = "nothing"
    q, k, v = inputs(lead, t, s)
    given_mask, added = MASKS[mask](lead, t, s)
    with (
        mock.patch.object(weights_module, "_TILE", {"cpu": tile, "cuda": tile}),
        mock.patch.object(offsets_module, "_ROWS", 3),
    ):
        all_agree(sl.look(q, k, v, given_mask), matrix(q, k, added)[0])


@pytest.mark.parametrize("score", ["cosine", "general", "additive"])
def test_other_scores(score):
    q, k, v = inputs()
    sight = sl.look(q, k, v, sl.masks.causal(), score=score_of(score, D, torch.float64))
    all_agree(sight, sight.map((T, S)), atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("score", ["cosine", "general", "low_rank", "additive"])
def test_other_scores_of_half_precision(score, dtype):
    q, k, v = inputs(dtype=dtype)
    sight = sl.look(q, k, v, sl.masks.causal(), score=score_of(score, D, dtype))
    weights = sight.map((T, S))
    near(weights @ v.float(), sight.output.float(), rtol=0, atol=0.03)
    all_agree(sight, weights, rtol=1e-5, atol=3e-6)


def test_groups_of_query_heads_that_share_their_keys():
    q, k, v = inputs(kv_heads=2)
    sight, (weights, _) = sl.look(q, k, v), matrix(q, k)
    each = weights[..., 1:4, :].unflatten(1, (2, 3))
    near(sight.received_from((1, 4), n_kv_heads=2), each.sum((2, 3)))
    near(sight.received_from((1, 4), "mean", n_kv_heads=2), each.mean((2, 3)))
    near(sight.received_from((1, 4), "max", n_kv_heads=2), each.amax((2, 3)))


def test_items_may_have_groups_of_their_own():
    q, k, v = inputs()
    ids = torch.tensor([[0, 0, 1, 1, -1, 1, 0], [1, 1, 1, 1, 0, -1, -1]])
    weights, _ = matrix(q, k)
    expected = torch.stack([dense_mass(weights[i], [ids[i] == 0, ids[i] == 1]) for i in range(2)])
    near(sl.look(q, k, v).mass(ids), expected)


def test_named_groups_and_what_they_say_of_themselves():
    q, k, v = inputs()
    sight, (weights, _) = sl.look(q, k, v), matrix(q, k)
    groups = {"image": slice(0, 4), "question": range(3, 6)}
    near(sight.mass(groups), dense_mass(weights, [slice(0, 4), slice(3, 6)]))
    read = read_groups(groups, S)
    assert (read.names, read.overlapping, read.left_out) == (("image", "question"), [3], [6])
    assert repr(read) == "KeyGroups: 2 groups of 7 keys; 1 in more than one, [3]; 1 in none, [6]"
    near(sight.mass(read), sight.mass(groups))


def test_ids_of_numpy():
    q, k, v = inputs()
    ids = np.arange(S) % 3
    near(sl.look(q, k, v).mass(ids), sl.look(q, k, v).mass(torch.from_numpy(ids)))


def test_equal_groups_share_a_plan_and_ids_that_change_do_not():
    ids = torch.arange(S) % 3
    read = read_groups(ids, S)
    assert read_groups(ids.clone(), S).plan(banded=True, tile=64) is read.plan(banded=True, tile=64)
    assert read_groups([slice(0, 3)], S) is read_groups([slice(0, 3)], S)
    assert read_groups({"a": slice(0, 3)}, S) is not read_groups([slice(0, 3)], S)
    keys = [1, 2]
    listed = read_groups([keys], S)
    keys[0] = 3
    assert read_groups([keys], S).members[3, 0]
    assert listed.members[1, 0]
    with pytest.raises(TypeError, match="whole numbers"):
        read_groups([[True, 2]], S)  # True == 1, and yet no position
    ids.numpy()[0] = 2  # nobody counts who writes there
    assert read.members[0].tolist() == [True, False, False]
    assert read_groups(ids, S).members[0].tolist() == [False, False, True]


def test_groups_of_many_marks_are_not_held_on_to():
    ids = torch.zeros(S, dtype=torch.long)
    with mock.patch.object(groups_module, "_LARGE", S - 1):
        assert read_groups(ids, S) is not read_groups(ids, S)


def test_a_sight_cut_averaged_and_stacked():
    q, k, v = inputs()
    sight, (weights, _) = sl.look(q, k, v), matrix(q, k)
    all_agree(sight[1, 2:4], weights[1, 2:4])
    near(sight.mean_heads().mass([[0, 1]]), weights[..., :2].sum(-1, keepdim=True).mean(1))
    near(sight.mean_heads().offsets(3, first=2), dense_offsets(weights, 3, 2).mean(1))
    near(sight.mean_heads().received_from((0, 2)), weights[..., :2, :].sum(-2).mean(1))


def test_the_steps_of_a_decoding_loop():
    model = _Decoder()
    x = randn(2, 4, 7, D, dtype=torch.float32)
    with sl.watch(model, keep=True) as seen:
        for t in range(7):
            model(x[..., t : t + 1, :], x[..., : t + 1, :])
    weights, _ = matrix(x, x, MASKS["causal"]((2, 4), 7, 7)[1])
    sight = seen.stack("")
    near(sight.mass([slice(0, 3), [6]]), dense_mass(weights, [slice(0, 3), [6]]), 1e-5, 1e-6)
    near(sight.offsets(7), dense_offsets(weights, 7), 1e-5, 1e-6)
    near(sight.received_from((2, 5), "max"), weights[..., 2:5, :].amax(-2), 1e-5, 1e-6)
    near(sight.columns([0]), weights[..., :1], 1e-5, 1e-6)


class _Decoder(torch.nn.Module):
    def forward(self, q, k):
        return torch.nn.functional.scaled_dot_product_attention(q, k, k)


QUESTIONS = {
    "mass": lambda sight: sight.mass([slice(0, 3), [1, 4]]),
    "columns": lambda sight: sight.columns([4, 0]),
    "received_from": lambda sight: sight.received_from((1, 4)),
    "max": lambda sight: sight.received_from((1, 4), "max", n_kv_heads=1),
    "offsets": lambda sight: sight.offsets(4),
    "logit": lambda sight: torch.where(sight.logit.isfinite(), sight.logit, 0.0),
}


@pytest.mark.combinations
@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("mask", ["causal", "dense", "bias_with_inf"])
def test_gradients_of_every_question(question, mask):
    lead, t = (1, 2), 5
    q, k = (randn(*x, t, 2, seed=i).requires_grad_() for i, x in enumerate([lead, (1, 1)]))
    given_mask, _ = MASKS[mask](lead, t, t)

    def asked(q, k):
        return QUESTIONS[question](sl.look(q, k, k, given_mask))

    with (
        mock.patch.object(weights_module, "_TILE", {"cpu": 7, "cuda": 7}),
        mock.patch.object(offsets_module, "_ROWS", 2),
    ):
        assert torch.autograd.gradcheck(asked, (q, k), fast_mode=True)


def test_nothing_as_large_as_the_matrix_is_made():
    t = 2048
    q = randn(1, 1, t, D, dtype=torch.float32)
    sight = sl.look(q, q, q, sl.masks.causal())
    with mock.patch.object(weights_module, "_TILE", {"cpu": 1 << 16, "cuda": 0}), sizes_created() as sizes:
        sight.mass([slice(0, 9)])
        sight.received_from((t - 8, t), "max")
        sight.offsets(64)
    assert max(sizes)[0] < t * t // 8


def test_an_empty_query_has_no_logit_and_no_mass():
    q, k, v = inputs()
    sight = sl.look(q, k, v, torch.zeros(T, S, dtype=torch.bool))
    assert (sight.logit == -INF).all()
    assert not sight.mass([slice(0, S)]).any()


# Bad input


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("groups", "kind", "message"),
    [
        ([[7]], ValueError, r"group 0 must hold keys in 0\.\.6, got 7; there are 7 keys here"),
        ({"box": [-8]}, ValueError, r"group box must hold keys in 0\.\.6, got -8"),
        ([0, 1, 2], ValueError, r"one whole number per key, S=7 of them, got 3"),
        (
            torch.zeros(3, dtype=torch.long),
            ValueError,
            r"ids must be \(S,\) or \(B, S\) with S=7, got \(3,\)",
        ),
        (torch.full((7,), -2), ValueError, r"at least 0, or -1 for no group, got -2"),
        (torch.zeros(7), TypeError, r"whole numbers, the group of each key, got torch\.float32"),
        (torch.zeros(3, 7, dtype=torch.long), ValueError, r"B=2 items of the batch, got 3"),
        ("image", TypeError, r"a list of groups.*got str"),
        ([torch.ones(7, dtype=torch.bool)], TypeError, r"group 0 .* got a tensor of torch\.bool; marks"),
        ([[0.5]], TypeError, r"whole numbers, positions of keys, got 0\.5"),
        (read_groups([[0]], 5), ValueError, r"of S=5 keys, got a sight of S=7"),
        (
            torch.tensor([0, 1, 10**12, 0, 0, 0, 0]),
            ValueError,
            r"below 65536, got 1000000000000; number them with ids\.unique",
        ),
    ],
)
def test_groups_that_are_none(groups, kind, message):
    sight = sl.look(*inputs())
    with pytest.raises(kind, match=message):
        sight.mass(groups)


@pytest.mark.bad_input
def test_questions_that_make_no_sense():
    sight = sl.look(*inputs())
    with pytest.raises(ValueError, match=r"columns must hold keys in 0\.\.6, got 9"):
        sight.columns([9])
    with pytest.raises(ValueError, match=r"queries must be a range .* within 0\.\.5, got \(3, 9\)"):
        sight.received_from((3, 9))
    with pytest.raises(ValueError, match=r"unknown reduce 'sume'.*did you mean 'sum'"):
        sight.received_from((3, 4), "sume")
    with pytest.raises(ValueError, match=r"n_kv_heads must divide .* got 4 for 6 heads"):
        sight.received_from((3, 4), n_kv_heads=4)
    with pytest.raises(ValueError, match=r"T=5 queries and S=7 keys are not the same tokens.*first="):
        sight.offsets(3)
    with pytest.raises(ValueError, match=r"at most the number of keys S=7, got 8"):
        sight.offsets(8, first=0)
    with pytest.raises(TypeError, match=r"first must be a whole number, .* got 'a'"):
        sight.offsets(3, first="a")
    with pytest.raises(ValueError, match=r"a maximum and groups of heads belong to single heads"):
        sight.mean_heads().received_from(reduce="max")
    with pytest.raises(ValueError, match=r"^mass can't be had any more.*keep=True"):
        sight.forget().mass([[0]])
    with pytest.raises(ValueError, match=r"no lse; it belongs to single heads"):
        _ = sight.mean_heads().logit
