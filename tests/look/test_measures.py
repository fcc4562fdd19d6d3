"""Measures asked beforehand and afterwards, and one of a user's own, against the matrix in float64."""

import math
from unittest import mock

import pytest
import torch
from torch import nn

import sightline as sl
from sightline.look import threads, weights
from tests.oracle.check import near
from tests.oracle.dense import Dense
from tests.oracle.draw import qkv
from tests.oracle.masks import MASKS
from tests.watch.watch_oracle import Sdpa

B, H, T, S, D = 2, 3, 13, 11, 5
M = sl.measures


class Variance(sl.Measure):
    """How far around its mean key a query looks: Σ w (s - mean)²."""

    outputs, op = tuple(M.Out(name, "query") for name in ("weight", "mean", "variance")), "own"

    def of_tile(self, x):
        at = torch.arange(*x.tile.columns, device=x.w.device, dtype=x.w.dtype)
        n, mean = x.w.sum(-1), x.w @ at
        mean = mean / n.clamp(min=1e-30)
        return n, mean, ((at - mean.unsqueeze(-1)).square() * x.w).sum(-1)

    def join(self, old, new):
        (n, mean, square), (more, other, its) = old, new
        share, apart = more / (n + more).clamp(min=1e-30), other - mean
        return n + more, mean + apart * share, square + its + apart.square() * n * share

    def finish(self, *found):
        return {"variance": found[2]}


def variance(dense):
    at = torch.arange(dense.s, dtype=torch.float64)
    mean = dense.weights @ at
    return (dense.weights * (at - mean[..., None]).square()).sum(-1)


def distances(dense, first=0):
    return torch.arange(dense.t)[:, None] + first - torch.arange(dense.s)


def near_by(dense):
    return (distances(dense) <= 2) & (distances(dense) >= -1)


def coverage(dense, p):
    ordered = dense.weights.sort(-1, descending=True).values.cumsum(-1)
    enough = 1 + (ordered < p * ordered[..., -1:] * (1 - 1e-12)).sum(-1)
    return enough.masked_fill(~dense.is_looking, 0)


def segments(dense, queries, keys, reduce):
    cells = [[getattr(dense.weights[..., a:b, c:d], reduce)((-2, -1)) for c, d in keys] for a, b in queries]
    return torch.stack([torch.stack(row, -1) for row in cells], -2)


SPANS = [(0, 3), (2, 7), (12, 13)], [(1, 8), (7, 11)]  # of queries and of keys
GROUPS = {"odd": slice(1, None, 2), "few": [0, 3]}
CASES = {  # name -> the measure, its answers by name, and the same of the matrix
    "received": (M.Received(), {"received": lambda x: x.received}),
    "entropy": (M.Entropy(), {"entropy": lambda x: x.entropy}),
    "peak": (M.Peak(), {"peak": lambda x: x.peak}),
    "logit": (M.Logit(), {"logit": lambda x: x.logit}),
    "top": (M.Top(4), {"top": lambda x: x.top(4)[0]}),
    "map": (M.Map((5, 3)), {"map": lambda x: x.map((5, 3))}),
    "window": (M.Map(3, queries=(2, 9), keys=(1, 8)), {"map": lambda x: x.map(3, (2, 9), (1, 8))}),
    "rows": (M.Rows((3, -1, 4, 3)), {"rows": lambda x: x.rows([3, x.t - 1, 4, 3])}),
    "columns": (M.Columns((7, -2)), {"columns": lambda x: x.columns([7, x.s - 2])}),
    "mass": (M.Mass(GROUPS, name="parts"), {"parts": lambda x: x.mass([list(range(1, x.s, 2)), [0, 3]])}),
    "received from": (M.ReceivedFrom((4, 9)), {"received_from": lambda x: x.received_from((4, 9))}),
    "largest from": (
        M.ReceivedFrom((4, 9), "max"), {"received_from": lambda x: x.received_from((4, 9), "max")},
    ),
    "offsets": (M.Offsets(6), {"offsets": lambda x: x.offsets(6)}),
    "segments": (M.Segments(*SPANS), {"segments": lambda x: segments(x, *SPANS, "mean")}),
    "segments' sums": (M.Segments(*SPANS, "sum"), {"segments": lambda x: segments(x, *SPANS, "sum")}),
    "band": (M.Band(2, 1), {"band": lambda x: (x.weights * near_by(x)).sum(-1)}),
    "distance": (M.Distance(), {"distance": lambda x: (x.weights * distances(x).abs()).sum(-1)}),
    "coverage": (M.Coverage(0.7), {"coverage": lambda x: coverage(x, 0.7)}),
    "variance": (Variance(), {"variance": variance}),
}  # fmt: skip
WITHOUT_GRADIENTS = {"top", "map", "window", "coverage"}


def drawn(mask, dtype=torch.float64, size=(T, S), grad=False):
    q, k, v = qkv((B, H), *size, D, dtype=dtype)
    for x in (q, k):
        x.requires_grad_(grad)
    given, added = MASKS[mask]((B, H), *size)
    return (q, k, v, given), Dense.of(q.double(), k.double(), added)


@pytest.mark.parametrize("mask", ["nothing", "causal", "padding", "dense", "bias_with_inf", "bias_with_huge"])
@pytest.mark.parametrize("case", CASES)
def test_asked_beforehand_and_afterwards(case, mask):
    measure, answers = CASES[case]
    args, dense = drawn(mask)
    before, later = sl.look(*args, measure=[measure], keep=False), sl.look(*args)
    found = later.ask(measure)
    for name, truth in answers.items():
        near(before[name], truth(dense), atol=1e-9, name=name)
    if isinstance(found, torch.Tensor):
        (name,) = answers
        near(before[name], found, rtol=1e-12, atol=1e-12, name=name)


@pytest.mark.parametrize("case", CASES)
def test_in_many_tiles_that_threads_share(case):
    measure, answers = CASES[case]
    args, dense = drawn("causal", torch.float32, (521, 523))
    sight = sl.look(*args, measure=[measure])
    for name, truth in answers.items():
        near(sight[name], truth(dense), rtol=2e-5, atol=5e-6, name=name)


@pytest.mark.parametrize("case", sorted(CASES.keys() - WITHOUT_GRADIENTS))
@pytest.mark.parametrize(("tile", "mask"), [(17, "causal"), (17, "window"), (1 << 21, "causal")])
def test_gradients(case, tile, mask):
    measure, answers = CASES[case]
    args, dense = drawn(mask, grad=True)
    with (
        mock.patch.object(weights, "_TILE", {"cpu": tile, "cuda": tile}),
        mock.patch.object(threads, "_FEW", 0),
    ):
        sight = sl.look(*args, measure=[measure])
        for name, truth in answers.items():
            if not sight[name].is_floating_point():
                continue
            up = torch.linspace(-1, 1, sight[name].numel()).double().view_as(sight[name])
            finite = truth(dense).isfinite()
            ours, theirs = (
                torch.autograd.grad((x[finite] * up[finite]).sum(), args[:2], retain_graph=True)
                for x in (sight[name], truth(dense))
            )
            for a, b in zip(ours, theirs, strict=True):
                near(a, b, rtol=1e-8, atol=1e-9, name=name)


@pytest.mark.parametrize("case", CASES)
def test_watched_in_flight(case):
    measure, answers = CASES[case]
    model, (q, k, v) = Sdpa(), qkv((B, H), T, S, D, dtype=torch.float64)
    with torch.no_grad(), sl.watch(model, measure=[measure]) as seen:
        model(q, k, v)
    with torch.no_grad(), sl.watch(model, keep=True) as kept:
        model(q, k, v)
    (name,) = seen.names()
    assert not seen[name].kept
    dense = Dense(kept[name].rows(range(T)), kept[name].lse)
    for key, truth in answers.items():
        near(seen[name][key], truth(dense), atol=1e-6, name=key)


def test_steps_of_a_loop_are_stacked():
    q, k, v = qkv((B, H), T, T, D, dtype=torch.float64)
    ends, measures = (7, 8, 9, T), [Variance(), M.Mass([[0, 2]], name="first"), M.Received(), M.Coverage(0.6)]
    starts = (0, *ends[:-1])
    steps = [
        sl.look(q[:, :, a:b], k[:, :, :b], v[:, :, :b], sl.masks.causal(), measure=measures)
        for a, b in zip(starts, ends, strict=True)
    ]
    whole, stacked = sl.look(q, k, v, sl.masks.causal(), measure=measures), stack(steps)
    for name in ("variance", "first", "received", "coverage"):
        near(stacked[name], whole[name], atol=1e-9, name=name)
    near(stacked.ask(Variance()), whole["variance"], atol=1e-9)


def stack(steps):
    from sightline.look.steps import stack

    return stack(steps)


def test_queries_that_are_padding_are_left_out():
    model, x = nn.TransformerEncoderLayer(8, 2, batch_first=True).double(), torch.randn(2, 7, 8).double()
    padding = torch.arange(7) >= torch.tensor([[4], [7]])
    spans = [(2, 7), (5, 7)], [(0, 2), (1, 4)]
    measures = [
        Variance(),
        M.Rows([-1, 0]),
        M.ReceivedFrom((2, 7), "mean"),
        M.Coverage(0.5),
        M.Segments(*spans),
    ]
    with sl.watch(model, measure=measures, keep=True) as seen:
        model(x, src_key_padding_mask=padding)
    (sight,) = (seen[name] for name in seen)
    assert torch.equal(sight["variance"].isnan(), padding[:, None].expand(2, 2, 7))
    assert torch.equal(sight["rows"].isnan().all(-1), padding[:, [-1, 0]][:, None].expand(2, 2, 2))
    near(sight["received_from"][0], sight.rows([2, 3])[0].mean(-2), atol=1e-9)
    near(sight["received_from"], sight.received_from((2, 7), "mean"), atol=1e-12)
    cell = sight.rows([2, 3])[0, ..., 1:4]
    near(sight["segments"][0, :, 0, 1], cell.mean((-2, -1)), atol=1e-9)
    near(sight.ask(M.Segments(*spans, "sum"))[0, :, 0, 1], cell.sum((-2, -1)), atol=1e-9)
    assert not sight["segments"][0, :, 1].any()


def test_products_with_the_weights():
    args, dense = drawn("causal")
    sight, x, y = sl.look(*args), torch.randn(S, 3).double(), torch.randn(B, H, T, 2).double()
    near(sight @ x, dense.weights @ x, atol=1e-12)
    near(sight.T @ y, dense.weights.mT @ y, atol=1e-12)
    near(sight[1] @ x, dense.weights[1] @ x, atol=1e-12)
    near(sight.mean_heads() @ x, dense.weights.mean(1) @ x, atol=1e-12)


def test_all_rows_are_one_pass():
    args, dense = drawn("nothing")
    sight = sl.look(*args)
    with mock.patch.object(
        weights.WeightMaker, "in_place", autospec=True, side_effect=weights.WeightMaker.in_place
    ) as made:
        near(sight.rows(range(T)), dense.weights, atol=1e-12)
    assert made.call_count == 1


@pytest.mark.bad_input
@pytest.mark.parametrize("p", [0.0, 1.5, math.nan])
def test_a_share_that_can_not_be(p):
    with pytest.raises(ValueError, match="above 0 and at most 1, got"):
        M.Coverage(p)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("measure", "sentence"),
    [
        (M.Rows([T]), r"rows must hold queries in 0\.\.12, got 13"),
        (M.Columns([0, -S - 1]), r"columns must hold keys in 0\.\.10, got -12"),
        (M.Top(S + 1), "number of keys S=11, got 12"),
    ],
)
def test_places_that_there_are_not(measure, sentence):
    args, _ = drawn("nothing")
    with pytest.raises(ValueError, match=sentence):
        sl.look(*args, measure=[measure])
    with pytest.raises(ValueError, match=sentence):
        sl.look(*args).ask(measure)


def test_in_a_table_and_in_words():
    pytest.importorskip("pandas")
    args, _ = drawn("nothing")
    sight = sl.look(*args, measure=[M.Mass(GROUPS, name="parts"), M.Coverage(0.5), M.Received()])
    table = sight.to_pandas()
    assert [*table.columns[-4:]] == ["lse", "parts[0]", "parts[1]", "coverage"]
    near(torch.tensor(table["parts[1]"].to_numpy()), sight["parts"][..., 1].flatten(), atol=1e-12)
    assert table["coverage"].tolist() == sight["coverage"].flatten().tolist()
    assert "measured  also parts and coverage" in repr(sight)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("queries", "sentence"),
    [
        ([(0, 3), (3, 14)], r"queries\[1\] must be .* within 0..13, got \(3, 14\)"),
        ([(2, 2)], r"queries\[0\] must be .* within 0..13, got \(2, 2\)"),
        ((0, 3), r"queries\[0\] must be .* within 0..13, got 0"),
        ([(0, 3), None], "queries must be a list of .* got a list of NoneType and tuple"),
        (5, "queries must be a list of .* got 5"),
    ],
)
def test_spans_that_can_not_be(queries, sentence):
    with pytest.raises((TypeError, ValueError), match=sentence):
        sl.look(*drawn("nothing")[0], measure=[M.Segments(queries, [(0, 2)])])


def test_lists_without_spans():
    sight = sl.look(*drawn("nothing")[0])
    for n, m in ((0, 2), (2, 0), (0, 0)):
        assert sight.ask(M.Segments([(0, 3)] * n, [(1, 2)] * m)).shape == (B, H, n, m)


class Place(sl.Measure):
    """The mean key and its spread: answers under other names than the outputs."""

    outputs = (M.Out("first", "query"), M.Out("second", "query"))

    def of_tile(self, x):
        at = torch.arange(*x.tile.columns, device=x.w.device, dtype=x.w.dtype)
        return x.w @ at, x.w @ at.square()

    def finish(self, first, second):
        return {"mean": first, "spread": (second - first.square()).clamp(min=0).sqrt()}


def test_answers_under_names_of_their_own():
    model, x = nn.TransformerEncoderLayer(8, 2, batch_first=True).double(), torch.randn(2, 7, 8).double()
    padding = torch.arange(7) >= torch.tensor([[4], [7]])
    with sl.watch(model, measure=[Place()]) as seen:
        model(x, src_key_padding_mask=padding)
    (sight,) = (seen[name] for name in seen)
    assert torch.equal(sight["spread"].isnan(), padding[:, None].expand(2, 2, 7))
    args, _ = drawn("nothing")
    whole, step = sl.look(*args, measure=[Place()]), sl.look(*args[:3], measure=[Place()])
    assert stack([whole, step])["spread"].shape == (B, H, 2 * T)


@pytest.mark.parametrize("tile", [17, 1 << 21])
def test_gradients_of_factors_alone(tile):
    args, dense = drawn("causal")
    x, y = torch.randn(S, 3).double().requires_grad_(), torch.randn(B, H, T, 2).double().requires_grad_()
    with (
        mock.patch.object(weights, "_TILE", {"cpu": tile, "cuda": tile}),
        mock.patch.object(threads, "_FEW", 0),
    ):
        sight = sl.look(*args)
        for product, of, truth in ((sight @ x, x, dense.weights @ x), (sight.T @ y, y, dense.weights.mT @ y)):
            up = torch.linspace(-1, 1, truth.numel()).double().view_as(truth)
            ours, theirs = (torch.autograd.grad((z * up).sum(), of)[0] for z in (product, truth))
            near(ours, theirs, atol=1e-12)
