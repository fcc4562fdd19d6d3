"""One tile of weights and what becomes of it: from a coarse log-sum-exp, in a window, in cells."""

import itertools
from unittest import mock

import pytest
import torch

import sightline as sl
from sightline.attention.masks import Mask, as_mask
from sightline.look import stream, threads, tile_pass, uniform
from sightline.look.inputs import PrecomputedWeights, Tile
from sightline.look.measure import measure
from sightline.look.stream import (
    Cells,
    StatsRequest,
    pool,
    sum_columns,
    sum_rows,
    tile_weights,
)
from sightline.look.tile_pass import needs_grad, over_tiles
from sightline.look.uniform import even_attention
from sightline.watch.attention_call import kernel_call
from tests.look.look_oracle import INF, MASKS, entropy, matrix, near, picture, randn

B, H, T, S, D = 2, 3, 7, 11, 5
WINDOW = Tile(slice(1, 2), slice(1, 3), (2, 6), (5, 8))


def inputs_of(mask="nothing", far=0.0, **more):
    """What weights are made of, the weights, and the log-sum-exp; ``far`` is added to all scores."""
    q, k = randn(B, H, T, D), randn(B, H, S, D, seed=1)
    given, added = MASKS[mask]((B, H), T, S)
    fitted = Mask() if given is None else as_mask(given)
    if far:
        q, k = (torch.cat([x, torch.full_like(x[..., :1], n)], -1) for x, n in ((q, far), (k, 1.0)))
    inputs = kernel_call(q, k, fitted, 1.0, None, **more).inputs
    return inputs, *matrix(q, k, added, scale=1.0)


# A log-sum-exp that is far from zero tells too little in float32: the row is looked at again


@pytest.mark.parametrize("mask", ["nothing", "causal", "window", "window_from_start", "padding", "nobody"])
@pytest.mark.parametrize("far", [0.0, 500.0, -500.0])
def test_the_weights_of_a_window_from_a_log_sum_exp(mask, far):
    inputs, weights, lse = inputs_of(mask, far)
    for tile in (WINDOW, WINDOW._replace(rows=(0, 7), columns=(0, 11)), WINDOW._replace(columns=(7, 11))):
        low, high = inputs.mask.keys(tile.rows, T, S)
        tile = tile._replace(columns=(max(tile.columns[0], low), min(tile.columns[1], high)))  # noqa: PLW2901
        expected = weights[tile.row_index][..., slice(*tile.columns)]
        near(tile_weights(inputs, tile, lse[tile.row_index]), expected)
        near(tile_pass._differentiable_weights(inputs, tile, lse[tile.row_index]), expected)


@pytest.mark.parametrize("way", [tile_weights, tile_pass._differentiable_weights])
def test_a_row_is_looked_at_again_only_if_its_log_sum_exp_is_coarse(way):
    inputs, _, lse = inputs_of("causal")
    columns = []
    with mock.patch.object(type(inputs), "scores", autospec=True, side_effect=type(inputs).scores) as scores:
        for value in (0.0, 100.0, -100.0, 101.0, -101.0, -INF):
            lse.fill_(0.0)[1, 2, 3] = value  # of one query alone
            way(inputs, WINDOW, lse[WINDOW.row_index])
            columns.append(scores.call_args.args[1].columns)
    assert columns == [(5, 8)] * 3 + [(0, 10)] * 2 + [(5, 8)]


@pytest.mark.parametrize("far", [0.0, 500.0])
def test_a_sink_takes_its_share_of_a_window(far):
    sink = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64) + far
    inputs, weights, lse = inputs_of("window", far, sink=sink)
    beside = torch.logaddexp(lse, sink[:, None])
    expected = (weights * (lse - beside).exp().unsqueeze(-1))[WINDOW.row_index][..., 5:8]
    near(tile_weights(inputs, WINDOW, beside[WINDOW.row_index]), expected)
    near(tile_pass._differentiable_weights(inputs, WINDOW, beside[WINDOW.row_index]), expected)


def test_gradients_of_a_window_are_those_of_the_matrix():
    for far, mask in itertools.product((0.0, 500.0), ("nothing", "window", "nobody")):
        inputs, _, _ = inputs_of(mask, far)
        q = inputs.q.requires_grad_()
        added = MASKS[mask]((B, H), T, S)[1]
        weights, lse = matrix(q, inputs.k, added, scale=1.0)
        expected = torch.autograd.grad(
            weights[WINDOW.row_index][..., 5:8].square().sum(), q, retain_graph=True
        )
        found = tile_pass._differentiable_weights(inputs, WINDOW, lse[WINDOW.row_index])
        near(torch.autograd.grad(found.square().sum(), q)[0], expected[0])


# A pass over tiles


@pytest.mark.parametrize(
    "mask", ["nothing", "causal", "window", "window_from_start", "all_together", "nobody"]
)
def test_a_question_is_asked_of_every_weight_once(mask, monkeypatch):
    inputs, weights, lse = inputs_of(mask)
    for size, window in itertools.product((1, 60, 1 << 19), (None, ((1, 6), (2, 9)))):
        monkeypatch.setattr(tile_pass, "_TILE", {"cpu": size, "cuda": 1})
        found = torch.zeros_like(weights)
        queries, keys = window or (None, None)
        for tile, part in over_tiles(inputs, lse, lambda weights, _: weights, queries=queries, keys=keys):
            assert tile.columns[0] < tile.columns[1]
            found[tile.row_index][..., slice(*tile.columns)] += part
        inside = torch.zeros(T, S, dtype=torch.float64)
        inside[slice(*queries) if queries else slice(None), slice(*keys) if keys else slice(None)] = 1
        near(found, weights * inside)


def test_whether_an_answer_carries_gradients():
    inputs, _, lse = inputs_of()
    assert needs_grad(inputs, lse) is False
    assert needs_grad(inputs, lse.requires_grad_()) is True
    with torch.no_grad():
        assert needs_grad(inputs, lse) is False
    inputs.q.requires_grad_()
    assert needs_grad(inputs, lse.detach()) is True


@pytest.mark.combinations
@pytest.mark.parametrize("mask", ["nothing", "causal", "window", "padding", "bias_with_inf", "nobody"])
@pytest.mark.parametrize("request_", [
    StatsRequest(received=True), StatsRequest(entropy=True), StatsRequest(peak=True), StatsRequest(top=3),
    StatsRequest(cells=Cells(3, 5, (0, T), (0, S))),
    StatsRequest(True, True, True, Cells(2, 4, (0, T), (0, S)), 13 - 2),
    ], ids=str)  # fmt: skip
def test_what_is_asked_for_is_found_and_nothing_else(mask, request_):
    inputs, weights, lse = inputs_of(mask)
    ways = [
        (1, None, False),
        (31, None, True),
        (31, lse, False),
        (1 << 20, lse, True),
        (1 << 20, None, False),
    ]
    for size, known, grad in ways:
        inputs.q.requires_grad_(grad)
        with (
            mock.patch.object(stream, "_TILE", {"cpu": size, "cuda": size}),
            mock.patch.object(threads, "_FEW", 0),
        ):
            stats = stream.measure(inputs, request_, known)
        assert stats.lse.requires_grad is grad
        near(stats.lse, lse)
        wanted = {"received": request_.received, "entropy": request_.entropy, "peak": request_.peak}
        wanted |= {
            "peak_at": request_.peak,
            "cells": request_.cells,
            "top": request_.top,
            "top_at": request_.top,
        }
        assert [x for x in wanted if getattr(stats, x) is not None] == [x for x in wanted if wanted[x]]
        if request_.received:
            near(stats.received, weights.sum(-2))
        if request_.entropy:
            near(stats.entropy, entropy(weights))
        if request_.peak:
            near(stats.peak, weights.amax(-1))
            places = weights.argmax(-1).masked_fill(weights.sum(-1) == 0, -1)
            assert torch.equal(stats.peak_at, places)
        if request_.cells:
            near(stats.cells, picture(weights, request_.cells.rows, request_.cells.columns))
        if request_.top:
            near(stats.top, weights.topk(request_.top).values)
            assert bool(((stats.top_at == -1) == (stats.top == 0)).all())
            near(weights.take_along_dim(stats.top_at.clamp(min=0), -1) * (stats.top_at >= 0), stats.top)


def test_a_log_sum_exp_that_is_off_is_not_believed():
    inputs, weights, lse = inputs_of("causal")
    for wrong in (lse + 1e-3, lse - 1e-3, lse + torch.eye(T)[3] * 1e-4, lse * float("nan")):
        stats = stream.measure(inputs, StatsRequest(peak=True), wrong)
        near(stats.lse, lse)
        near(stats.peak, weights.amax(-1))
    near(stream.measure(inputs, StatsRequest(peak=True), lse + 1e-7).lse, lse + 1e-7, rtol=1e-12)
    sink = kernel_call(inputs.q, inputs.k, inputs.mask, 1.0, None, sink=torch.zeros(H)).inputs
    stats = stream.measure(sink, StatsRequest(), lse)  # a kernel's own may hold the sink, or not
    near(stats.lse, torch.logaddexp(lse, torch.zeros_like(lse)))


def test_the_kernels_own_log_sum_exp_is_enough_where_nothing_else_is_asked():
    inputs, weights, lse = inputs_of()
    nothing = StatsRequest()
    assert measure(inputs, nothing, lse).lse is lse
    assert measure(inputs, nothing, lse)[1:] == (None,) * 7
    assert measure(inputs, StatsRequest(peak=True), lse).lse is not lse
    for odd in (0.0, INF, -INF, float("nan")):  # what kernels give for a query without keys
        near(measure(inputs, nothing, lse.index_fill(-1, torch.tensor([3]), odd)).lse, lse)
    half = kernel_call(inputs.q.half(), inputs.k.half(), Mask(), 1.0, None).inputs
    assert measure(half, nothing, lse.float()).lse is not lse
    padding = torch.zeros(B, 1, T, dtype=torch.bool)
    padding[1, 0, 2] = True
    padded = kernel_call(inputs.q, inputs.k, Mask(), 1.0, None, padding=padding).inputs
    near(measure(padded, nothing, lse).lse, lse.masked_fill(padding, -INF))
    stored = PrecomputedWeights.of(weights)
    near(measure(stored, StatsRequest(received=True), lse).received, weights.sum(-2))
    near(measure(stored, StatsRequest(received=True), lse).lse, lse)


def test_how_many_weights_a_tile_holds():
    few, _, _ = inputs_of()
    assert stream._tile_size(few) == stream._TILE["cpu"]

    def of(n):
        x = torch.zeros(1, 1, n, 1)
        return stream._tile_size(kernel_call(x, x, Mask(), 1.0, None).inputs)

    least, most = stream._SHARED_TILE
    assert of(724) == stream._TILE["cpu"]  # 724 * 724 pairs are not more than 1 << 19
    assert of(725) == least
    assert of(1499) == 1499 * 1499 // 8
    assert of(4001) == most


def test_buffers_are_as_large_as_the_last_tile_of_a_band_needs():
    x = randn(1, 2, 257, 3)
    inputs = kernel_call(x, x, sl.masks.causal(), 1.0, None).inputs
    scratch, tiles = stream._Scratch(inputs, None), list(inputs.tiles(1 << 30))
    assert len({tile.columns for tile in tiles}) > 3
    places = set()
    for tile in tiles:
        shape = (1, 2, tile.rows[1] - tile.rows[0], tile.columns[1])
        first, second = scratch.take(shape)
        assert first.shape == second.shape == shape
        assert first.is_contiguous()
        assert second.is_contiguous()
        assert scratch.take(shape)[0] is first
        places.add((first.data_ptr(), second.data_ptr()))
    ((one, other),) = places
    assert abs(one - other) >= first.nbytes
    larger, _ = scratch.take((2, 2, 52, 257))
    assert larger.numel() == 2 * 2 * 52 * 257


@pytest.mark.parametrize("mask", ["causal", "window", "window_from_start"])
def test_what_a_band_forbids_counts_for_nothing_whatever_it_holds(mask):
    t = 67
    given, _ = MASKS[mask]((1, 2), t, t)
    q, k = randn(1, 2, t, 5), randn(1, 2, t, 5, seed=1)
    allowed = as_mask(given).dense(t, t)
    request = StatsRequest(True, True, True, Cells(t, t, (0, t), (0, t)), 3)
    inputs = kernel_call(q, k, as_mask(given), 1.0, None).inputs
    lse = measure(inputs, request).lse
    known = measure(inputs, request, lse)
    assert not bool(known.cells[..., ~allowed].any())
    blind = ~allowed[:, -1]
    for strange in (float("nan"), INF, 1e30):
        last = k.clone()
        last[:, :, -1] = strange  # only the last queries may look at it
        other = measure(kernel_call(q, last, as_mask(given), 1.0, None).inputs, request, lse)
        for name in ("lse", "entropy", "peak", "peak_at", "cells", "top", "top_at"):
            near(getattr(other, name)[:, :, blind], getattr(known, name)[:, :, blind])
    away = q.abs().where(
        allowed[:, -1:], -q.abs()
    )  # inf for those that may not look, -inf for those that may
    inputs = kernel_call(away, k.index_fill(2, torch.tensor([t - 1]), -INF), as_mask(given), 1.0, None).inputs
    expected = measure(inputs, request)
    near(measure(inputs, request, expected.lse).entropy[:, :, blind], expected.entropy[:, :, blind])


def test_a_band_is_passed_over_once_where_the_log_sum_exp_is_known():
    x = randn(1, 2, 257, 5)
    inputs = kernel_call(x, x, sl.masks.causal(), 1.0, None).inputs
    lse = measure(inputs, StatsRequest(entropy=True)).lse
    with mock.patch.object(type(inputs), "scores", autospec=True, side_effect=type(inputs).scores) as scores:
        measure(inputs, StatsRequest(entropy=True), lse)
    assert scores.call_count == len(list(inputs.tiles(stream._tile_size(inputs))))


# Cells and places


@pytest.mark.combinations
@pytest.mark.parametrize(("queries", "keys"), [((0, 7), (0, 11)), ((2, 7), (3, 10)), ((1, 4), (5, 6))])
@pytest.mark.parametrize("first", [(0, 0), (3, 2)])
def test_cells_of_a_window_are_sums_over_it(queries, keys, first, monkeypatch):
    inputs, weights, lse = inputs_of("window")
    t, s = queries[1] - queries[0], keys[1] - keys[0]
    for rows, columns, size in itertools.product({1, 2, t}, {1, 3, s}, (1, 40, 1 << 20)):
        if rows > t or columns > s:
            continue
        monkeypatch.setattr(stream, "_TILE", {"cpu": size, "cuda": size})
        cells = Cells(rows, columns, tuple(x + first[0] for x in queries), tuple(x + first[1] for x in keys))
        found = pool(inputs, lse, cells, *first)
        near(found / cells.areas(torch.device("cpu")), picture(weights, rows, columns, queries, keys))
    assert cells.areas(torch.device("cpu")).sum() == t * s


def test_cells_that_lie_partly_or_wholly_elsewhere():
    inputs, weights, lse = inputs_of()
    part = pool(
        inputs, lse, Cells(4, 4, (3, 7), (9, 13)), 5, 11
    )  # these queries are 5..11, these keys 11..21
    expected = torch.zeros(B, H, 4, 4, dtype=torch.float64)
    expected[..., 2:, 2:] = weights[..., :2, :2]
    near(part, expected)
    for away in (
        Cells(2, 2, (0, 5), (11, 13)),
        Cells(2, 2, (5, 7), (0, 11)),
        Cells(2, 2, (12, 14), (11, 13)),
    ):
        near(pool(inputs, lse, away, 5, 11), torch.zeros(B, H, 2, 2))
    near(pool(inputs, lse, Cells(1, 1, (11, 12), (21, 22)), 5, 11), weights[..., 6:7, 10:11])


def test_which_cell_a_place_falls_into():
    for n, first, last in itertools.product((1, 3, 5), (0, 3), (8, 10)):
        cells = Cells(n, n, (first, last), (first, last))
        starts = [first + i * (last - first) // n for i in range(n)]
        expected = [sum(x >= start for start in starts) - 1 for x in range(first, last)]
        assert cells.column_of(torch.arange(first, last)).tolist() == expected
        for a, b in itertools.combinations(range(first, last + 1), 2):
            weights = randn(1, 1, b - a, 3)
            tile = Tile(slice(0, 1), slice(0, 1), (a, b), (first, first + 3))
            row, sums = sum_rows(weights, tile, cells)
            assert row == expected[a - first]
            for i in range(sums.size(-2)):
                own = [x - a for x in range(a, b) if expected[x - first] == row + i]
                near(sums[..., i, :], weights[..., own, :].sum(-2))
            by_column = sum_columns(sums, tile, cells, torch.tensor(expected))
            whole = torch.zeros_like(by_column)
            for j in range(3):
                whole[..., expected[j]] += sums[..., j]
            near(by_column, whole)


# Even attention, tile by tile


@pytest.mark.parametrize("size", [20, 1 << 20])
@pytest.mark.parametrize(
    "mask", ["dense_of_all", "dense_of_batch", "bias_of_heads", "all_together", "nobody"]
)
def test_even_attention_does_not_depend_on_tiles(mask, size, monkeypatch):
    monkeypatch.setattr(uniform, "_TILE", {"cpu": size})
    _, weights, _ = inputs_of(mask)
    q = randn(B, H, T, D)
    sight = sl.look(q, randn(B, H, S, D, seed=1), randn(B, H, S, D), MASKS[mask]((B, H), T, S)[0])
    found, allowed = even_attention(sight), (weights > 0).double()
    n = allowed.sum(-1)
    assert torch.equal(found.reach, n.long())
    near(found.entropy, n.clamp(min=1).log())
    near(found.received, (allowed / n.clamp(min=1).unsqueeze(-1)).sum(-2))


def test_even_attention_of_scores_that_a_function_changes():
    def modify(scores, b, h, i, j):
        return torch.where(j <= i[:, None] + h[:, None, None], scores, -INF)

    inputs, _, _ = inputs_of(modify=modify)
    ahead = torch.arange(S) - torch.arange(T)[:, None] - torch.arange(H)[:, None, None]
    for size in (7, 1 << 20):
        with mock.patch.object(uniform, "_TILE", {"cpu": size}):
            reach, received = uniform._of_tiles(inputs)
        allowed = (ahead <= 0).double().expand(B, H, T, S)
        assert torch.equal(reach, allowed.sum(-1).long())
        near(received, (allowed / allowed.sum(-1, keepdim=True)).sum(-2))
    padding = torch.zeros(B, 1, T, dtype=torch.bool)
    padding[1, 0, 3] = True
    padded = kernel_call(inputs.q, inputs.k, Mask(), 1.0, None, modify=modify, padding=padding).inputs
    reach, _ = uniform._of_tiles(padded)
    assert torch.equal(reach, allowed.sum(-1).long().masked_fill(padding, 0))
    assert uniform._has_bands_alone(inputs) is False
