import dataclasses

import numpy as np
import pytest
import torch

from sightline.show.caption_overlay import CaptionOverlay
from sightline.show.overlay import colours, overlay

ROWS, COLUMNS, HEADS = 3, 5, 2
WORDS = ["a", "<b>$x$</b>", "dog", "</script>"]


def record(words=WORDS, **more):
    torch.manual_seed(0)
    weights = torch.randn(len(words), HEADS, ROWS * COLUMNS).softmax(-1)
    image = torch.randint(0, 256, (3, 13, 17), dtype=torch.uint8)
    return CaptionOverlay(image=image, words=words, weights=weights, grid=(ROWS, COLUMNS), **more)


@pytest.mark.parametrize("head", [None, 0, 1])
def test_each_word_has_its_weights_over_the_picture(head):
    one = record()
    figure = overlay(one, head=head)
    assert [ax.get_title() for ax in figure.axes[:-1]] == ["", *WORDS]
    expected = one.weights.mean(1) if head is None else one.weights[:, head]
    for t, ax in enumerate(figure.axes[1:-1]):
        photo, seen = ax.images
        np.testing.assert_allclose(seen.get_array(), expected[t].view(ROWS, COLUMNS), rtol=1e-6)
        assert seen.get_clim() == (0, pytest.approx(max(float(expected.max()), 4 / 15)))
        assert photo.get_extent() == seen.get_extent()


def test_the_first_panel_is_the_picture_itself():
    one = record()
    shown = overlay(one).axes[0].images[0].get_array()
    assert np.array_equal(shown, one.image.permute(1, 2, 0))


def test_a_grey_image_is_drawn_in_three_equal_channels():
    grey = torch.randint(0, 256, (1, 13, 17), dtype=torch.uint8)
    one = record()
    shown = overlay(dataclasses.replace(one, image=grey)).axes[0].images[0].get_array()
    assert np.array_equal(shown, grey[0, :, :, None].expand(-1, -1, 3))


def test_a_note_stands_under_the_title():
    figure = overlay(record(note="The middle of it. " * 9))
    figure.draw_without_rendering()
    title, note = (text.get_window_extent() for text in figure.texts)
    assert title.y0 >= note.y1 - 1
    assert note.y0 > max(ax.get_window_extent().y1 for ax in figure.axes[:1])
    assert note.x1 < figure.bbox.x1


def test_the_cross_is_at_the_largest_weight():
    one = record(["dog"])
    x, y = overlay(one).axes[1].lines[0].get_xydata()[0]
    row, column = divmod(int(one.maps()[0].argmax()), COLUMNS)
    assert int((y + 0.5) * ROWS / 13) == row
    assert int((x + 0.5) * COLUMNS / 17) == column


def test_a_head_that_looks_everywhere_alike_stays_dim():
    even = CaptionOverlay(
        image=record().image, words=["a"], weights=torch.full((1, 2, 15), 1 / 15), grid=(3, 5)
    )
    assert even.brightest() == pytest.approx(4 / 15)
    sharp = CaptionOverlay(image=even.image, words=["a"], weights=torch.eye(15)[None, :2], grid=(3, 5))
    assert (sharp.brightest(0), sharp.brightest()) == (1.0, 0.5)


def test_the_scale_is_named_and_ends_at_the_largest_weight():
    one = record()
    bar = overlay(one).axes[-1]
    assert bar.get_ylabel() == "weight on a patch"
    assert bar.get_ylim() == (0, pytest.approx(max(float(one.maps().max()), 4 / 15)))


def test_a_box_is_drawn_for_its_word_only():
    figure = overlay(record(boxes={2: (1.0, 2.0, 7.0, 9.0)}))
    assert [len(ax.patches) for ax in figure.axes[1:-1]] == [0, 0, 1, 0]
    assert figure.axes[3].patches[0].get_bbox().bounds == (0.5, 1.5, 6, 7)


def test_no_weight_lets_the_picture_through():
    table = colours()(np.arange(256))
    assert table[0, 3] == 0
    assert (np.diff(table[:, 3]) > 0).all()


@pytest.mark.parametrize("n", [0, 1, 5, 6, 23])
def test_any_number_of_words(n):
    figure = overlay(record(["word"] * n))
    figure.draw_without_rendering()
    boxes = [ax.get_position() for ax in figure.axes]
    assert len(boxes) == n + 2
    assert all(0 <= b.x0 < b.x1 <= 1 and 0 <= b.y0 < b.y1 <= 1 for b in boxes)
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_which_word_is_shown_first():
    assert record(boxes={3: (0.0, 0.0, 1.0, 1.0), 2: (0.0, 0.0, 1.0, 1.0)}).default_word == 2
    assert record([]).default_word is None
    assert record(["a", "on", "a"]).default_word == 1
    one = record(["a", "grey", "of", "horse"])
    peaks = one.maps().flatten(1).amax(-1)
    assert one.default_word == (1 if peaks[1] >= peaks[3] else 3)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"words": ["a"]}, "got 1 words and weights for 4"),
        ({"grid": (4, 5)}, r"P = 4 x 5 = 20 patches, got shape \(4, 2, 15\)"),
        ({"image": torch.zeros(3, 4, 4)}, "got shape .3, 4, 4. of torch.float32"),
        ({"image": torch.zeros(2, 4, 4, dtype=torch.uint8)}, "got shape .2, 4, 4."),
        ({"weights": torch.zeros(4, 15)}, r"got shape \(4, 15\)"),
    ],
)
def test_what_does_not_fit(change, words):
    one = record()
    fields = {"image": one.image, "words": WORDS, "weights": one.weights, "grid": one.grid}
    with pytest.raises(ValueError, match=words):
        CaptionOverlay(**(fields | change))


@pytest.mark.bad_input
def test_a_head_that_is_not_there():
    with pytest.raises(ValueError, match="between 0 and 1, the heads that looked, got 2"):
        overlay(record(), head=2)
