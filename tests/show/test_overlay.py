import base64
import json
import re

import numpy as np
import pytest
import torch

from sightline.show.document import document, json_tag
from sightline.show.gallery import gallery
from sightline.show.overlay import colours, overlay
from sightline.show.overlay_page import page_parts, told_tag
from sightline.show.told import Told

ROWS, COLUMNS, HEADS = 3, 5, 2
WORDS = ["a", "<b>$x$</b>", "dog", "</script>"]


def telling(words=WORDS, **more):
    torch.manual_seed(0)
    weights = torch.randn(len(words), HEADS, ROWS * COLUMNS).softmax(-1)
    image = torch.randint(0, 256, (3, 13, 17), dtype=torch.uint8)
    return Told(image=image, words=words, weights=weights, grid=(ROWS, COLUMNS), **more)


def data_of(page, identity="t"):
    found = re.search(rf'<script type="application/json" id="{identity}">(.*?)</script>', page)
    return json.loads(found.group(1))


@pytest.mark.parametrize("head", [None, 0, 1])
def test_each_word_has_its_weights_over_the_picture(head):
    told = telling()
    figure = overlay(told, head=head)
    assert [ax.get_title() for ax in figure.axes[:-1]] == ["", *WORDS]
    expected = told.weights.mean(1) if head is None else told.weights[:, head]
    for t, ax in enumerate(figure.axes[1:-1]):
        photo, seen = ax.images
        np.testing.assert_allclose(seen.get_array(), expected[t].view(ROWS, COLUMNS), rtol=1e-6)
        assert seen.get_clim() == (0, pytest.approx(max(float(expected.max()), 4 / 15)))
        assert photo.get_extent() == seen.get_extent()


def test_the_first_panel_is_the_picture_itself():
    told = telling()
    shown = overlay(told).axes[0].images[0].get_array()
    assert np.array_equal(shown, told.image.permute(1, 2, 0))


def test_the_cross_is_at_the_largest_weight():
    told = telling(["dog"])
    x, y = overlay(told).axes[1].lines[0].get_xydata()[0]
    row, column = divmod(int(told.maps()[0].argmax()), COLUMNS)
    assert int((y + 0.5) * ROWS / 13) == row
    assert int((x + 0.5) * COLUMNS / 17) == column


def test_a_head_that_looks_everywhere_alike_stays_dim():
    even = Told(image=telling().image, words=["a"], weights=torch.full((1, 2, 15), 1 / 15), grid=(3, 5))
    assert even.brightest() == pytest.approx(4 / 15)
    sharp = Told(image=even.image, words=["a"], weights=torch.eye(15)[None, :2], grid=(3, 5))
    assert (sharp.brightest(0), sharp.brightest()) == (1.0, 0.5)
    assert data_of(told_tag(even, "t"))["least"] == pytest.approx(4 / 15)


def test_the_scale_is_named_and_ends_at_the_largest_weight():
    told = telling()
    bar = overlay(told).axes[-1]
    assert bar.get_ylabel() == "weight on a patch"
    assert bar.get_ylim() == (0, pytest.approx(max(float(told.maps().max()), 4 / 15)))


def test_a_box_is_drawn_for_its_word_only():
    figure = overlay(telling(boxes={2: (1.0, 2.0, 7.0, 9.0)}))
    assert [len(ax.patches) for ax in figure.axes[1:-1]] == [0, 0, 1, 0]
    assert figure.axes[3].patches[0].get_bbox().bounds == (0.5, 1.5, 6, 7)


def test_no_weight_lets_the_picture_through():
    table = colours()(np.arange(256))
    assert table[0, 3] == 0
    assert (np.diff(table[:, 3]) > 0).all()


@pytest.mark.parametrize("n", [0, 1, 5, 6, 23])
def test_any_number_of_words(n):
    figure = overlay(telling(["word"] * n))
    figure.canvas.draw()
    boxes = [ax.get_position() for ax in figure.axes]
    assert len(boxes) == n + 2
    assert all(0 <= b.x0 < b.x1 <= 1 and 0 <= b.y0 < b.y1 <= 1 for b in boxes)
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_the_page_holds_the_same_weights():
    told = telling(boxes={2: (0.0, 0.0, 8.5, 6.5)})
    data = data_of(told_tag(told, "t", first=2))
    packed = np.frombuffer(base64.b64decode(data["weights"]), dtype="<u2").astype(float) / 65535
    np.testing.assert_allclose(packed * data["largest"], told.weights.flatten(), atol=1e-5)
    assert data["words"] == WORDS
    assert (data["heads"], data["rows"], data["columns"], data["first"]) == (HEADS, ROWS, COLUMNS, 2)
    assert data["boxes"] == {"2": [0, 0, 50, 50]}


def test_text_can_not_become_markup():
    told = telling(name="<i>", references=["<u> & </script>"], score="<s>")
    page = gallery(
        "<h3>", {"<h4>": [told]}, introduction="<p1>", scores={"<t>": 1.0}, signatures={"<t>": "<c>"}
    )
    for tag in ("<b>", "<i>", "<u>", "<s>", "<h3>", "<h4>", "<p1>", "<t>", "<c>"):
        assert tag not in page
    assert '<div class="soft">references</div>' in page  # not all of them were written by people
    assert page.count("</script>") == 2  # the data's and the module's
    assert data_of(page, "told0")["words"] == WORDS


def test_the_page_is_alone():
    page = document("x", told_tag(telling(), "t"), **page_parts())
    assert not re.search(r"(src|href)=\"(?!data:)|<link|@import|https?://", page)
    assert "innerHTML" not in page
    assert page.count('<script type="module">') == 1


def test_json_survives():
    value = {"a": ["</script><!--", "\u2028 & é", 1.5, None]}
    tag = json_tag(value, "t")
    assert data_of(tag) == value
    assert not set("<>&\u2028") & set(
        tag.removeprefix('<script type="application/json" id="t">')[: -len("</script>")]
    )


def test_figures_of_a_page_have_names_of_their_own():
    page = gallery("x", {"best": [telling(), telling()], "worst": [telling()]})
    names = re.findall(r'data-told="([^"]+)"', page)
    assert names == re.findall(r'json" id="([^"]+)"', page)
    assert len(set(names)) == 3


def test_which_word_is_shown_first():
    assert telling(boxes={3: (0.0, 0.0, 1.0, 1.0), 2: (0.0, 0.0, 1.0, 1.0)}).telling_word == 2
    assert telling([]).telling_word is None
    assert telling(["a", "on", "a"]).telling_word == 1
    told = telling(["a", "grey", "of", "horse"])
    peaks = told.maps().flatten(1).amax(-1)
    assert told.telling_word == (1 if peaks[1] >= peaks[3] else 3)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"words": ["a"]}, "got 1 words and weights for 4"),
        ({"grid": (4, 5)}, r"P = 4 x 5 = 20 patches, got shape \(4, 2, 15\)"),
        ({"image": torch.zeros(3, 4, 4)}, "got shape .3, 4, 4. of torch.float32"),
        ({"image": torch.zeros(1, 4, 4, dtype=torch.uint8)}, "got shape .1, 4, 4."),
        ({"weights": torch.zeros(4, 15)}, r"got shape \(4, 15\)"),
    ],
)
def test_what_does_not_fit(change, words):
    told = telling()
    fields = {"image": told.image, "words": WORDS, "weights": told.weights, "grid": told.grid}
    with pytest.raises(ValueError, match=words):
        Told(**(fields | change))


@pytest.mark.bad_input
def test_a_head_that_is_not_there():
    with pytest.raises(ValueError, match="between 0 and 1, the heads that looked, got 2"):
        overlay(telling(), head=2)
