"""The figure of a prediction is chosen by what its keys are."""

import dataclasses

import numpy as np
import pytest
import torch
from PIL import Image

from sightline import show
from sightline.show.records import crop_note
from tests.show.predictions import (
    COLUMNS,
    ROWS,
    H,
    Prediction,
    caption,
    classified,
    translation,
)


def titles(figure):
    return [ax.get_title() for ax in figure.axes if ax.get_title()]


def texts(figure):
    return [text.get_text() for text in figure.texts if text.get_text()]


def maps(figure):
    return [np.asarray(ax.images[-1].get_array()) for ax in figure.axes if len(ax.images) > 1]


def drawn(ax):
    return torch.tensor(np.asarray(ax.images[0].get_array())).float()


def test_a_grid_and_words_give_an_overlay_of_the_summary():
    p = caption()
    figure = show.prediction(p)
    assert titles(figure) == ["a", "small", "dog"]
    assert texts(figure) == ["a small dog"]
    expected = p.attention.weights.mean((0, 1)).view(3, ROWS, COLUMNS)
    np.testing.assert_allclose(np.stack(maps(figure)), expected, rtol=1e-6)


def test_the_summary_is_shown_and_not_the_mean_of_heads():
    p = caption()
    turned = dataclasses.replace(p.attention, summary=p.attention.summary.flip(-1))
    shown = maps(show.prediction(dataclasses.replace(p, attention=turned)))
    np.testing.assert_allclose(np.stack(shown), turned.summary.view(3, ROWS, COLUMNS), rtol=1e-6)


@pytest.mark.parametrize(
    ("layer", "head", "of"),
    [(1, None, ([1], slice(None))), (0, 2, ([0], [2])), (None, 1, (slice(None), [1]))],
)
def test_a_layer_and_a_head_of_an_overlay(layer, head, of):
    p = caption()
    figure = show.prediction(p, layer=layer, head=head)
    expected = p.attention.weights[of[0]][:, of[1]].mean((0, 1)).view(3, ROWS, COLUMNS)
    np.testing.assert_allclose(np.stack(maps(figure)), expected, rtol=1e-6)
    assert texts(figure) == [f"a small dog: layer {layer}, head {head}"]
    assert texts(show.prediction(p, layer=layer, head=head, title="T")) == ["T"]


@pytest.mark.parametrize("channels", [1, 3])
def test_a_class_is_the_image_beside_its_summary(channels):
    p = classified(channels=channels)
    figure = show.prediction(p)
    assert titles(figure) == ["image", "rollout through 2 layers"]
    np.testing.assert_allclose(maps(figure)[0], p.attention.summary.view(ROWS, COLUMNS), rtol=1e-6)
    assert texts(figure) == ["cat"]


def test_a_layer_of_a_class_has_a_panel_per_head():
    p = classified()
    figure = show.prediction(p, layer=1)
    assert titles(figure) == [f"layer 1 head {i}" for i in range(H)]
    np.testing.assert_allclose(
        np.stack(maps(figure)), p.attention.weights[1, :, 0].view(H, ROWS, COLUMNS), rtol=1e-6
    )
    one = show.prediction(p, layer=1, head=2)
    assert titles(one) == ["image", "layer 1, head 2"]
    np.testing.assert_allclose(maps(one)[0], p.attention.weights[1, 2, 0].view(ROWS, COLUMNS), rtol=1e-6)


def test_words_give_an_alignment():
    p = translation()
    figure = show.prediction(p)
    ax = figure.axes[0]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["ein", "Hund", "bellt"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "dog", "bar", "ks"]
    torch.testing.assert_close(drawn(ax), p.attention.summary)
    one = show.prediction(p, layer=0, head=1)
    torch.testing.assert_close(drawn(one.axes[0]), p.attention.weights[0, 1])
    assert texts(one) == ["a dog barks: layer 0, head 1"]


def test_words_and_a_layer_give_a_panel_per_head():
    p = translation()
    figure = show.prediction(p, layer=1)
    assert titles(figure) == [f"head {i}" for i in range(H)]
    assert figure.get_suptitle() == "a dog barks: the heads of layer 1"
    for head, ax in enumerate(figure.axes[:H]):
        torch.testing.assert_close(drawn(ax), p.attention.weights[1, head])


def write(path, width, height, orientation=1):
    image = Image.new("RGB", (width, height))
    exif = image.getexif()
    exif[0x0112] = orientation
    image.save(path, exif=exif)
    return path


@pytest.mark.parametrize(
    ("sides", "orientation", "words"),
    [
        ((50, 30), 1, "the middle 30 x 30 of 50 x 30 pixels"),
        ((50, 30), 6, "the middle 30 x 30 of 30 x 50 pixels"),
        ((30, 30), 1, ""),
        ((31, 31), 6, ""),
    ],
)
def test_a_crop_is_called_one(tmp_path, sides, orientation, words):
    path = write(tmp_path / "a.png", *sides, orientation)
    crop = torch.zeros(3, 8, 8, dtype=torch.uint8)
    note = crop_note(path, crop)
    assert (words in note) if words else (note == "")
    for p in (caption(source=str(path), image=crop), classified(source=path)):
        shown = texts(show.prediction(dataclasses.replace(p, attention=with_image(p.attention, crop))))
        assert any("as the model sees it" in text for text in shown) == bool(words)
    figure = show.prediction(caption(source=path, image=crop))
    figure.draw_without_rendering()
    assert all(t.get_window_extent().x1 < figure.bbox.x1 for t in figure.texts)


def with_image(attention, image):
    return dataclasses.replace(attention, keys=dataclasses.replace(attention.keys, image=image))


@pytest.mark.parametrize("source", ["a sentence", "gone.jpg", 7, None, b"x", "\0"])
def test_what_is_no_file_has_no_note(source):
    assert crop_note(source, torch.zeros(3, 8, 9, dtype=torch.uint8)) == ""


def test_overlays_hold_all_heads():
    p = caption(references=("a dog",), metrics={"cider": 0.25}, boxes={2: (0.0, 1.0, 2.0, 3.0)})
    (record,) = show.overlays([p])
    assert (record.name, record.score, record.references) == ("dog.jpg", "cider 0.250", ("a dog",))
    assert record.boxes == {2: (0.0, 1.0, 2.0, 3.0)}
    for head in range(2 * H):
        expected = p.attention.weights[head // H, head % H].view(3, ROWS, COLUMNS)
        torch.testing.assert_close(record.maps(head), expected)


@pytest.mark.bad_input
def test_what_can_not_be_drawn():
    with pytest.raises(
        ValueError, match=r"for 'a.jpg' has no attention to draw; predict with attention=True"
    ):
        show.prediction(Prediction("a.jpg", "a dog"))
    with pytest.raises(ValueError, match="the output for 'ein Hund bellt' is empty"):
        show.prediction(translation(written=()))
    with pytest.raises(ValueError, match="got 3 words as keys; draw it with"):
        show.overlays([translation()])
