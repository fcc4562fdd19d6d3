"""The explorer in a real browser: a text in every view, by mouse and keys; offline; any token is text."""

import numpy as np
import pytest

from sightline import show
from sightline.show.explorer import Answers
from sightline.show.explorer.arrays import unpack
from tests.show.explorer.saved_pages import HOSTILE, VIEWS, WORDS, T, attended, weights

pytestmark = pytest.mark.plain


@pytest.fixture(scope="module")
def sights():
    return attended()


def drawn(one, selector):
    """How many colours a canvas has."""
    return one.page.evaluate(
        """(selector) => {
          const canvas = document.querySelector(selector);
          const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
          return new Set(new Uint32Array(data.buffer)).size;
        }""",
        selector,
    )


def test_every_view_renders_and_complains_about_nothing(context, saved):
    one = saved.open(context, "text")
    for view in VIEWS:
        one.show(view=view, sight=1, head=1)
        assert one.page.locator(f".view-{view}").is_visible()
    one.show(view="matrix")
    assert drawn(one, ".matrix canvas") > 20
    one.show(view="overview")
    assert one.page.locator(".tile").count() == 6
    assert drawn(one, ".tile canvas") > 5
    one.show(view="lines")
    assert one.page.locator(".view-lines path").count() > T
    one.show(view="word")
    assert drawn(one, ".heads canvas") > 5
    assert one.complaints == []
    assert one.outside() == []


def test_the_page_answers_as_python_does(context, saved, sights):
    one = saved.open(context, "text")
    answers = Answers(sights, tokens=WORDS)
    requests = [
        {"ask": "map", "sight": 1, "head": 1, "size": [T, T]},
        {"ask": "map", "sight": 1, "head": "mean", "queries": [3, 20], "keys": [1, 18], "size": [5, 7]},
        {"ask": "row", "sight": 2, "head": 0, "query": 9},
        {"ask": "row", "sight": 2, "head": 0, "query": 9, "keys": [2, 13], "size": 4},
        {"ask": "column", "sight": 0, "head": "mean", "key": 4},
        {"ask": "word", "sight": 0, "query": 11},
        {"ask": "word", "sight": 0, "key": 2, "size": 6},
        {"ask": "strips", "sight": 1, "head": 1, "queries": [1, 22], "keys": [0, 19], "size": [5, 4]},
        {"ask": "top", "sight": 1, "head": 0, "query": 20, "n": 5},
    ]
    for request in requests:
        found = one.explorer(
            """(async () => {
              const answer = await x.ask(a);
              const list = (v) => Array.from(v.f32 ?? v.u8 ?? v.i32);
              const plain = (v) => (v && v.shape ? { shape: v.shape, list: list(v) } : v);
              return Object.fromEntries(Object.entries(answer).map(([name, v]) => [name, plain(v)]));
            })()""",
            request,
        )
        for name, value in answers.answer(request).items():
            if isinstance(value, dict):
                own = np.array(found[name]["list"]).reshape(found[name]["shape"])
                np.testing.assert_allclose(own, unpack(value), atol=1e-4, err_msg=f"{request} {name}")
    kinds = one.explorer(
        "x.ask({ask: 'overview'}).then((found) => found.sights.map((s) => s.heads.map((h) => h.entropy)))"
    )
    own = [
        [head["entropy"] for head in layer["heads"]]
        for layer in answers.answer({"ask": "overview"})["sights"]
    ]
    np.testing.assert_allclose(kinds, own, rtol=1e-5)


def test_a_word_shows_what_it_read(context, saved, sights):
    one = saved.open(context, "text")
    one.show(view="word", sight=1, head=1)
    one.page.locator(".word", has_text="harbour").click()
    one.settle()
    row = weights(sights, 1, 1)[6]
    best = row.argsort()[::-1][:3]
    names = one.page.locator("ol.links bdi").all_text_contents()[:3]
    assert names == [WORDS[i] for i in best]
    printed = [float(x) for x in one.page.locator("ol.links .number").all_text_contents()[:3]]
    np.testing.assert_allclose(printed, row[best], atol=6e-4)
    one.page.keyboard.press("ArrowRight")
    one.settle()
    assert one.page.locator(".side h2").inner_text() == "before reads"
    one.page.get_by_role("button", name="By whom it is read").click()
    one.settle()
    column = weights(sights, 1, 1)[:, 7]
    printed = [float(x) for x in one.page.locator("ol.links .number").all_text_contents()[:2]]
    np.testing.assert_allclose(printed, np.sort(column)[::-1][:2], atol=6e-4)
    one.page.get_by_role("searchbox").fill("THE")
    one.settle()
    assert one.page.locator(".word.hit").count() == 3
    one.page.keyboard.press("Enter")
    one.settle()
    assert one.explorer("x.state.query") == 10
    assert one.complaints == []


@pytest.mark.parametrize(("query", "heading"), [(1, "pad reads nothing"), (2, f"{WORDS[0]} reads")])
def test_padding_reads_nothing(context, saved, query, heading):
    one = saved.open(context, "padded", f"query={query}")
    one.settle()
    assert one.page.locator(".side h2").inner_text() == heading


def test_the_number_under_the_cursor_and_zoom(context, saved, sights):
    one = saved.open(context, "text")
    one.show(view="matrix", sight=2, head=0)
    one.page.locator(".matrix canvas").focus()
    before = one.page.locator(".matrix").get_attribute("data-level")
    for key in ("ArrowDown", "ArrowLeft", "ArrowLeft"):
        one.page.keyboard.press(key)
    readout = one.page.locator(".matrix .readout").inner_text()
    assert readout.startswith(f"{WORDS[12]} (12) → {WORDS[9]} (9): ")
    under = float(one.page.locator(".matrix").get_attribute("data-weight"))
    assert under == pytest.approx(float(weights(sights, 2, 0)[12, 9]), abs=1e-4)
    for _ in range(2):
        one.page.keyboard.press("+")
    one.settle()
    level = one.page.locator(".matrix").get_attribute("data-level")
    assert level != before
    state = one.explorer("x.state")
    (a, b), (c, d) = state["queries"], state["keys"]
    assert level == f"{b - a}x{d - c} of {a}-{b}, {c}-{d}"
    assert b - a < T
    box = one.page.locator(".matrix canvas").bounding_box()
    one.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] * 0.7)
    one.settle()
    words = one.page.locator(".matrix .readout").inner_text()
    q, k = (int(part.split("(")[1].split(")")[0]) for part in words.split(":")[0].split("→"))
    under = float(one.page.locator(".matrix").get_attribute("data-weight"))
    assert under == pytest.approx(float(weights(sights, 2, 0)[q, k]), abs=1e-4)
    one.page.mouse.wheel(0, -300)
    one.settle()
    assert one.explorer("x.state.queries[1] - x.state.queries[0]") < b - a
    one.page.mouse.down()
    one.page.mouse.move(box["x"] + 40, box["y"] + 90)
    one.page.mouse.up()
    one.page.keyboard.press("0")
    one.settle()
    assert one.explorer("x.state.queries") is None
    assert one.complaints == []


def test_the_address_brings_the_view_back(context, saved):
    one = saved.open(context, "text")
    one.show(view="matrix", sight=2, head=1, query=4, key=3, queries=[2, 12], keys=[0, 10])
    one.settle()
    address, state = one.page.evaluate("location.hash.slice(1)"), one.explorer("x.state")
    again = saved.open(context, "text", address)
    assert again.explorer("x.state") == state
    assert again.page.locator(".view-matrix").is_visible()
    odd = saved.open(context, "text", "sight=99&head=x&query=-4&queries=9-2&view=nothing&of=difference")
    assert odd.explorer("x.state.sight") == 0
    assert odd.explorer("x.state.view") == "word"
    assert odd.complaints == []


def test_any_token_is_text(context, saved):
    one = saved.open(context, "hostile")
    for view in VIEWS:
        one.show(view=view, query=0)
        assert one.page.locator("b, img").count() == 0
    one.show(view="word")
    texts = one.page.locator(".word").all_text_contents()
    assert texts[0] == HOSTILE[0]
    assert texts[1] == "⟨202e⟩abc⟨202c⟩"
    assert texts[2].startswith("xxx")
    assert len(texts[2]) < 40
    assert texts[3] == HOSTILE[3]
    assert texts[4] == "a␀b"
    assert one.page.title() == HOSTILE[0]
    assert one.page.evaluate("document.documentElement.scrollWidth") <= 1200
    assert one.complaints == []
    assert one.outside() == []


def test_a_live_source_is_asked_for_windows(context, saved, sights):
    """What a notebook and a server do: each level is computed when it is looked at."""
    answers, asked = Answers(sights, tokens=WORDS), []

    def ask(request):
        asked.append(request)
        return answers.answer(request)

    one = saved.open(context, "text")
    one.page.expose_function("answer", ask)
    script = show.explorer.script().replace("export const", "const")
    one.page.evaluate(
        f"""(meta) => {{ {script}
          const root = document.querySelector(".sl").parentElement.appendChild(document.createElement("div"));
          document.querySelector(".sl").remove();
          root.explorer = mount(root, {{ meta, ask: (request) => window.answer(request) }}); }}""",
        answers.meta(),
    )
    one.show(view="matrix", sight=1, head=0)
    one.page.locator(".matrix canvas").focus()
    for _ in range(3):
        one.page.keyboard.press("+")
    one.settle()
    windows = [x for x in asked if x["ask"] == "map" and x.get("queries")]
    a, b = windows[-1]["queries"]
    assert b - a < T
    assert windows[-1]["size"][0] == b - a  # single weights
    assert one.page.locator(".matrix").get_attribute("data-level").startswith(f"{b - a}x")
    assert one.complaints == []


def test_the_height_stays(context, saved):
    one = saved.open(context, "text")
    for view in VIEWS:
        one.show(view=view)
        one.settle()
        before = one.page.evaluate("document.documentElement.scrollHeight")
        one.page.wait_for_timeout(500)
        assert one.page.evaluate("document.documentElement.scrollHeight") == before


def test_the_theme_may_change_while_it_is_looked_at(context, saved):
    one = saved.open(context, "text")
    one.show(view="matrix")
    light = one.page.evaluate("document.querySelector('.matrix canvas').toDataURL()")
    one.page.emulate_media(color_scheme="dark")
    one.settle()
    assert one.page.evaluate("document.querySelector('.matrix canvas').toDataURL()") != light
    assert one.complaints == []
