"""Pages hold all they show, load nothing, and take any text as text."""

import base64
import dataclasses
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import sightline as sl
from sightline import show
from sightline.look.heads import head_table, sharpest
from sightline.show import pages
from sightline.show.vit import confusion_matrix
from tests.show.predictions import (
    COLUMNS,
    HOSTILE,
    ROWS,
    Alternative,
    H,
    L,
    Prediction,
    caption,
    classified,
    translation,
)
from tests.show.sights import seen

READ, WRITTEN = ("▁ein", "▁Hund", "▁bellt"), ("▁a", "▁dog", "▁bar", "ks")


class Elements(HTMLParser):
    """The tags of a page with their attributes, and the text of its scripts and styles."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.tags, self.raw = [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        if self.cdata_elem:
            self.raw.append((self.cdata_elem, data))

    def ids(self):
        return [attrs["id"] for _, attrs in self.tags if "id" in attrs]


def data_of(page, identity="attention0"):
    found = re.search(rf'<script type="application/json" id="{identity}">(.*?)</script>', page)
    return json.loads(found.group(1))


def unpacked(data):
    levels = np.frombuffer(base64.b64decode(data["packed"]), dtype="<u2").astype(float) / 65535
    return levels * data["largest"]


def hostile(p):
    return dataclasses.replace(
        p,
        text=HOSTILE,
        references=(HOSTILE, "fine"),
        metrics={HOSTILE: 0.5},
        alternatives=(Alternative(HOSTILE, 1.0), Alternative("b", 0.5)),
    )


def a_report(**changes):
    p = caption(references=("a dog",), metrics={"cider": 0.5})
    fields = {
        "run": Path("runs/my demo"),
        "facts": "It learned.",
        "metrics": {"loss": [(1.0, 3.0), (2.0, 2.0)]},
        "scores": {"bleu4": 0.5, "cider": 1.25},
        "about": "7 further scenes",
        "signatures": {"bleu4": "v1", "cider": "v1"},
        "shown": [p, p],
        "worst": [p],
        "examples": [Path("runs/my demo/examples/0.png")],
    }
    return pages.DemoReport(**(fields | changes))


def heads_page(text="a b", **more):
    sights = {"layers.0": seen(5, 5), "layers.1": seen(5, 5)}
    table = head_table(sights)
    return pages.heads_page(
        HOSTILE if text == HOSTILE else "tiny",
        text=text,
        seen=sights,
        tokens=dict.fromkeys(sights, (list("abcde"), list("abcde"))),
        heads=table,
        marked=sharpest(table, 2),
        **more,
    )


FIGURES = {HOSTILE: (show.weights(torch.eye(3)), HOSTILE)}
PAGES = {
    "caption": lambda: pages.prediction_page(
        hostile(caption((HOSTILE, "dog"), source=f"x/{HOSTILE.replace('/', '')}")),
        title=HOSTILE,
        about=HOSTILE,
    ),
    "translation": lambda: pages.prediction_page(
        hostile(translation((HOSTILE, "b"), (HOSTILE, "c", "d"))), title=HOSTILE, figures=FIGURES
    ),
    "class": lambda: pages.prediction_page(hostile(classified(HOSTILE)), title=HOSTILE),
    "text": lambda: pages.prediction_page(hostile(Prediction(HOSTILE, "")), title=HOSTILE),
    "results": lambda: pages.results_page(
        HOSTILE,
        about=HOSTILE,
        scores={HOSTILE: 1.0},
        signatures={HOSTILE: HOSTILE},
        curves=show.curves({"loss": [(1.0, 2.0), (2.0, 1.0)]}),
        sections={HOSTILE: [hostile(caption()), hostile(translation())], "b": [hostile(classified())]},
        figures=FIGURES,
    ),
    "report": lambda: pages.report_page(
        a_report(facts=HOSTILE, about=HOSTILE, run=Path(HOSTILE), shown=[hostile(caption())]), title=HOSTILE
    ),
    "figures": lambda: pages.figures_page(HOSTILE, HOSTILE, FIGURES),
    "heads": lambda: heads_page(HOSTILE, about=HOSTILE),
}


@pytest.mark.parametrize("name", PAGES)
def test_hostile_text_stays_text(name):
    page = PAGES[name]()
    elements = Elements(page)
    tags = {tag for tag, _ in elements.tags}
    assert "b" not in tags
    assert not any(key.startswith("on") for _, attrs in elements.tags for key in attrs)
    assert (
        page.count("<script") == page.count("</script>") == sum(tag == "script" for tag, _ in elements.tags)
    )
    for kind, text in elements.raw:
        assert kind in {"script", "style"}
        assert "onclick" not in text or "\\u003c/script" in text
    assert len(set(elements.ids())) == len(elements.ids())


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_alone(name):
    page = PAGES[name]()
    assert "default-src 'none'; img-src data:;" in page
    assert not re.search(r"(src|href)=\"(?!data:)|<link|@import|https?://|url\(", page)


def test_marks_that_turn_the_reading_direction_stay_inside_their_element():
    page = PAGES["results"]()
    body = re.sub(r"<script.*?</script>|<head>.*?</head>|alt=\"[^\"]*\"", "", page, flags=re.DOTALL)
    around = re.findall(r"<(\w+)([^>]*)>[^<>]*\u202e[^<>]*</(\w+)>", body)
    assert len(around) == body.count("\u202e")  # each is alone in one element
    inline = {tag for tag, attributes, _ in around if tag not in {"h1", "h2", "p", "li", "td", "figcaption"}}
    assert inline <= {"bdi"}


def test_the_page_holds_the_weights_of_a_caption():
    p = caption(boxes={2: (0.0, 0.0, 8.5, 6.5)})
    data = data_of(pages.prediction_page(p, title="x"))
    np.testing.assert_allclose(unpacked(data["weights"]), p.attention.weights.flatten(), atol=1e-5)
    np.testing.assert_allclose(unpacked(data["summary"]), p.attention.summary.flatten(), atol=1e-5)
    assert data["queries"] == ["a", "small", "dog"]
    shape = (data["layers"], data["heads"], data["rows"], data["columns"], data["n_keys"])
    assert shape == (L, H, ROWS, COLUMNS, ROWS * COLUMNS)
    assert data["boxes"] == {"2": [0, 0, 50, 50]}
    assert (data["first"], data["label"], data["squares"]) == (2, "the mean of 6 heads", False)
    assert data["least"] == pytest.approx(4 / 35)


def test_the_page_holds_the_words_of_a_translation():
    p = translation()
    page = pages.prediction_page(p, title="x")
    data = data_of(page)
    assert data["keys"] == ["ein", "Hund", "bellt"]
    assert data["queries"] == ["a", "dog", "bar", "ks"]
    assert data["n_keys"] == 3
    np.testing.assert_allclose(unpacked(data["weights"]), p.attention.weights.flatten(), atol=1e-5)
    assert re.findall(r"<h2[^>]*>(.*?)</h2>", page) == ["Alignment", "Layer 0", "Layer 1"]
    assert page.count("data:image/png") == 3
    assert (
        '<p class="keys" dir="auto">ein Hund bellt</p>' in page
    )  # until the script runs, and where none does


def test_of_a_watched_model_every_layer_follows():
    words, written = ["ein", "Hund", "bellt"], ["a", "dog", "bar", "ks"]
    sights = {
        "encoder.self_attn": seen(3, 3),
        "decoder.self_attn": seen(4, 4, mask=sl.masks.causal()),
        "decoder.cross": seen(4, 3),
    }
    tokens = {
        "encoder.self_attn": (words, words),
        "decoder.self_attn": (written, written),
        "decoder.cross": (written, words),
    }
    page = pages.prediction_page(translation(), title="x", seen=sights, tokens=tokens)
    captions = re.findall("<figcaption>(.*?)</figcaption>", page)
    assert captions == [
        "What each written word (down) looked at in the source (across): the mean of 6 heads.",
        "encoder.self_attn: which words look at which, averaged over the heads.",
        "encoder.self_attn: the weights of each head, with its entropy.",
        "decoder.self_attn: the weights of each head, with its entropy.",
        "decoder.cross: the weights of each head, with its entropy.",
    ]
    without = pages.prediction_page(caption(), title="x", seen=sights)
    assert without.count("<figcaption>") == 3


def test_a_class_has_its_heads_and_further_figures():
    further = {"Distance": (show.weights(torch.eye(2)), "how far")}
    page = pages.prediction_page(classified(), title="cat 0.75", figures=further)
    assert re.findall(r"<h2[^>]*>(.*?)</h2>", page) == ["Heads", "Distance"]
    assert data_of(page)["squares"]
    assert data_of(page)["least"] == 0
    assert "a click on the class" in page
    assert re.findall(r"<li><bdi>(.*?)</bdi> <span class=\"number\">(.*?)</span>", page) == [
        ("cat", "0.750"),
        ("dog", "0.250"),
    ]


def test_without_attention_the_text_is_shown():
    page = pages.prediction_page(Prediction("ein Hund", "a dog", references=("one dog",)), title="a dog")
    for text in ("ein Hund", "a dog", "one dog", ">reference<"):
        assert text in page
    assert 'id="attention0"' not in page
    assert "Point at" not in page
    empty = pages.prediction_page(translation(written=()), title="nothing")
    assert 'id="attention0"' not in empty


def test_an_image_is_kept_as_it_is_while_small_and_says_what_part_it_is(tmp_path):
    path = tmp_path / "wide.png"
    Image.new("RGB", (40, 20)).save(path)
    small = torch.randint(0, 256, (3, 16, 16), dtype=torch.uint8)
    page = pages.prediction_page(caption(source=path, image=small), title="x")
    data = re.search(r'src="data:image/png;base64,([^"]+)"', page).group(1)
    file = tmp_path / "small.png"
    file.write_bytes(base64.b64decode(data))
    assert np.array_equal(np.asarray(Image.open(file)), small.permute(1, 2, 0))
    assert "the middle 20 x 20 of 40 x 20 pixels" in page
    assert "<bdi>wide.png</bdi>" in page
    large = pages.prediction_page(caption(image=torch.zeros(3, 130, 130, dtype=torch.uint8)), title="x")
    assert "data:image/jpeg" in large


def test_results_of_every_task():
    sections = {"Best": [caption(metrics={"cider": 1.25}), translation()], "Worst": [classified()]}
    scores = {"bleu4": 0.5, "cider": 1.25, "bleu": 34.567, "my own": 1.0}
    page = pages.results_page(
        "Results",
        about="7 of them",
        scores=scores,
        signatures={"bleu4": "v1", "cider": "v1", "bleu": "v2"},
        curves=show.curves({"loss": [(1.0, 2.0), (2.0, 1.0)]}),
        sections=sections,
        figures={"Confusion": (confusion_matrix(torch.eye(2).long(), ["a", "b"]), "who is who")},
    )
    rows = re.findall(r"<tr><td>(.*?)</td><td>(.*?)</td><td class=\"text\">(.*?)</td>", page)
    assert [(name, value) for name, value, _ in rows] == [
        ("bleu4", "0.500"),
        ("cider", "1.250"),
        ("bleu", "34.57"),
        ("my own", "1.000"),
    ]
    assert [bool(meaning) for *_, meaning in rows] == [True, True, True, False]
    assert re.findall("<li><bdi>(.*?)</bdi>: <code><bdi>(.*?)</bdi>", page) == [
        ("bleu4, cider", "v1"),
        ("bleu", "v2"),
    ]
    assert 'alt="The loss and the scores by training step"' in page
    assert re.findall(r"<h2[^>]*>(.*?)</h2>", page) == ["Best", "Worst", "Confusion"]
    names = re.findall(r'data-attention="([^"]+)"', page)
    assert names == ["attention0", "attention1", "attention2"]
    assert [len(data_of(page, name)["queries"]) for name in names] == [3, 4, 1]
    assert "<bdi>cider 1.250</bdi>" in page


def test_results_may_be_scores_alone():
    page = pages.results_page("Results", scores={"accuracy": 1.0})
    assert "Point at" not in page
    assert "How it was computed" not in page
    assert "<figure" not in page


def test_the_report_names_commands_that_can_be_typed():
    page = pages.report_page(a_report())
    commands = re.findall("<pre>(.*?)</pre>", page, re.DOTALL)
    assert commands[0] == "sightline caption &#39;runs/my demo&#39; &#39;runs/my demo/examples&#39;/*.png"
    assert all(command.startswith("sightline ") for command in commands)
    assert ".venv/bin/sightline look" in pages.report_page(a_report(command=".venv/bin/sightline"))
    for heading in ("How good it is", "How it learned", "Where it looks", "What to try next"):
        assert f"<h2>{heading}</h2>" in page
    assert len(re.findall("data-attention=", page)) == 3


def test_heads_in_figures_and_in_a_table():
    page = heads_page()
    assert page.count("data:image/png") == 3
    assert page.count("<tr") == 7
    assert page.count('<tr class="marked">') == 2
    assert "In bold: the 2 sharpest heads" in page
    part = heads_page(is_part=True)
    assert part.count("data:image/png") == 4
    assert heads_page("x" * 500).count("x" * 399 + "…") == 1
