"""Figures of a Vision Transformer: what they show, where, and on one scale."""

import dataclasses

import pytest
import torch

from sightline.show.vit import confusion_matrix, distances, head_overlays, received_by_layer, rollout_overlay
from tests.show.predictions import COLUMNS, ROWS, Grid, classified, translation

L, H = 7, 3


def attention(heads=H, image=None):
    image = torch.zeros(1, 10, 21, dtype=torch.uint8) if image is None else image
    weights = torch.rand(L, heads, 1, ROWS * COLUMNS).softmax(-1)
    return dataclasses.replace(classified().attention, weights=weights, keys=Grid(ROWS, COLUMNS, image))


def titles(figure):
    return [ax.get_title() for ax in figure.axes if ax.get_title()]


@pytest.mark.parametrize("channels", [1, 3])
def test_rollout_lies_over_the_image(channels):
    record = attention(image=torch.zeros(channels, 10, 21, dtype=torch.uint8))
    figure = rollout_overlay(record, title="cat " * 30, note="a crop")
    assert titles(figure) == ["image", "rollout through 2 layers"]
    shown = figure.axes[1].images[-1].get_array()
    torch.testing.assert_close(torch.tensor(shown), record.summary.view(ROWS, COLUMNS).double())
    assert figure.axes[1].images[-1].get_interpolation() == "nearest"  # few pixels: patches as squares
    figure.draw_without_rendering()
    title, note = (text.get_window_extent() for text in figure.texts)
    assert figure.bbox.y1 > title.y1 > title.y0 >= note.y1 - 1
    assert note.y0 > max(ax.title.get_window_extent().y1 for ax in figure.axes[:2])


def test_heads_are_rows_of_layers_on_one_scale():
    record = attention()
    figure = head_overlays(record)
    assert titles(figure)[:4] == ["layer 0 head 0", "layer 0 head 1", "layer 0 head 2", "layer 1 head 0"]
    assert len(titles(figure)) == L * H
    limits = {ax.images[-1].get_clim() for ax in figure.axes[: L * H]}
    assert limits == {(0, float(record.weights.max()))}
    assert titles(head_overlays(record, layers=[5]))[0] == "layer 5 head 0"


def test_of_too_many_heads_the_last_layers_are_shown():
    assert titles(head_overlays(attention(heads=50)))[::50] == ["layer 5 head 0", "layer 6 head 0"]


def test_received_has_a_panel_for_each_layer():
    received = torch.rand(L, ROWS * COLUMNS).softmax(-1)
    figure = received_by_layer(torch.zeros(3, 80, 200, dtype=torch.uint8), received, (ROWS, COLUMNS))
    assert titles(figure) == [f"layer {i}" for i in range(L)]
    assert figure.axes[0].images[-1].get_interpolation() == "bicubic"
    shown = figure.axes[L - 1].images[-1].get_array()
    torch.testing.assert_close(torch.tensor(shown), received[-1].view(ROWS, COLUMNS).double())


def test_distances_are_dots_by_depth():
    values = torch.rand(L, H)
    ax = distances(values).axes[0]
    assert len(ax.lines) == H + 1
    assert ax.lines[1].get_ydata().tolist() == pytest.approx(values[:, 1].tolist())
    assert ax.lines[-1].get_ydata().tolist() == pytest.approx(values.mean(1).tolist())


def test_confusion_writes_counts_and_colours_shares():
    figure = confusion_matrix(torch.tensor([[8, 2], [0, 5]]), ["cat", "dog"], title="who")
    ax = figure.axes[0]
    assert sorted(text.get_text() for text in ax.texts) == ["2", "5", "8"]
    assert ax.images[0].get_array().tolist() == [[0.8, 0.2], [0, 1]]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["cat", "dog"]
    many = confusion_matrix(torch.eye(41, dtype=torch.long), [str(i) for i in range(41)])
    assert not many.axes[0].texts


@pytest.mark.bad_input
def test_what_can_not_be_drawn():
    with pytest.raises(ValueError, match=r"layer must be in 0\.\.6, got 9"):
        head_overlays(attention(), layers=[9])
    with pytest.raises(ValueError, match="attention over an image, got 3 words as keys"):
        rollout_overlay(translation().attention)
