"""The drawn beam search: every word that was kept, with its probability, and the winner marked."""

import math

import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg

from sightline.decode.beam import beam
from sightline.decode.trace import BeamTrace
from sightline.show.beam_tree import beam_tree
from sightline.tasks.attention import Grid
from tests.decode.toys import Toy

WORDS = [f"w{i}" for i in range(7)]


def searched(**settings):
    model, trace = Toy(7, end=-0.3), BeamTrace()
    found = beam(model, model.start(1, look=True), width=3, max_length=9, trace=trace, **settings)
    for i, step in enumerate(trace.steps):
        if step.weights is None:  # the toy knows nothing before its first step
            object.__setattr__(trace.steps[i], "weights", torch.zeros(1, 2))
    return trace, found


def test_every_word_stands_there_with_its_probability():
    trace, found = searched()
    figure = beam_tree(trace, WORDS.__getitem__, title="a toy")
    texts = [text.get_text() for text in figure.axes[0].texts]
    for step in trace.steps:
        for token, log_prob in zip(step.tokens, step.log_probs, strict=True):
            assert f"w{token}\n{math.exp(log_prob):.2f}" in texts
    assert figure.axes[0].get_title() == "a toy"
    ended = [text for text in figure.axes[0].texts if text.get_text().startswith("end")]
    assert len(ended) == sum(len(step.ended) for step in trace.steps)
    (won,) = [text.get_text() for text in ended if text.get_fontweight() == "bold"]
    assert won == f"end {found.scores[0, 0].item():.2f}"


def test_the_winner_is_what_the_search_found():
    trace, found = searched()
    axes = beam_tree(trace, WORDS.__getitem__).axes[0]
    marked = [t for t in axes.texts if t.get_bbox_patch() and t.get_bbox_patch().get_facecolor()[0] < 0.95]
    marked.sort(key=lambda text: text.get_position()[0])
    assert [text.get_text().split("\n")[0] for text in marked] == [f"w{i}" for i in found.lists()[0][0]]


def test_where_the_winner_looked_stands_below():
    trace, found = searched()
    figure = beam_tree(trace, WORDS.__getitem__, ["left", "right"])
    shown = np.asarray(figure.axes[1].images[0].get_array().filled(np.nan))
    assert shown.shape == (2, len(trace.steps))
    steps = found.lengths[0, 0].item() + 1
    weights = found.attention_weights[0, 0, :, 0].T  # (S, L)
    np.testing.assert_allclose(shown[:, 1 : steps - 1], weights[:, 1 : steps - 1], rtol=1e-5)
    assert [label.get_text() for label in figure.axes[1].get_yticklabels()] == ["left", "right"]


def test_where_the_winner_looked_in_an_image_stands_below():
    trace, found = searched()
    grid = Grid(rows=1, columns=2, image=torch.zeros(3, 8, 16, dtype=torch.uint8))
    figure = beam_tree(trace, WORDS.__getitem__, grid)
    shown = [image for image in figure.axes[1].images if image.get_array().ndim == 2]
    steps = found.lengths[0, 0].item() + 1  # and before its end
    assert [sum(image.get_extent()[:2]) / 2 for image in shown] == pytest.approx(range(steps))
    weights = found.attention_weights[0, 0, :, 0]  # (L, S)
    for t in range(1, steps - 1):
        np.testing.assert_allclose(np.asarray(shown[t].get_array())[0], weights[t], rtol=1e-5)


def looked_at(trace, t, row):
    """By hand: the weights of the beginning that a word continues."""
    step = trace.steps[t]
    return step.weights[step.parents[row]]


def test_every_word_says_what_it_looked_at_most():
    trace, _ = searched()
    for step in trace.steps:  # another key for each beginning
        step.weights.copy_(torch.eye(2)[torch.arange(len(step.weights)) % 2])
    texts = [text.get_text() for text in beam_tree(trace, WORDS.__getitem__, ["left", "right"]).axes[0].texts]
    for t, step in enumerate(trace.steps):
        for row, (token, log_prob) in enumerate(zip(step.tokens, step.log_probs, strict=True)):
            name = ["left", "right"][int(looked_at(trace, t, row).argmax())]
            assert f"w{token}\n{math.exp(log_prob):.2f}\nat {name}" in texts
    assert any(text.endswith("at right") for text in texts)


def test_every_word_has_the_image_where_it_looked():
    trace, _ = searched()
    for step in trace.steps:
        step.weights.copy_(torch.eye(2)[torch.arange(len(step.weights)) % 2])
    grid = Grid(rows=1, columns=2, image=torch.zeros(3, 8, 16, dtype=torch.uint8))
    axes = beam_tree(trace, WORDS.__getitem__, grid).axes[0]
    shown = {box.xy: box.offsetbox.get_data() for box in axes.artists}
    assert shown.keys() == {(t, row) for t, step in enumerate(trace.steps) for row in range(len(step.tokens))}
    for (t, row), image in shown.items():
        assert image.shape == (8, 16, 3)
        left, right = image[:, 0].sum(), image[:, -1].sum()  # a black image: what glows was looked at
        assert (right > left) == bool(looked_at(trace, t, row).argmax())


@pytest.mark.bad_input
def test_sentences_for_what_is_wrong():
    with pytest.raises(ValueError, match=r"must have been traced.*trace=trace"):
        beam_tree(BeamTrace(), WORDS.__getitem__)
    with pytest.raises(ValueError, match="a name for each of the 2 keys, got 3 names"):
        beam_tree(searched()[0], WORDS.__getitem__, ["a", "b", "c"])


@pytest.mark.parametrize("keys", [None, ["left", "right"]])
def test_ends_lie_on_no_box_and_names_of_keys_beside_their_rows(keys):
    trace, _ = searched()
    figure = beam_tree(trace, WORDS.__getitem__, keys)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # which lays it out
    tree, renderer = figure.axes[0], canvas.get_renderer()
    ends = [text for text in tree.texts if text.get_text().startswith("end")]
    boxes = [text.get_bbox_patch().get_window_extent(renderer) for text in tree.texts if text not in ends]
    assert ends
    for text in ends:
        extent = text.get_window_extent(renderer)
        assert not any(extent.overlaps(box) for box in boxes), text.get_text()
    if keys:
        below = figure.axes[1]
        left = below.transData.transform((-0.5, 0))[0]
        for label in below.get_yticklabels():
            assert 0 < left - label.get_window_extent(renderer).x1 < 20 * figure.dpi / 72
