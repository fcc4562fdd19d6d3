import numpy as np
import pytest
import torch
from matplotlib.colors import LogNorm
from torch import nn

import sightline as sl
from sightline import show
from sightline.show.layers import short_names
from tests.show.sights import LONG, long, seen


def names(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def picture(ax):
    return np.asarray(ax.images[0].get_array())


def test_a_map_is_the_matrix():
    sight = seen(7, 11)
    rows, columns = list("abcdefg"), [f"key{i}" for i in range(11)]
    ax = show.sight_map(sight, rows, columns, head=2).axes[0]
    np.testing.assert_allclose(picture(ax), sight[0, 2].map((7, 11)).double())
    assert (names(ax.yaxis), names(ax.xaxis)) == (rows, columns)
    mean = show.sight_map(sight).axes[0]
    np.testing.assert_allclose(picture(mean), sight.map((7, 11))[0].mean(0).double(), rtol=1e-6)


def test_a_map_of_many_is_pooled_and_numbered():
    sight = seen(211, 199, mask=sl.masks.causal())
    ax = show.sight_map(sight, [str(i) for i in range(211)], size=13).axes[0]
    np.testing.assert_allclose(picture(ax), sight.mean_heads().map(13)[0].double())
    assert ax.images[0].get_extent() == [-0.5, 198.5, 210.5, -0.5]
    assert {"30", "60"} <= set(names(ax.yaxis))
    assert isinstance(ax.images[0].norm, LogNorm)


def test_a_window_of_a_map():
    sight = seen(53, 59)
    keys = [f"k{i}" for i in range(59)]
    ax = show.sight_map(sight, keys=keys, window=((20, 25), (30, 37)), head=1).axes[0]
    expected = sight.map((5, 7), queries=(20, 25), keys=(30, 37))[0, 1].double()
    np.testing.assert_allclose(picture(ax), expected)
    assert names(ax.xaxis) == keys[30:37]
    assert ax.images[0].get_extent() == [-0.5, 6.5, 24.5, 19.5]


def test_a_map_that_was_measured_needs_no_q_and_k():
    sight = seen(53, 59, measure=sl.Look(map=(3, 5)), keep=False)
    np.testing.assert_allclose(
        picture(show.sight_map(sight, head=0).axes[0]), sight.map((3, 5))[0, 0].double()
    )
    assert len(show.heads(sight).axes) == 4
    assert picture(show.heads(long()).axes[0]).shape == (61, 61)


def test_every_head_has_a_panel_on_one_scale():
    sight = seen(heads=5)
    figure = show.heads(sight)
    panels = figure.axes[:5]
    nats = sight.entropy[0].mean(-1)
    assert [ax.get_title() for ax in panels] == [f"head {i} · {nats[i]:.2f}" for i in range(5)]
    assert len({ax.images[0].get_clim() for ax in panels}) == 1
    for i, ax in enumerate(panels):
        np.testing.assert_allclose(picture(ax), sight.map(7)[0, i].double())
    assert show.heads(seen(heads=2, measure=sl.Look(entropy=False))).axes[0].get_title() == "head 0"


@pytest.mark.parametrize("count", [1, 12, 13])
def test_few_enough_tokens_are_written_at_the_edges_of_the_grid(count):
    rows, columns = [f"q{i}" for i in range(5)], [f"key{i}" for i in range(7)]
    figure = show.heads(seen(5, 7, heads=count), rows, columns)
    figure.draw_without_rendering()
    panels = figure.axes[:count]
    across = sum(ax.get_subplotspec().is_first_row() for ax in panels)
    for i, ax in enumerate(panels):
        shown = [t.get_text() for t in ax.get_yticklabels() if t.get_visible()]
        assert (shown == rows) == (i % across == 0)
        shown = [t.get_text() for t in ax.get_xticklabels() if t.get_visible()]
        assert (shown == columns) == (i + across >= count)


def test_more_tokens_are_numbered():
    many = [f"token{i}" for i in range(53)]
    figure = show.heads(seen(53, 53), many, many)
    figure.draw_without_rendering()
    assert "0" in names(figure.axes[0].yaxis)
    assert not any("token" in name for ax in figure.axes for name in names(ax.xaxis) + names(ax.yaxis))


@pytest.mark.parametrize("count", [1, 2, 12, 13, 32])
def test_a_grid_holds_them_all(count):
    assert len(show.heads(seen(heads=count, t=3, s=3)).axes) == count + 1


def test_entropy_has_a_row_for_each_layer():
    sights = {"a.0.attn": seen(heads=3), "a.1.attn": seen(heads=2)}
    ax = show.entropy(sights).axes[0]
    np.testing.assert_allclose(picture(ax)[0], sights["a.0.attn"].entropy.double().mean((0, 2)), rtol=1e-6)
    np.testing.assert_allclose(
        picture(ax)[1, :2], sights["a.1.attn"].entropy.double().mean((0, 2)), rtol=1e-6
    )
    assert np.ma.masked_invalid(picture(ax)).mask[1, 2]
    assert (names(ax.yaxis), ax.get_title()) == (["0", "1"], "a.*.attn")
    assert [text.get_text() for text in ax.texts] == [f"{x:.2f}" for x in picture(ax).flatten() if x == x]


def test_entropy_of_what_was_watched():
    model = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, batch_first=True), 3, enable_nested_tensor=False
    )
    with sl.watch(model) as watched:
        model(torch.randn(2, 5, 8))
    ax = show.entropy(watched, title="all").axes[0]
    assert (names(ax.yaxis), ax.get_title()) == (["0", "1", "2"], "all")
    assert picture(ax).shape == (3, 2)


@pytest.mark.parametrize(
    ("full", "short"),
    [
        (["a.0.b", "a.1.b"], (["0", "1"], "a.*.b")),
        (["a.b", "a.c.b"], (["b", "c.b"], "a.*")),
        (["x", "y"], (["x", "y"], "")),
        (["a.b"], (["a.b"], "")),
        (["", "a"], (["", "a"], "")),
        (["a.a", "a.a.a"], (["a", "a.a"], "a.*")),
    ],
)
def test_names_are_told_apart(full, short):
    assert short_names(full) == short


def test_received_is_a_share_of_all():
    sight = seen(7, 11)
    tokens = [f"k{i}" for i in range(11)]
    ax = show.received(sight, tokens).axes[0]
    heights = [bar.get_height() for bar in ax.patches]
    np.testing.assert_allclose(heights, sight.received[0].double().mean(0) / 7, rtol=1e-5)
    assert names(ax.xaxis) == tokens
    one = [bar.get_height() for bar in show.received(sight, head=1).axes[0].patches]
    np.testing.assert_allclose(one, sight.received[0, 1].double() / 7, rtol=1e-5)


def test_of_many_keys_the_largest_are_named():
    ax = show.received(long(), [f"t{i}" for i in range(LONG)]).axes[0]
    assert ax.get_title(loc="right") == "most: 0 't0' (50.0%)"
    assert ax.get_yscale() == "log"
    mean, largest = ax.patches[:2]
    shares = long().received[0].double().mean(0)
    assert len(mean.get_data().values) == 400
    assert mean.get_data().values[0] == pytest.approx((shares / shares.sum())[:250].mean().item(), rel=0.01)
    assert largest.get_data().values[0] == pytest.approx(0.5, rel=0.01)


def test_rows_are_the_weights():
    sight = seen(7, 7)
    tokens = list("abcdefg")
    figure = show.rows(sight, [2, -1], tokens, head=1)
    for ax, row in zip(figure.axes, sight.rows([2, 6])[0, 1], strict=True):
        np.testing.assert_allclose([bar.get_height() for bar in ax.patches], row.double())
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["query 2 'c'", "query 6 'g'"]
    assert len(show.rows(sight, torch.tensor([1, 2, 3])).axes) == 3
    (ax,) = show.rows(seen(5, 211), 3, queries=list("abcde")).axes
    assert ax.get_title(loc="left") == "query 3 'd'"


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: show.sight_map(sl.look(*[torch.rand(2, 3, 5, 7)] * 3)), r"\(2, 3\); pick one, sight\[0\]"),
        (lambda: show.sight_map(seen(), head=3), r"head must be in 0\.\.2, got 3"),
        (lambda: show.sight_map(seen().mean_heads(), head=1), "no single heads, got head=1"),
        (lambda: show.sight_map(seen(), ["a"]), "one name for each query, got 1 names for 7"),
        (lambda: show.sight_map(seen(), size=0), "at least 1 cell, got 0"),
        (lambda: show.sight_map(seen(), window=((0, 9), (0, 3))), r"within 0\.\.7, got \(0, 9\)"),
        (lambda: show.sight_map(seen(keep=False)), "q and k were not kept; keep them with keep=True"),
        (lambda: show.heads(seen().mean_heads()), "1 to 128 heads, got a sight with averaged heads"),
        (lambda: show.heads(seen(3, 5), ["a"] * 4), "one name for each query, got 4 names for 3"),
        (lambda: show.heads(seen(3, 5), None, ["a"]), "one name for each key, got 1 names for 5"),
        (lambda: show.heads(seen(3, 3, heads=129)), r"got a sight with leading dimensions \(129,\)"),
        (lambda: show.entropy({}), "there is no sight to draw"),
        (lambda: show.received(seen(), ["a"] * 8), "one name for each key, got 8 names for 7"),
        (lambda: show.received(seen(measure=sl.Look(received=False))), "this sight has no received"),
        (lambda: show.rows(seen(), []), "1 to 12 rows, got 0"),
        (lambda: show.rows(seen(), range(13)), "1 to 12 rows, got 13"),
        (lambda: show.rows(seen(), 7), r"queries in 0\.\.6, got 7"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()
