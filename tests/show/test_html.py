"""Templates escape what they are given, and data can't leave its script."""

import base64
import json
import re
from importlib import resources

import jinja2
import pytest
import torch

from sightline import show
from sightline.show.html import data_uri, render, score_text, script_json, to_png
from tests.show.predictions import HOSTILE


def test_text_is_escaped():
    page = render("figures.html", title=HOSTILE, introduction=HOSTILE, figures=[])
    assert "<b onclick" not in page
    assert page.count("&lt;/script&gt;&lt;b onclick=&#34;x()&#34;&gt;&#39;&#34;&amp;amp;") == 3
    assert "</script>" not in page


def test_json_survives_and_ends_no_script():
    value = {"a": [HOSTILE, "<!--", "\u2029 & é", 1.5, None]}
    text = script_json(value)
    assert json.loads(text) == value
    assert not set("<>&\u2028\u2029") & set(text)


def test_a_figure_is_inside_as_wide_as_drawn():
    figure = show.weights(torch.eye(3))
    wide = show.weights(torch.rand(3, 71))
    page = render("figures.html", title="", introduction="", figures=[("a", figure, "b"), ("", wide, "")])
    first, second = re.findall(r'<figure( class="wide")?>\s<img class="drawn" alt="(.*)" width="(\d+)"', page)
    assert first == ("", "a", str(round(96 * figure.get_figwidth())))
    assert second == (' class="wide"', "", str(round(96 * wide.get_figwidth())))
    data = re.findall(r'src="data:image/png;base64,([^"]+)"', page)
    assert base64.b64decode(data[0]) == to_png(figure)
    assert page.count("<figcaption>") == 1
    assert page.count("<h2") == 1


def test_what_a_template_needs_and_does_not_get_is_an_error():
    with pytest.raises(jinja2.UndefinedError, match="figures"):
        render("figures.html", title="", introduction="")


def test_assets_end_neither_style_nor_script():
    for path in (resources.files("sightline.show") / "assets").iterdir():
        assert "</" not in path.read_text(encoding="utf-8")


def test_small_things():
    assert data_uri(b"GIF89a", "gif") == "data:image/gif;base64,R0lGODlh"
    assert (score_text(0.12345), score_text(34.5678)) == ("0.123", "34.57")
