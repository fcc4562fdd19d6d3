"""What weights are made of, piece by piece: tiles, the spans that a mask changes, rows that may be empty."""

import copy
import itertools
from dataclasses import replace

import pytest
import torch

import sightline as sl
from sightline.attention.band import Band
from sightline.attention.masks import Mask
from sightline.look.inputs import PrecomputedWeights, ScoreInputs, ScoreModifier, Tile, as_index
from sightline.watch.attention_call import kernel_call
from tests.look.look_oracle import INF, near, randn

B, H, T, S, D = 2, 6, 7, 11, 5


def inputs_of(mask=None, *, t=T, s=S, kv_heads=3, **more):
    q, k = randn(B, H, t, D), randn(B, kv_heads, s, D, seed=1)
    return kernel_call(q, k, mask or Mask(), 0.5, None, **more).inputs


def scores_of(inputs):
    """All scores at once, by loops over items and heads; -inf where a query may not look."""
    _, h, t, s = inputs.shape
    group = h // inputs.k.size(1)
    scores = torch.stack([inputs.q[:, i] @ inputs.k[:, i // group].mT for i in range(h)], 1) * inputs.scale
    for i, j in itertools.product(range(t), range(s)):
        for band in inputs.mask.bands:
            ahead = j - i - (s - t if band.align == "end" else 0)
            if (band.left is not None and ahead < -band.left) or (
                band.right is not None and ahead > band.right
            ):
                scores[..., i, j] = -INF
    for lengths in inputs.mask.lengths:
        scores = scores.masked_fill(torch.arange(s) >= lengths, -INF)
    for allowed in inputs.mask.allowed:
        scores = scores.masked_fill(~allowed, -INF)
    for added in inputs.mask.added:
        scores = scores + added
    if inputs.padding is not None:
        scores = scores.masked_fill(inputs.padding.unsqueeze(-1), -INF)
    return scores


MASKS = {
    "nothing": Mask(),
    "causal": sl.masks.causal(),
    "causal from the start": sl.masks.causal(align="start"),
    "window": sl.masks.window(2, 1),
    "window to the right": Mask(bands=(Band(-1, 3, "start"),)),
    "two bands": sl.masks.causal() & sl.masks.window(3, None, align="start"),
    "lengths": Mask(lengths=(torch.tensor([3, 0]),)),
    "of all": Mask(allowed=(randn(B, H, T, S, seed=2) > 0,)),
    "of items": Mask(allowed=(randn(B, 1, T, S, seed=3) > 0,)),
    "of heads": Mask(added=(randn(1, H, T, S, seed=4),)),
    "bias": Mask(added=(randn(T, S, seed=5),)),
}
TILES = [
    Tile(slice(0, 2), slice(0, 6), (0, 7), (0, 11)),
    Tile(slice(1, 2), slice(2, 4), (3, 5), (4, 9)),
    Tile(slice(0, 1), slice(4, 6), (6, 7), (10, 11)),
    Tile(slice(0, 2), slice(0, 2), (1, 6), (1, 3)),
]


@pytest.mark.parametrize("mask", MASKS)
def test_a_rectangle_of_scores_is_that_of_all_of_them(mask):
    padding = torch.zeros(B, 1, T, dtype=torch.bool)
    padding[1, 0, 4] = True
    plain, padded = inputs_of(MASKS[mask]), inputs_of(MASKS[mask], padding=padding)
    for tile, inputs in itertools.product(TILES, (plain, padded)):
        truth = scores_of(inputs)[tile.row_index][..., slice(*tile.columns)]
        near(inputs.scores(tile), truth)
        out = torch.full(truth.shape, 7.0, dtype=torch.float64)
        near(inputs.scores(tile, out=out), truth)
        near(out, truth)


@pytest.mark.parametrize("tile", TILES, ids=str)
@pytest.mark.parametrize("mask", MASKS)
def test_outside_of_the_spans_a_mask_changes_nothing(mask, tile):
    inputs = inputs_of(MASKS[mask])
    plain = scores_of(inputs_of())[tile.row_index]
    changed = (scores_of(inputs)[tile.row_index] != plain).flatten(0, 2).any(0)
    spans = inputs.masked_spans(tile)
    inside = {j for a, b in spans for j in range(a, b)}
    assert inside <= set(range(*tile.columns))
    assert {j for j in range(*tile.columns) if changed[j]} <= inside
    assert all(a < b for a, b in spans)
    if not inputs.mask.tensors:  # of a band nothing more than that
        ends = [j for span in spans for j in (span[0], span[1] - 1)]
        both = changed[tile.columns[0] : tile.columns[1]].all()
        assert len(spans) < 2 or bool(changed[ends].any()) or both


def test_a_band_is_looked_for_at_its_edge_alone():
    tile = Tile(slice(0, 2), slice(0, 6), (2, 5), (0, 11))
    assert inputs_of(sl.masks.causal()).masked_spans(tile) == [(7, 11)]
    assert inputs_of(sl.masks.window(6, None)).masked_spans(tile) == [(0, 2)]
    assert inputs_of(sl.masks.window(6, 0)).masked_spans(tile) == [(0, 2), (7, 11)]
    assert inputs_of(sl.masks.window(0, 0)).masked_spans(tile) == [(0, 11)]
    assert inputs_of(sl.masks.causal()).masked_spans(tile._replace(columns=(1, 6))) == []
    assert inputs_of(sl.masks.window(0, 0)).masked_spans(tile._replace(columns=(4, 4))) == []
    assert inputs_of().masked_spans(tile) == []
    assert inputs_of(MASKS["bias"]).masked_spans(tile) == [(0, 11)]


def test_what_changes_scores_by_a_function_or_is_padding_changes_all_columns():
    tile, padding = TILES[1], torch.zeros(B, 1, T, dtype=torch.bool)
    assert inputs_of(padding=padding).masked_spans(tile) == [(4, 9)]
    assert inputs_of(modify=lambda x, *_: x).masked_spans(tile) == [(4, 9)]
    assert inputs_of(sl.masks.causal(), padding=padding).masked_spans(tile) == [(4, 9)]
    assert PrecomputedWeights.of(randn(B, H, T, S).softmax(-1)).masked_spans(tile) == [(4, 9)]


BANDS = [
    (0, 0, "end"),
    (2, 0, "end"),
    (None, 0, "start"),
    (0, None, "start"),
    (-2, 3, "start"),
    (4, -3, "end"),
]


@pytest.mark.parametrize("band", BANDS, ids=str)
def test_rows_may_be_empty_where_some_row_of_a_band_is(band):
    for t, s in itertools.product((1, 3, 7, 13), (0, 1, 5, 11)):
        inputs = inputs_of(Mask(bands=(Band(*band),)), t=t, s=s)
        empty = (scores_of(inputs) == -INF).flatten(0, 1).all(0).all(-1)
        assert inputs.may_have_empty_rows() is bool(empty.any())
        for first, last in ((0, t), (0, 1), (t - 1, t), (t // 3, t // 3 + 1), (t // 2, t)):
            tile = Tile(slice(0, B), slice(0, H), (first, last), (0, s))
            assert inputs.may_have_empty_rows(tile) is bool(empty[first:last].any())


def test_what_is_not_known_without_numbers_may_have_empty_rows():
    assert not inputs_of().may_have_empty_rows()
    assert inputs_of(s=0).may_have_empty_rows()
    assert inputs_of(modify=lambda x, *_: x).may_have_empty_rows()
    assert inputs_of(padding=torch.zeros(B, 1, T, dtype=torch.bool)).may_have_empty_rows()
    assert all(inputs_of(MASKS[x]).may_have_empty_rows() for x in ("lengths", "of all", "bias", "two bands"))
    stored = PrecomputedWeights.of(torch.zeros(B, H, T, S))
    assert stored.may_have_empty_rows()
    assert stored.may_forbid
    assert stored.empty_rows().all()


def test_what_may_forbid():
    assert not inputs_of().may_forbid
    assert inputs_of(sl.masks.causal()).may_forbid
    assert inputs_of(modify=lambda x, *_: x).may_forbid
    assert inputs_of(padding=torch.zeros(B, 1, T, dtype=torch.bool)).may_forbid


WINDOWS = [(None, None), ((2, 5), (3, 9)), ((0, 7), (4, 11))]


@pytest.mark.parametrize("mask", ["nothing", "causal", "window", "lengths"])
def test_tiles_hold_every_pair_once_and_no_more_than_asked(mask):
    sizes = (1, 5, 23, 67, 150, 300, 1 << 20)
    for kv_heads, size, (queries, keys) in itertools.product((1, 3, 6), sizes, WINDOWS):
        inputs = inputs_of(MASKS[mask], kv_heads=kv_heads)
        (top, bottom), (left, right) = queries or (0, T), keys or (0, S)
        count, group, width = torch.zeros(B, H, T, S), H // kv_heads, right - left
        tiles = list(inputs.tiles(size, queries, keys))
        for tile in tiles:
            assert top <= tile.rows[0] < tile.rows[1] <= bottom
            assert left <= tile.columns[0]
            assert tile.columns[1] <= max(right, tile.columns[0])
            n_heads, n_rows = tile.heads.stop - tile.heads.start, tile.rows[1] - tile.rows[0]
            assert (tile.heads.start % group, tile.heads.stop % group) == (0, 0)
            whole = (tile.batch.stop - tile.batch.start) * n_heads * n_rows * width
            assert whole <= max(size, group * width)
            count[tile.row_index][..., slice(*tile.columns)] += 1
        assert count.max() <= 1
        inside = torch.zeros(T, S, dtype=torch.bool)
        inside[top:bottom, left:right] = True
        assert bool((count[(scores_of(inputs) > -INF) & inside] == 1).all())
        assert not bool(count[..., ~inside].any())
        if size == 1 << 20:
            assert len(tiles) == 1
            assert tiles[0].is_all(inputs.shape) is (mask != "window" and not queries)
        if mask == "nothing" and size in {23, 67, 150, 300}:  # and not many more than have to be
            pairs = B * H * (bottom - top) * width
            assert len(tiles) <= 4 * max(1, -(-pairs // max(size, group * width)))


def test_a_band_over_many_queries_is_cut_into_thin_tiles():
    inputs = inputs_of(sl.masks.causal(), t=257, s=257)
    tiles = list(inputs.tiles(1 << 30))
    assert [tile.rows for tile in tiles] == [(0, 52), (52, 104), (104, 156), (156, 208), (208, 257)]
    assert [tile.columns for tile in tiles] == [(0, 52), (0, 104), (0, 156), (0, 208), (0, 257)]
    assert [x.rows for x in inputs_of(t=257, s=257).tiles(1 << 30)] == [(0, 257)]
    long = inputs_of(sl.masks.causal(), t=2048, s=2)
    assert {b - a for a, b in (x.rows for x in long.tiles(1 << 30))} == {128}


def test_tiles_are_as_even_as_they_can_be():
    inputs = inputs_of(t=10, s=8, kv_heads=6)
    assert [x.rows for x in inputs.tiles(9 * 8) if x.heads.start == x.batch.start == 0] == [(0, 5), (5, 10)]
    assert {x.heads.stop - x.heads.start for x in inputs.tiles(5 * 10 * 8)} == {3}
    grouped = inputs_of(t=10, s=8, kv_heads=3)
    assert [(x.heads.start, x.heads.stop) for x in grouped.tiles(5 * 10 * 8) if not x.batch.start] == [
        (0, 4),
        (4, 6),
    ]


@pytest.mark.parametrize("mask", ["nothing", "causal", "of all"])
def test_half_precision_is_widened_once_for_all_tiles(mask):
    inputs = inputs_of(MASKS[mask])
    assert inputs.widened() is inputs
    half = replace(inputs, q=inputs.q.bfloat16(), k=inputs.k.bfloat16())
    wide = half.widened()
    assert wide.q.dtype == wide.k.dtype == wide.dtype == half.dtype == torch.float32
    for tile in TILES:
        assert torch.equal(wide.scores(tile), half.scores(tile))
    own = replace(half, score=sl.scores.named("dot"))
    assert own.widened() is own


@pytest.mark.parametrize("mask", ["causal", "causal from the start", "window", "window to the right"])
def test_zeros_outside_a_band(mask):
    inputs = inputs_of(MASKS[mask])
    for tile in TILES:
        x = inputs.scores(tile, masked=False)
        assert bool(x.isfinite().all())
        expected = x.masked_fill(inputs.scores(tile) == -INF, 0.0)
        inputs.zero_outside_bands(x, tile)
        assert torch.equal(x, expected)
    empty = (inputs.scores(TILES[0]) == -INF).all(-1).any()
    assert inputs.has_bands_alone(TILES[0]) is not bool(empty)
    assert not inputs_of().has_bands_alone(TILES[0])
    assert not inputs_of(MASKS["two bands"]).has_bands_alone(TILES[0])
    padded = inputs_of(sl.masks.causal(), padding=torch.zeros(B, 1, T, dtype=torch.bool))
    assert not padded.has_bands_alone(TILES[0])


def test_a_tile_is_all_only_if_nothing_is_left():
    whole = TILES[0]
    assert whole.is_all((2, 6, 7, 11))
    for shape in ((3, 6, 7, 11), (2, 7, 7, 11), (2, 6, 8, 11), (2, 6, 7, 12)):
        assert not whole.is_all(shape)


# Parts


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("batch", "heads"), [([1], [3]), ([1, 0], [4, 5, 0]), ([0, 1], [2, 3, 4])])
def test_some_items_and_heads(mask, batch, heads):
    padding = torch.zeros(B, 1, T, dtype=torch.bool)
    padding[1, 0, 4] = True
    sink = torch.arange(H, dtype=torch.float64)

    def modify(scores, b, h, i, j):
        return scores + 100 * b[:, None, None, None] + 10 * h[:, None, None] + i[:, None] - j

    inputs = inputs_of(MASKS[mask], padding=padding, sink=sink, modify=modify)
    part = inputs.select(batch, heads)
    whole = Tile(slice(0, B), slice(0, H), (1, T), (2, S))
    own = Tile(slice(0, len(batch)), slice(0, len(heads)), (1, T), (2, S))
    near(part.scores(own), inputs.scores(whole)[batch][:, heads])
    assert part.sink.flatten().tolist() == heads
    assert torch.equal(part.padding, padding[batch])
    plain = inputs_of(MASKS[mask]).select(batch, heads)
    near(plain.scores(own), inputs_of(MASKS[mask]).scores(whole)[batch][:, heads])
    assert plain.padding is None
    assert plain.modify is None
    assert plain.sink is None


def test_places_that_follow_each_other_are_a_slice():
    assert as_index([2, 3, 4]) == slice(2, 5)
    assert as_index([2]) == slice(2, 3)
    assert as_index([2, 4]) == [2, 4]
    assert as_index([3, 2]) == [3, 2]
    assert as_index([]) == []


def test_positions_that_a_modifier_is_given():
    given = []
    modifier = ScoreModifier(lambda scores, *at: given.append(at) or scores, (3, 5), (2, 7, 11))
    modifier(torch.zeros(1, 2, 3, 4), Tile(slice(1, 2), slice(1, 3), (4, 7), (13, 17)))
    assert [x.tolist() for x in given[0]] == [[5], [7, 11], [4, 5, 6], [13, 14, 15, 16]]
    part = modifier.select([1], [2, 0])
    assert (part.batch, part.heads) == ((5,), (11, 2))


# What they are


def test_what_is_known_of_them():
    inputs = inputs_of()
    assert inputs.shape == (B, H, T, S)
    assert inputs.dtype == torch.float64
    half = ScoreInputs(inputs.q.half(), inputs.k.half(), Mask(), 0.5)
    assert half.dtype == torch.float32
    tensors = (inputs.q, inputs.k)
    assert inputs.nbytes == sum(x.numel() * 8 for x in tensors)
    biased = inputs_of(MASKS["bias"])
    assert biased.nbytes == inputs.nbytes + T * S * 8


@pytest.mark.plain
def test_whether_statistics_should_be_differentiable():
    plain = inputs_of()
    assert plain.requires_grad is False
    q = plain.q.clone().requires_grad_()
    for some in (
        ScoreInputs(q, plain.k, Mask(), 1.0),
        ScoreInputs(plain.q, plain.k.clone().requires_grad_(), Mask(), 1.0),
        ScoreInputs(plain.q, plain.k, Mask(added=(randn(B, H, T, S).requires_grad_(),)), 1.0),
        ScoreInputs(plain.q, plain.k, Mask(), 1.0, score=sl.scores.General(D, D)),
        ScoreInputs(plain.q, plain.k, Mask(), 1.0, sink=torch.zeros(1, H, 1).requires_grad_()),
    ):
        assert some.requires_grad is True
        with torch.no_grad():
            assert some.requires_grad is False
    assert ScoreInputs(q, plain.k, Mask(added=(q,)), 1.0, sink=q).detached().requires_grad is False


def test_who_has_been_written_to():
    for which in ("q", "k"):
        inputs = inputs_of()
        assert inputs.was_modified is False  # nobody counts
        counted = inputs.with_versions()
        assert counted.was_modified is False
        getattr(inputs, which).add_(1)
        assert counted.was_modified is True
        assert counted.select([0], [1]).was_modified is True
        assert counted.to("cpu").was_modified is True
        assert copy.deepcopy(counted).was_modified is True
        assert inputs.with_versions().was_modified is False
        assert inputs.with_versions().select([0], [1]).was_modified is False
        again = copy.deepcopy(inputs.with_versions())
        assert again.was_modified is False
        getattr(again, which).add_(1)
        assert again.was_modified is True
        assert copy.deepcopy(inputs).versions is None


def test_of_inference_tensors_nobody_counts():
    with torch.inference_mode():
        inputs = inputs_of().with_versions()
        assert inputs.versions is None
        assert inputs.was_modified is False
    copied = inputs.countable()
    assert not copied.q.is_inference()
    assert not copied.k.is_inference()
    plain = inputs_of()
    assert plain.countable().q is plain.q
    mixed = ScoreInputs(plain.q, inputs.k, Mask(), 1.0)
    assert mixed.with_versions().versions is None
    assert ScoreInputs(inputs.q, plain.k, Mask(), 1.0).with_versions().versions is None


def test_what_a_sink_leaves():
    sink = torch.tensor([0.5, -1.0, 2.0, 0.0, 1.0, 3.0], dtype=torch.float64)
    inputs, tile = inputs_of(sink=sink), TILES[1]
    lse = randn(1, 2, 2, seed=9)
    truth = lse - torch.logaddexp(lse, sink[2:4, None])
    near(inputs.log_rest(lse, tile), truth)
    near(inputs_of().log_rest(lse, tile), torch.zeros_like(lse))


def test_stored_rows_are_the_weights_they_were_given():
    weights = randn(B, H, T, S).softmax(-1)
    weights[1, 2, 3] = 0
    rows, tile = PrecomputedWeights.of(weights), TILES[1]
    assert rows.shape == (B, H, T, S)
    assert torch.equal(rows.scores(tile), weights[tile.row_index][..., 4:9].log())
    assert rows.empty_rows().nonzero().tolist() == [[1, 2, 3]]


def test_keys_that_all_items_share_and_sinks_of_a_call():
    for n in (2, 3):  # as many items as heads too
        q, k = randn(n, 2, T, D), randn(1, 2, S, D, seed=1)
        call = kernel_call(q, k, Mask(), 0.5, None)
        assert call.inputs.k.shape == (n, 2, S, D)
        assert (call.lead, call.source, call.inputs.sink, call.inputs.modify) == (
            (n, 2),
            "kernel",
            None,
            None,
        )
        near(call.inputs.scores(Tile(slice(0, n), slice(0, 2), (0, T), (0, S))), q @ k.mT * 0.5)
    assert kernel_call(q, randn(3, 2, S, D), Mask(), 0.5, None, source="flex").source == "flex"
    sinks = torch.tensor([1.0, 2.0], requires_grad=True)
    beside = kernel_call(q, q, Mask(), 0.5, None, sink=sinks).inputs.sink
    assert beside.shape == (1, 2, 1)
    assert not beside.requires_grad
    flex = kernel_call(q, q, Mask(), 0.5, None, source="flex")
    assert flex.with_sink(None) is flex
    assert flex.with_sink(torch.zeros(3)) is flex
    assert call.with_sink(sinks) is call
    assert flex.with_sink(sinks).inputs.sink.tolist() == [[[1.0], [2.0]]]
