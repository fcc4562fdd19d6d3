"""Figures of a Vision Transformer: what they show, where, and on one scale."""

import dataclasses

import pytest
import torch

from sightline.tasks.classify.attention import Glance
from sightline.show.vit import class_heads, confused, distances, layer_mass, rolled

L, H, ROWS, COLUMNS = 7, 3, 2, 5


def a_glance(b=2):
    generator = torch.Generator().manual_seed(0)

    def shares(*shape):
        return torch.rand(*shape, generator=generator).softmax(-1)

    return Glance(
        logits=torch.zeros(b, 4),
        rollout=shares(b, ROWS * COLUMNS),
        heads=shares(b, L, H, ROWS * COLUMNS),
        received=shares(b, L, ROWS * COLUMNS),
        distance=torch.rand(L, H, generator=generator),
        grid=(ROWS, COLUMNS),
        with_token=True,
    )


def titles(figure):
    return [ax.get_title() for ax in figure.axes if ax.get_title()]


@pytest.mark.parametrize("channels", [1, 3])
def test_rollout_lies_over_the_image(channels):
    glance = a_glance()
    figure = rolled(torch.zeros(channels, 8, 20, dtype=torch.uint8), glance, item=1, title="cat")
    assert titles(figure) == ["image", "rollout"]
    shown = figure.axes[1].images[-1].get_array()
    torch.testing.assert_close(torch.tensor(shown), glance.rollout[1].view(ROWS, COLUMNS).double())
    assert figure.axes[1].images[-1].get_interpolation() == "nearest"  # few pixels: patches as they are
    figure.draw_without_rendering()


def test_heads_are_rows_of_layers_on_one_scale():
    glance = a_glance()
    figure = class_heads(torch.zeros(1, 8, 20, dtype=torch.uint8), glance)
    assert titles(figure)[:4] == ["layer 0 head 0", "layer 0 head 1", "layer 0 head 2", "layer 1 head 0"]
    assert len(titles(figure)) == L * H
    limits = {ax.images[-1].get_clim() for ax in figure.axes[: L * H]}
    assert limits == {(0, float(glance.heads[0].max()))}
    assert (
        titles(class_heads(torch.zeros(1, 8, 20, dtype=torch.uint8), glance, layers=[5]))[0]
        == "layer 5 head 0"
    )


def test_of_too_many_heads_the_last_layers_are_shown():
    many = dataclasses.replace(
        a_glance(), heads=torch.rand(2, L, 50, ROWS * COLUMNS), distance=torch.rand(L, 50)
    )
    assert titles(class_heads(torch.zeros(1, 8, 20, dtype=torch.uint8), many))[::50] == [
        "layer 5 head 0",
        "layer 6 head 0",
    ]


def test_mass_has_a_panel_for_each_layer():
    figure = layer_mass(torch.zeros(3, 80, 200, dtype=torch.uint8), a_glance())
    assert titles(figure) == [f"layer {i}" for i in range(L)]
    assert figure.axes[0].images[-1].get_interpolation() == "bicubic"


def test_distances_are_dots_by_depth():
    values = torch.rand(L, H)
    ax = distances(values).axes[0]
    assert len(ax.lines) == H + 1
    assert ax.lines[1].get_ydata().tolist() == pytest.approx(values[:, 1].tolist())
    assert ax.lines[-1].get_ydata().tolist() == pytest.approx(values.mean(1).tolist())


def test_confusion_writes_counts_and_colours_shares():
    figure = confused(torch.tensor([[8, 2], [0, 5]]), ["cat", "dog"], title="who")
    ax = figure.axes[0]
    assert sorted(text.get_text() for text in ax.texts) == ["2", "5", "8"]
    assert ax.images[0].get_array().tolist() == [[0.8, 0.2], [0, 1]]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["cat", "dog"]
    many = confused(torch.eye(41, dtype=torch.long), [str(i) for i in range(41)])
    assert not many.axes[0].texts


@pytest.mark.bad_input
def test_a_layer_that_is_not_there():
    with pytest.raises(ValueError, match=r"layer must be in 0\.\.6, got 9"):
        class_heads(torch.zeros(1, 8, 20, dtype=torch.uint8), a_glance(), layers=[9])
