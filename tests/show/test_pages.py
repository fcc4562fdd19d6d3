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

from sightline import show
from sightline.show import pages
from sightline.show.vit import confusion_matrix
from sightline.show.walk import AttentionTrace, walk_values
from tests.show.predictions import (
    HOSTILE,
    Alternative,
    Grid,
    Prediction,
    caption,
    classified,
    translation,
)


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
        if self.cdata_elem in self.CDATA_CONTENT_ELEMENTS:  # newer Pythons have titles among the others
            self.raw.append((self.cdata_elem, data))

    def ids(self):
        return [attrs["id"] for _, attrs in self.tags if "id" in attrs]


def explorers(page):
    """The data of every explorer on a page."""
    return list(map(json.loads, re.findall(r"data-explorer>(.*?)</script>", page)))


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


HEADINGS = ("Scenes it has not seen", "The worst of them", "What to try next", "How good it is")


def a_walk(**changes):
    generator = torch.Generator().manual_seed(0)
    fields = {"word": "dog", "text": "a small dog", "where": "head 1"}
    fields |= {"query": torch.randn(7, generator=generator), "keys": torch.randn(6, 7, generator=generator)}
    fields |= {"values": torch.randn(6, 5, generator=generator)}
    fields["grid"] = Grid(2, 3, torch.zeros(3, 8, 12, dtype=torch.uint8))
    return AttentionTrace(**(fields | changes))


FIGURES = {HOSTILE: (show.weights(torch.eye(3)), HOSTILE)}
PAGES = {
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
    "walk": lambda: pages.report_page(a_report(walk=a_walk(word=HOSTILE, text=HOSTILE, where=HOSTILE))),
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
    assert "default-src &#39;none&#39;; img-src data: blob:;" in page
    assert "unsafe" not in re.search("Security-Policy[^>]*", page).group(0)
    assert not re.search(r"(src|href)=\"(?!data:)|<link|@import|https?://|url\(", page)


def test_marks_that_turn_the_reading_direction_stay_inside_their_element():
    page = PAGES["results"]()
    body = re.sub(r"<script.*?</script>|<head>.*?</head>|alt=\"[^\"]*\"", "", page, flags=re.DOTALL)
    around = re.findall(r"<(\w+)([^>]*)>[^<>]*\u202e[^<>]*</(\w+)>", body)
    assert len(around) == body.count("\u202e")  # each is alone in one element
    inline = {tag for tag, attributes, _ in around if tag not in {"h1", "h2", "p", "li", "td", "figcaption"}}
    assert inline <= {"bdi"}


def test_a_prediction_is_a_card_with_its_explorer():
    page = pages.results_page("x", scores={}, sections={"": [caption(), translation(), classified()]})
    found = explorers(page)
    assert [one["options"]["views"] for one in found] == [["image"], ["word"], ["image"]]
    assert found[0]["meta"]["title"] == "a small dog"
    assert "Point at a word" in page
    assert "Point at the class" in page
    assert re.findall(r"<li><bdi>(.*?)</bdi> <span class=\"number\">(.*?)</span>", page) == [
        ("cat", "0.750"),
        ("dog", "0.250"),
    ]


def test_without_attention_the_text_is_shown():
    p = Prediction("ein Hund", "a dog", references=("one dog",))
    page = pages.results_page("x", scores={}, sections={"": [p]})
    for text in ("ein Hund", "a dog", "one dog", "What people wrote"):
        assert text in page
    assert explorers(page) == []
    assert "Point at" not in page
    assert "<script" not in page
    assert "script-src &#39;none&#39;" in page
    assert explorers(pages.results_page("x", scores={}, sections={"": [translation(written=())]})) == []


def test_an_image_is_kept_as_it_is_while_small_and_says_what_part_it_is(tmp_path):
    path = tmp_path / "wide.png"
    Image.new("RGB", (40, 20)).save(path)
    small = torch.randint(0, 256, (3, 16, 16), dtype=torch.uint8)
    page = pages.results_page("x", scores={}, sections={"": [caption(source=path, image=small)]})
    image = explorers(page)[0]["meta"]["image"]
    file = tmp_path / "small.png"
    file.write_bytes(base64.b64decode(image["url"].partition(",")[2]))
    assert np.array_equal(np.asarray(Image.open(file)), small.permute(1, 2, 0))
    assert "the middle 20 x 20 of 40 x 20 pixels" in image["note"]
    assert image["small"]
    assert "<bdi>wide.png</bdi>" in page
    large = caption(image=torch.zeros(3, 130, 130, dtype=torch.uint8))
    page = pages.results_page("x", scores={}, sections={"": [large]})
    assert explorers(page)[0]["meta"]["image"]["url"].startswith("data:image/jpeg")


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
    headings = re.findall(r"<h2[^>]*>(.*?)</h2>", page)
    assert headings == ["Best", "Worst", "How it learned", "Confusion"]
    assert [one["meta"]["sights"][0]["t"] for one in explorers(page)] == [3, 4, 1]
    assert "<bdi>cider 1.250</bdi>" in page


def test_results_may_be_scores_alone():
    page = pages.results_page("Results", scores={"accuracy": 1.0})
    assert "Point at" not in page
    assert "How it was computed" not in page
    assert "<figure" not in page


def test_the_report_names_commands_that_can_be_typed():
    page = pages.report_page(a_report())
    commands = re.findall("<pre[^>]*>(.*?)</pre>", page, re.DOTALL)
    assert commands[0] == "sightline caption &#39;runs/my demo&#39; &#39;runs/my demo/examples&#39;/*.png"
    assert all(command.startswith("sightline ") for command in commands)
    assert ".venv/bin/sightline look" in pages.report_page(a_report(command=".venv/bin/sightline"))
    order = [page.index(f"<h2>{heading}") for heading in HEADINGS]
    assert order == sorted(order)
    assert "How it came to one word" not in page
    folded = re.findall("<details>\\s*<summary>(.*?)</summary>", page)
    assert folded[-2:] == ["Scores on 7 further scenes", "Curves of the training"]
    assert len(explorers(page)) == 3


def test_a_walk_goes_from_the_query_to_the_mix():
    walk = a_walk()
    values = walk_values(walk)
    scores = (walk.keys @ walk.query).double() / 7**0.5
    weights = scores.softmax(-1)
    best = weights.topk(3).indices.tolist()
    assert [row["patch"] for row in values["rows"]] == [f"{i // 3}, {i % 3}" for i in best]
    assert [row["weight"] for row in values["rows"]] == [f"{weights[i]:.3f}" for i in best]
    assert [row["score"] for row in values["rows"]] == [f"{scores[i]:.2f}" for i in best]
    mix = weights @ walk.values.double()
    assert values["output"] == ", ".join(f"{x:.2f}".replace("-", "−") for x in mix[:4].tolist())
    assert float(values["rest_weight"]) == pytest.approx(1 - float(weights[best].sum()), abs=6e-4)
    page = pages.report_page(a_report(walk=walk))
    steps = [page.index(f"<h3>{step}</h3>") for step in ("A query", "Scores", "Softmax", "The mix")]
    assert steps == sorted(steps)
    assert page.index("How it came to one word") < page.index("Scores on")
