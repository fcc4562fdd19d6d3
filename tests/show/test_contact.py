import pytest
import torch

from sightline.show.contact import contact_sheet


def images(n):
    return [torch.full((3, 7, 11), 20 * i, dtype=torch.uint8) for i in range(n)]


def test_each_image_has_its_label_and_caption():
    figure = contact_sheet(
        images(5), [f"caption {i}" for i in range(5)], labels=list("abcde"), columns=3, title="set"
    )
    assert [ax.get_title(loc="left") for ax in figure.axes] == list("abcde")
    assert [ax.texts[0].get_text() for ax in figure.axes] == [f"caption {i}" for i in range(5)]
    assert [ax.images[0].get_array()[0, 0, 0] for ax in figure.axes] == [0, 20, 40, 60, 80]
    assert figure.texts[0].get_text() == "set"


def test_they_stand_in_rows_and_never_overlap():
    figure = contact_sheet(images(5), [""] * 5, columns=3)
    boxes = [ax.get_position() for ax in figure.axes]
    assert [round(box.x0, 3) for box in boxes[:2]] == [round(box.x0, 3) for box in boxes[3:]]
    assert boxes[0].x0 < boxes[0].x1 < boxes[1].x0 < boxes[1].x1 < boxes[2].x0
    assert boxes[0].y0 > boxes[3].y1
    assert all(box.x0 >= 0 and box.x1 <= 1 and box.y0 >= 0 and box.y1 <= 1 for box in boxes)


def test_long_captions_are_cut_and_dollars_are_no_formula():
    (ax,) = contact_sheet(images(1), ["a very long caption " * 30]).axes
    assert ax.texts[0].get_text().count("\n") == 2
    assert ax.texts[0].get_text().endswith(" …")
    contact_sheet(images(1), ["$10 and ^$"], labels=["x_$1$"]).canvas.draw()


def test_a_broken_image_is_an_empty_tile():
    first, second = contact_sheet([None, *images(1)], ["broken", "fine"]).axes
    assert not first.images
    assert len(second.images) == 1


@pytest.mark.bad_input
def test_sheets_that_are_none():
    with pytest.raises(ValueError, match="got 0 images and 0 captions"):
        contact_sheet([], [])
    with pytest.raises(ValueError, match="got 2 images and 1 captions"):
        contact_sheet(images(2), ["one"])
    with pytest.raises(ValueError, match="at least 1 column, got 0"):
        contact_sheet(images(1), ["one"], columns=0)
