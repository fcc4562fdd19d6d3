"""A saved page holds what it says, runs nothing but its own script, and takes any text as text."""

import base64
import hashlib
import html
import json
import re
import zlib

import numpy as np
import pytest
import torch

from sightline import show
from sightline.show.explorer import script, style
from sightline.show.explorer.layers import read_layers
from sightline.show.explorer.stored import store
from tests.show.predictions import HOSTILE, caption
from tests.show.sights import long, seen


def unpacked(layer):
    data = np.frombuffer(zlib.decompress(base64.b64decode(layer["packed"])), np.uint8)
    low, high = data[: data.size // 2].astype(np.uint16), data[data.size // 2 :].astype(np.uint16)
    return (low + 256 * high).reshape(layer["shape"]) * np.array(layer["steps"])[:, None, None]


def data_of(page):
    found = re.search(r'<script type="application/json" data-explorer>(.*?)</script>', page)
    return json.loads(found.group(1))


def test_every_weight_is_held_to_the_precision_that_is_said():
    one = seen(13, 11)
    stored = store(read_layers(one), 100_000)
    precision = float(re.search(r"every weight to within ([\d.]+\d)", stored.note).group(1))
    cells = unpacked(stored.data["layers"][0])
    whole = one.rows(list(range(13)))[0].numpy()
    assert abs(cells - whole).max() <= 1.6 * precision  # it is rounded to one digit
    assert precision < 1e-4
    received = unpacked(stored.data["received"][0])[:, 0]
    np.testing.assert_allclose(received, one.received[0], atol=1e-4)


def test_what_does_not_fit_is_coarser_and_says_so():
    one = seen(64, 64)
    stored = store(read_layers(one), 3_000)
    (layer,) = stored.data["layers"]
    rows, columns = layer["shape"][1:]
    assert rows == columns < 64
    assert f"means over {rows} x {columns} cells" in stored.note
    cells = unpacked(layer)
    np.testing.assert_allclose(cells, one.map(rows)[0], atol=2 * max(layer["steps"]))


def test_a_long_look_is_stored_as_it_was_measured():
    stored = store(read_layers(long()), 200_000)
    assert stored.data["layers"][0]["shape"] == [2, 61, 61]
    assert stored.data["entropy"][0]["shape"][2] < 100_000


def test_a_page_runs_its_own_script_and_nothing_else():
    page = show.page(seen(7, 7), title=HOSTILE, tokens=[HOSTILE] * 7).html()
    policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', page).group(1))
    scripts = re.findall(r'<script type="module">(.*?)</script>', page, re.DOTALL)
    styles = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    assert len(scripts) == len(styles) == 1
    for kind, text in (("script", scripts[0]), ("style", styles[0])):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert page.count("<script") == page.count("</script>") == 2
    assert "<b onclick" not in page
    assert not re.search(r"(src|href)=\"(?!data:)|<link|@import|https?://|url\(", page)
    meta = data_of(page)["meta"]
    assert meta["title"] == HOSTILE
    assert meta["tokens"][0]["words"] == [HOSTILE] * 7


def test_scripts_write_text_never_markup_and_ask_nobody():
    markup = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|setAttribute\(\"(style|on)"
    outside = r"eval\(|fetch\(|import |XMLHttpRequest|WebSocket|EventSource|sendBeacon"
    assert not re.search(f"{markup}|{outside}", script())
    assert "</" not in script()
    assert "</" not in style()


def test_it_saves_and_names_itself(tmp_path):
    page = show.page(caption())
    page.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page.html()
    assert repr(page) == "Page('a small dog': 2 layers, 6 heads); .save(path)"
    figure = (show.weights(torch.eye(3)), "a caption")
    further = show.page(caption(), figures={"Further": figure}).html()
    assert '<h2 dir="auto">Further</h2>' in further
    assert "<figcaption>a caption</figcaption>" in further


def test_half_a_character_is_written_as_its_escape(tmp_path):
    path = tmp_path / "page.html"
    show.page(seen(3, 3), tokens=["\ud800", "b", "c"], title="half \udfff").save(path)
    page = path.read_text(encoding="utf-8")
    assert data_of(page)["meta"]["tokens"][0]["words"] == ["\ud800", "b", "c"]
    assert "half ?" in page


def test_without_anywidget_a_notebook_gets_a_frame(monkeypatch):
    page = show.page(seen(5, 5), title='x" onload="y')
    monkeypatch.setattr(page, "widget", _missing)
    shown = page._repr_mimebundle_()
    assert set(shown) == {"text/html", "text/plain"}
    frame = shown["text/html"]
    assert frame.startswith('<iframe srcdoc="')
    assert 'onload="y' not in frame
    assert html.unescape(re.search(r'srcdoc="([^"]*)"', frame).group(1)) == page.html()


def _missing():
    raise ImportError("No module named 'anywidget'")


def test_a_widget_answers_messages(monkeypatch):
    pytest.importorskip("anywidget")
    from sightline.show.explorer.widget import make_widget, reply

    page = show.page(seen(5, 5))
    widget = make_widget(page.answers)
    assert widget.meta["sights"][0]["t"] == 5
    sent = []
    monkeypatch.setattr(widget, "send", lambda content, buffers=None: sent.append(content))
    widget._handle_custom_msg({"number": 3, "request": {"ask": "row", "query": 1}}, [])
    assert sent[0]["number"] == 3
    assert sent[0]["answer"]["row"]["shape"] == [5]
    assert "must be a whole number" in reply(page.answers, {"number": 4, "request": {"ask": "row"}})["error"]
    assert reply(page.answers, "x")["error"]
    assert "application/vnd.jupyter.widget-view+json" in page._repr_mimebundle_()[0]
