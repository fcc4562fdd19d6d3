"""What holds for every figure: all of its text is inside, nothing overlaps, and nothing leaks."""

import functools
import itertools
import sys

import matplotlib as mpl
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from sightline import show
from sightline.attention import masks
from sightline.attention.scores import Additive
from sightline.positions import sinusoidal
from sightline.show.alignment import alignment, head_grid
from tests.show.sights import long, seen

pytestmark = pytest.mark.plain

LONG = [f"a rather long token {i}" for i in range(13)]
NAMES = [f"word{i}" for i in range(61)]
FIGURES = {
    "positions": lambda: show.positions(sinusoidal(61, 31), title="Positions"),
    "one cell": lambda: show.weights(torch.ones(1, 1)),
    "thin": lambda: show.weights(torch.rand(2, 101)),
    "tall": lambda: show.weights(torch.rand(97, 3)),
    "long names": lambda: show.weights(
        torch.rand(13, 13), LONG, LONG, "A title as long as " + "it gets " * 9
    ),
    "many names": lambda: show.weights(
        torch.rand(211, 199), [f"q{i}" for i in range(211)], [f"key{i}" for i in range(199)]
    ),
    "heads": lambda: show.weights(torch.rand(5, 7, 11)),
    "short": lambda: show.masks({"causal": masks.causal(), "b": masks.causal(), "c": masks.causal()}, 5),
    "alignment": lambda: alignment(torch.rand(11, 31), NAMES[:31], NAMES[:11], title="eleven words"),
    "alignment of many": lambda: alignment(torch.rand(7, 61), NAMES[:61], NAMES[:7]),
    "mask": lambda: show.mask(masks.causal(), 5, 7),
    "mask items": lambda: show.mask(masks.padding([3, 5, 2]), 5, 7),
    "masks": lambda: show.masks({n: masks.window(1, 2) for n in ("one", "window & causal", "c", "d")}, 7),
    "scores": lambda: show.scores(
        torch.rand(5, 3), torch.rand(13, 3), {"dot": "dot", "additive": Additive(3, 3, 2)}, keys=LONG
    ),
    "sight": lambda: show.sight_map(seen(13, 13), LONG, LONG, title="A head"),
    "sight of 101": lambda: show.sight_map(seen(101, 101), list("abcdefghij") * 10 + ["z"]),
    "sight of 100,000": lambda: show.sight_map(long()),
    "window": lambda: show.sight_map(seen(53, 59), window=((50, 53), (7, 59))),
    "sight's heads": lambda: show.heads(seen(13, 13, heads=13), title="layers.0"),
    "named heads": lambda: show.heads(seen(13, 13, heads=13), LONG, LONG),
    "many named heads": lambda: show.heads(seen(5, 31, heads=19), LONG[:5], [*LONG, *LONG, *LONG[:5]]),
    "two heads": lambda: show.heads(seen(2, 31, heads=2)),
    "heads of 100,000": lambda: show.heads(long()),
    "entropy": lambda: show.entropy({f"encoder.layers.{i}.self_attn": seen(heads=12) for i in range(7)}),
    "entropy of many": lambda: show.entropy({f"layers.{i}": seen(3, 3, heads=67) for i in range(61)}),
    "entropy of one": lambda: show.entropy({"a name that goes on and on.attention": seen(heads=1)}),
    "received": lambda: show.received(seen(13, 13), LONG),
    "received by 101": lambda: show.received(seen(101, 101), list("abcdefghij") * 10 + ["zzzz"]),
    "received by 100,000": lambda: show.received(long(), title="layers.7"),
    "rows": lambda: show.rows(seen(13, 13), [1, 5, 7], LONG),
    "rows of 211": lambda: show.rows(seen(7, 211), [1, 5]),
}
SMALL = {  # where all names fit, if they are smaller
    "heads of 29 words": lambda: head_grid(torch.rand(4, 29, 29), NAMES[:29], NAMES[:29], title="layers.0"),
    "heads of 23 words": lambda: head_grid(torch.rand(13, 11, 23), NAMES[:11], NAMES[:23]),
}


SECOND = {"many named heads", "heads of 23 words"}  # of their kind, and the slowest to lay out


def each(*names):
    """A case for each figure."""
    return pytest.mark.parametrize(
        "name", [pytest.param(x, marks=[pytest.mark.long] if x in SECOND else []) for x in names]
    )


@functools.cache
def drawn(name):
    """A figure, made and laid out once for all that is asked of it."""
    before = dict(mpl.rcParams)
    figure = (FIGURES | SMALL)[name]()
    is_clean = dict(mpl.rcParams) == before
    figure.draw_without_rendering()
    return figure, is_clean


@each(*FIGURES, *SMALL)
def test_nothing_is_cut_off(name):
    figure, _ = drawn(name)
    box = figure.get_tightbbox()
    width, height = figure.get_size_inches()
    assert min(box.x0, box.y0) > -0.02
    assert box.x1 < width + 0.02
    assert box.y1 < height + 0.02


@each(*FIGURES, *SMALL)
def test_no_two_labels_overlap(name):
    figure, _ = drawn(name)
    for ax in figure.axes:
        rows = [t.get_window_extent() for t in ax.get_yticklabels() if t.get_text()]
        assert all(a.y0 > b.y1 or b.y0 > a.y1 for a, b in itertools.pairwise(rows))
        columns = [t for t in ax.get_xticklabels() if t.get_text()]
        anchors = [ax.transData.transform((t.get_position()[0], 0))[0] for t in columns]
        for left, right, a, b in zip(columns, columns[1:], anchors, anchors[1:], strict=False):
            if left.get_rotation() == 90:
                assert left.get_window_extent().x1 < right.get_window_extent().x0
            elif left.get_rotation():  # slanted lines of text stand apart by their height, seen at 45 degrees
                assert (b - a) * 0.707 > left.get_fontsize() * figure.dpi / 72 * 0.95
            else:
                assert left.get_window_extent().x1 < right.get_window_extent().x0


@each(*FIGURES)
def test_pyplot_and_settings_are_left_alone(name):
    figure, is_clean = drawn(name)
    assert isinstance(figure, Figure)
    assert is_clean
    pyplot = sys.modules.get("matplotlib.pyplot")  # something else may have imported it
    assert pyplot is None or not pyplot.get_fignums()


@each(*FIGURES)
def test_fonts_can_be_read(name):
    figure, _ = drawn(name)
    for text in figure.findobj(mpl.text.Text):
        assert not text.get_text() or text.get_fontsize() >= 10


def test_positions_shows_the_table():
    table = sinusoidal(11, 7)
    array = show.positions(table.numpy()).axes[0].images[0].get_array()  # an array will do
    np.testing.assert_array_equal(array, table.double().numpy())
    figure = show.positions(table)
    axes, bar = figure.axes
    np.testing.assert_array_equal(axes.images[0].get_array(), table.double().numpy())
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("Embedding dimension", "Position in the sequence")
    assert axes.images[0].get_cmap().name == "viridis"
    assert bar.get_ylabel() == "Value"


@pytest.mark.bad_input
@pytest.mark.parametrize("shape", [(0, 7), (5,), (2, 5, 7)])
def test_what_is_no_table(shape):
    with pytest.raises(ValueError, match=str(shape).replace("(", r"\(").replace(")", r"\)")):
        show.positions(torch.zeros(shape))
