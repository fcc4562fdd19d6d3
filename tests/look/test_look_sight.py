"""What a person does with a sight: read it, ask it later, cut it, average it, move it."""

import pytest
import torch

import sightline as sl
from tests.look.look_oracle import MASKS, agrees, matrix, near, picture, randn

LEAD, T, S = (2, 6), 5, 7


def looked(mask="all_together", kv_heads=None, lead=LEAD, **options):
    kv_lead = lead if kv_heads is None else (lead[0], kv_heads)
    q, k, v = randn(*lead, T, 3, seed=1), randn(*kv_lead, S, 3, seed=2), randn(*kv_lead, S, 11, seed=3)
    given_mask, added = MASKS[mask](lead, T, S)
    return sl.look(q, k, v, given_mask, **options), matrix(q, k, added)


# What was not measured


@pytest.mark.bad_input
@pytest.mark.parametrize("name", ["received", "entropy", "peak"])
def test_what_was_not_measured_says_how_to_ask(name):
    sight, _ = looked(measure=sl.Look(**{name: False}))
    with pytest.raises(ValueError, match=rf"no {name}; .*measure=sl\.Look\({name}=True\)"):
        getattr(sight, name)
    others = {"received", "entropy", "peak"} - {name}
    assert all(getattr(sight, other) is not None for other in others)
    if name == "peak":
        with pytest.raises(ValueError, match=r"no peak_at; .*measure=sl\.Look\(peak=True\)"):
            _ = sight.peak_at


@pytest.mark.bad_input
def test_what_was_not_kept_says_how_to_keep():
    sight = looked(keep=False)[0]
    with pytest.raises(ValueError, match=r"a map of 3 x 3 .*keep=True.*measure=sl\.Look\(map=3\)"):
        sight.map(3)
    with pytest.raises(ValueError, match=r"^rows can't .*not kept; keep them with keep=True$"):
        sight.rows([1])
    with pytest.raises(ValueError, match=r"^a map of 2 x 2 can't .*not kept; keep them with keep=True$"):
        sight.map(2, queries=(1, 5))
    with pytest.raises(ValueError, match=r"the top 2 .*keep=True.*measure=sl\.Look\(top=2\)"):
        sight.top(2)


@pytest.mark.bad_input
def test_a_watched_sight_has_no_output():
    model = torch.nn.MultiheadAttention(6, 2)
    with sl.watch(model) as seen:
        model(*[torch.randn(5, 3, 6)] * 3)
    with pytest.raises(ValueError, match=r"no output; sl\.look keeps it, sl\.watch leaves it to the model"):
        _ = seen[""].output


def test_forgetting_keeps_what_was_measured():
    sight, (weights, lse) = looked(measure=sl.Look(map=(2, 3), top=2))
    forgotten = sight.forget()
    assert sight.kept
    assert forgotten.kept == ()
    assert forgotten.kept_nbytes == 0
    assert forgotten.nbytes < sight.nbytes
    agrees(forgotten, weights, lse, rtol=1e-9, atol=1e-12)
    near(forgotten.map((2, 3)), picture(weights, 2, 3))
    near(forgotten.top(1)[0], weights.topk(1).values)
    with pytest.raises(ValueError, match="a map of 3 x 2"):
        forgotten.map((3, 2))


# Asking later


@pytest.mark.parametrize("size", [1, 5, (1, 7), (5, 1), (4, 3)])
def test_a_map_of_any_size(size):
    sight, (weights, _) = looked()
    rows, columns = (size, size) if isinstance(size, int) else size
    near(sight.map(size), picture(weights, rows, columns))


@pytest.mark.parametrize("queries", [None, (0, 1), (2, 5), (4, 5)])
@pytest.mark.parametrize("keys", [None, (0, 2), (3, 7), (6, 7)])
def test_a_map_of_a_window(queries, keys):
    sight, (weights, _) = looked()
    near(sight.map(1, queries=queries, keys=keys), picture(weights, 1, 1, queries, keys))
    rows, columns = (queries[1] - queries[0] if queries else T), (keys[1] - keys[0] if keys else S)
    whole = sight.map((rows, columns), queries=queries, keys=keys)
    near(whole, weights[..., slice(*(queries or (0, T))), slice(*(keys or (0, S)))])


@pytest.mark.parametrize("index", [[0], [4, 1, 1], [-1, -5], [], 3, torch.tensor([2, 0]), range(5)])
def test_rows_of_any_queries(index):
    sight, (weights, _) = looked()
    expected = torch.as_tensor(index if not isinstance(index, range) else list(index), dtype=torch.long)
    near(sight.rows(index), weights[..., expected.reshape(-1), :])


def test_top_is_sorted_and_runs_out_gracefully():
    sight, (weights, _) = looked("causal_from_start")
    values, places = sight.top(4)
    near(values, weights.topk(4).values)
    assert places[0, 0].tolist()[0] == [0, -1, -1, -1]  # the first query sees one key
    assert (places[0, 0, 1] >= 0).tolist() == [True, True, False, False]
    assert (values.diff(dim=-1) <= 0).all()


def test_what_was_measured_and_what_is_asked_later_agree():
    measured, _ = looked(measure=sl.Look(map=(3, 2), top=3))
    later, _ = looked()
    near(measured.forget().map((3, 2)), later.map((3, 2)))
    for a, b in zip(measured.forget().top(2), later.top(2), strict=True):
        near(a, b)


# Slices


INDICES = [
    0,
    -1,
    slice(1, 2),
    (0, 3),
    (slice(None), 4),
    (slice(None), slice(1, 5)),
    (slice(None), slice(0, 6, 2)),
    (1, slice(3, 6)),
    (1, -2),
]


@pytest.mark.combinations
@pytest.mark.parametrize("index", INDICES, ids=str)
@pytest.mark.parametrize(
    ("kv_heads", "mask"),
    [
        *((kv_heads, "all_together") for kv_heads in (None, 2, 3)),
        *((2, mask) for mask in ("nothing", "dense_of_batch", "bias_of_heads", "padding")),
    ],
)
def test_a_slice_of_the_sight_is_a_sight_of_the_slice(index, kv_heads, mask):
    sight, (weights, lse) = looked(mask, kv_heads)
    cut = sight[index]
    assert cut.lead == weights[index].shape[:-2]
    agrees(cut, weights[index], lse[index], rtol=1e-9, atol=1e-10)
    assert torch.equal(cut.output, sight.output[index])
    assert torch.equal(cut.map((2, 3)), sight.map((2, 3))[index])


def test_slices_of_slices():
    sight, (weights, lse) = looked(kv_heads=3)
    for cut, index in (
        (sight[1][2], (1, 2)),
        (sight[0][1:5][2], (0, 3)),
        (sight[:, 4][1], (1, 4)),
        (sight[1:][0][3:][-1], (1, 5)),
        (sight[:, 1:5][:, 2:3][1], (1, slice(3, 4))),
    ):
        agrees(cut, weights[index], lse[index], rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(
    "index", [0, (1, 2), (slice(None), 1, 0), (1, slice(0, 3, 2)), (0, 1, 1), (1, 2, slice(1, 2))]
)
def test_slices_of_five_dimensions(index):
    sight, (weights, lse) = looked("nothing", lead=(2, 3, 2))
    agrees(sight[index], weights[index], lse[index], rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("lead", [(), (3,)])
def test_slices_of_few_dimensions(lead):
    sight, (weights, lse) = looked("causal", lead=lead)
    agrees(sight, weights, lse, rtol=1e-9, atol=1e-10)
    if lead:
        agrees(sight[2], weights[2], lse[2], rtol=1e-9, atol=1e-10)


def test_a_slice_of_q_that_is_not_copied():
    sight, _ = looked("nothing")
    assert sight[1, 2:4].kept[0].inputs.q.untyped_storage().data_ptr() == (
        sight.kept[0].inputs.q.untyped_storage().data_ptr()
    )


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("index", "sentence"),
    [
        (2, r"index 2 is out of range .*\(2, 6\)"),
        ((0, -7), r"index -7 is out of range .*\(2, 6\)"),
        ((0, 1, 2), r"leading dimensions \(2, 6\), got 3 indices"),
        ("a", r"this sight has no a; it has .*entropy"),
        (1.5, "whole numbers and slices, got float"),
    ],
)
def test_indices_out_of_range(index, sentence):
    with pytest.raises((ValueError, TypeError), match=sentence):
        looked()[0][index]


# Averages


def test_the_mean_over_the_heads():
    sight, (weights, _) = looked(measure=sl.Look(map=(2, 3)))
    mean = sight.mean_heads()
    near(mean.received, weights.sum(-2).mean(1))
    near(mean.entropy, sight.entropy.mean(1))
    near(mean.peak, sight.peak.mean(1))
    near(mean.output, sight.output.mean(1))
    near(mean.map((2, 3)), picture(weights, 2, 3).mean(1))
    near(mean.map((4, 5)), picture(weights, 4, 5).mean(1))
    near(mean.rows([3, 0]), weights.mean(1)[:, [3, 0]])
    near(mean[1].rows([2]), weights.mean(1)[1, [2]])
    near(mean[1].map((T, S)), weights.mean(1)[1])
    assert mean.shape == (2,)
    assert mean.mean_heads() is mean
    near(sight[1].mean_heads().received, weights[1].sum(-2).mean(0))
    near(sight[:, 1:4].mean_heads().received, weights[:, 1:4].sum(-2).mean(1))
    assert "heads averaged" in repr(mean)


@pytest.mark.bad_input
def test_what_only_single_heads_have():
    mean = looked(measure=sl.Look(top=2))[0].mean_heads()
    for name in ("peak_at", "lse"):
        with pytest.raises(ValueError, match=f"no {name}; .*single heads"):
            getattr(mean, name)
    with pytest.raises(ValueError, match="belong to single heads"):
        mean.top(2)
    with pytest.raises(ValueError, match=r"no heads to average.*\(2,\)"):
        looked()[0][:, 3].mean_heads()
    with pytest.raises(ValueError, match=r"no heads to average.*\(\)"):
        looked("nothing", lead=())[0].mean_heads()


# Moving


@pytest.mark.parametrize("score", [None, "additive"])
def test_moving_takes_everything_along(score):
    lead = (2, 3)
    q, k, v = (randn(*lead, n, 3, seed=n, dtype=torch.float32) for n in (T, S, S))
    built = sl.scores.Additive(3, 3, 5) if score else None
    sight = sl.look(q, k, v, MASKS["all_together"](lead, T, S)[0], score=built)
    meta = sight.to("meta")
    pairs, lse = meta.kept[0].inputs, meta.kept[0].lse
    tensors = [*meta.statistics.values(), pairs.q, pairs.k, *pairs.mask.tensors, lse]
    tensors += list(pairs.score.parameters()) if score else []
    assert {x.device.type for x in tensors} == {"meta"}
    assert not score or built.W.device.type == "cpu"  # the caller's own stays where it is
    back = sight.cpu()
    assert torch.equal(back.map(3), sight.map(3))


# repr


@pytest.mark.parametrize(
    ("lead", "words"),
    [((), "1 item"), ((19,), "19 items"), ((1, 3), "1 item, 3 heads"), ((2, 5, 1), "10 items, 1 head")],
)
def test_repr_counts_items_and_heads(lead, words):
    q = randn(*lead, 3, 5)
    assert repr(sl.look(q, q, q)).startswith(f"Sight: {words}, T=3 queries")


def test_repr_counts_the_heads_of_an_item():
    sight = sl.look(*(randn(7, 3, 5, 11) for _ in range(3)))
    assert repr(sight[2]).startswith("Sight: 3 heads, ")
    assert repr(sight.mean_heads()).startswith("Sight: 7 items, heads averaged, ")


def test_repr_tells_a_person_the_facts():
    sight, (weights, _) = looked("nothing")
    told = repr(sight)
    assert "2 items, 6 heads, T=5 queries, S=7 keys" in told
    assert f"entropy   {sight.entropy.mean():.3f} nats on average" in told
    assert "even is 1.946" in told  # log 7
    assert f"peak      {sight.peak.mean():.3f} on average" in told
    share = weights.sum(-2).mean((0, 1)) / T
    assert f"most by key {share.argmax()}, {share.max():.1%} of all weight; even is 14.3%" in told
    assert "keeps     q and k" in told
    assert "MB" in told
    assert "keeps" not in repr(sight.forget())
    assert "also a map of 2 x 2 and the top 1" in repr(looked(measure=sl.Look(map=2, top=1))[0])
    assert "entropy" not in repr(looked(measure=sl.Look(entropy=False))[0])
    with torch.enable_grad():
        x = randn(1, 2, 3, 5).requires_grad_()
        assert "-0.000" not in repr(sl.look(x, x, x, sl.masks.causal()))


def test_what_keeping_costs():
    sight, _ = looked("nothing")
    q, k = sight.kept[0].inputs.q, sight.kept[0].inputs.k
    assert sight.kept_nbytes == q.nbytes + k.nbytes + sight.lse.nbytes
    assert sight.nbytes == sight.kept_nbytes + sum(x.nbytes for x in sight.statistics.values())


def test_asking_for_less_measures_less():
    sight, _ = looked(measure=sl.Look(received=False, entropy=False, peak=False))
    assert set(sight.statistics) == {"lse", "output"}


# Bad input


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (lambda x: x.rows([5]), r"queries in 0\.\.4, got 5; T is 5"),
        (lambda x: x.rows([0, -6]), r"0\.\.4, got -6"),
        (lambda x: x.rows([1.5]), r"whole numbers, got 1\.5"),
        (lambda x: x.rows(["a"]), r"whole numbers, got 'a'"),
        (lambda x: x.top(8), r"number of keys S=7, got 8"),
        (lambda x: x.top(0), r"at least 1 .*got 0"),
        (lambda x: x.top(1.5), r"whole number.*got 1\.5"),
        (lambda x: x.map(6), r"got 6 x 6 cells for 5 queries and 7 keys"),
        (lambda x: x.map((5, 8)), r"got 5 x 8 cells for 5 queries and 7 keys"),
        (lambda x: x.map(0), r"got 0 x 0"),
        (lambda x: x.map("big"), r"\(rows, columns\), got 'big'"),
        (lambda x: x.map((1, 2, 3)), r"\(rows, columns\), got \(1, 2, 3\)"),
        (lambda x: x.map(2.0), r"\(rows, columns\), got 2\.0"),
        (lambda x: x.map(1, queries=(0, 6)), r"queries must be a range .* 0\.\.5, got \(0, 6\)"),
        (lambda x: x.map(1, keys=(3, 3)), r"keys must be a range .* 0\.\.7, got \(3, 3\)"),
        (lambda x: x.map(1, keys=(-2, 3)), r"keys .*got \(-2, 3\)"),
        (lambda x: x.map(1, queries=3), r"queries must be a range .*got 3"),
        (lambda x: x.map(3, queries=(1, 3)), r"got 3 x 3 cells for 2 queries and 7 keys"),
    ],
)
def test_questions_that_have_no_answer(asked, sentence):
    with pytest.raises((ValueError, TypeError), match=sentence):
        asked(looked()[0])


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("wish", "sentence"),
    [
        ({"top": 0}, "top .*got 0; None keeps"),
        ({"top": -1}, "top .*got -1"),
        ({"top": 2.5}, r"top .*whole.*got 2\.5"),
        ({"map": 0}, "at least 1 x 1, got 0"),
        ({"map": (3, -1)}, r"at least 1 x 1, got \(3, -1\)"),
        ({"map": "64"}, r"\(rows, columns\), got '64'"),
        ({"map": (1, 2, 3)}, r"got \(1, 2, 3\)"),
    ],
)
def test_looks_that_can_not_be(wish, sentence):
    with pytest.raises(ValueError, match=sentence):
        sl.Look(**wish)


@pytest.mark.bad_input
def test_looks_that_do_not_fit():
    with pytest.raises(ValueError, match="S=7, got 9"):
        looked(measure=sl.Look(top=9))
    with pytest.raises(ValueError, match="64 x 64 cells for 5 queries and 7 keys"):
        looked(measure=sl.Look(map=64))
    with pytest.raises(TypeError, match=r"measure must be a sl\.Look or a list of sl\.measures, got dict"):
        looked(measure={"map": 3})
