"""The explorer in a real browser: every view, by mouse, keys and touch; offline; any token is text."""

import xml.etree.ElementTree as ET

import numpy as np
import pytest
import torch

import sightline as sl
from sightline import show
from sightline.show.explorer import Answers, Step
from sightline.show.explorer.arrays import pack, unpack
from tests.show.explorer.browser import Opened, launched
from tests.show.predictions import caption, shares
from tests.show.sights import seen

pytestmark = pytest.mark.plain
T = 23
TEXT = (
    "the keeper walked down to the harbour before dawn because the lamp had gone out and nobody ever knew how"
)
WORDS = [*TEXT.split(), "it", "was", "done"]
HOSTILE = [
    "</script><b onclick=alert(1)>",
    "\u202eabc\u202c",
    "x" * 10_000,
    "👩‍🚀🦜",
    "a\0b",
    "<img src=x onerror=alert(1)>",
]
SERIOUS = {"serious", "critical"}
VIEWS = ("word", "overview", "matrix", "lines")


def attended(seed=0):
    torch.manual_seed(seed)
    sights = {}
    for i in range(3):
        q, k = 2 * torch.randn(1, 2, T, 5), torch.randn(1, 2, T, 5)
        sights[f"layers.{i}.self_attn"] = sl.look(q, k, k, sl.masks.causal())
    return sights


@pytest.fixture(scope="module")
def sights():
    return attended()


@pytest.fixture(scope="module")
def browser():
    with launched() as browser:
        yield browser


@pytest.fixture(scope="module")
def saved(tmp_path_factory, sights):
    folder = tmp_path_factory.mktemp("pages")
    text = show.page(sights, tokens=WORDS, title="A keeper")
    text.save(folder / "text.html")
    picture = caption(("a", "small", "dog"), image=torch.randint(0, 256, (3, 50, 70), dtype=torch.uint8))
    steps = [
        Step(token=w, probability=0.5, alternatives=[(w, 0.5), ("cat", 0.25)]) for w in ("a", "small", "dog")
    ]
    show.page(picture, steps=steps).save(folder / "image.html")
    show.page(sights, other=attended(1), tokens=WORDS, names=("x", "y")).save(folder / "compare.html")
    hostile = [*HOSTILE, *WORDS][:T]
    show.page(sights, tokens=hostile, title=HOSTILE[0]).save(folder / "hostile.html")
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    mask[:2] = False
    show.page(seen(5, 5, mask=mask), tokens=["pad", "pad", *WORDS[:3]]).save(folder / "padded.html")
    return folder


@pytest.fixture
def context(browser):
    context = browser.new_context(viewport={"width": 1200, "height": 900}, offline=True)
    yield context
    context.close()


def opened(context, saved, name, address=""):
    return Opened(context, f"{(saved / name).as_uri()}.html#{address}")


def weights(sights, layer, head):
    return sights[f"layers.{layer}.self_attn"].rows(list(range(T)))[0, head].numpy()


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
    one = opened(context, saved, "text")
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
    one = opened(context, saved, "text")
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
    one = opened(context, saved, "text")
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
    one = opened(context, saved, "padded", f"query={query}")
    one.settle()
    assert one.page.locator(".side h2").inner_text() == heading


def test_the_number_under_the_cursor_and_zoom(context, saved, sights):
    one = opened(context, saved, "text")
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
    one.settle(250)
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
    one.settle(250)
    assert one.explorer("x.state.queries[1] - x.state.queries[0]") < b - a
    one.page.mouse.down()
    one.page.mouse.move(box["x"] + 40, box["y"] + 90)
    one.page.mouse.up()
    one.page.keyboard.press("0")
    one.settle(250)
    assert one.explorer("x.state.queries") is None
    assert one.complaints == []


def test_the_address_brings_the_view_back(context, saved):
    one = opened(context, saved, "text")
    one.show(view="matrix", sight=2, head=1, query=4, key=3, queries=[2, 12], keys=[0, 10])
    one.settle(250)
    address, state = one.page.evaluate("location.hash.slice(1)"), one.explorer("x.state")
    again = opened(context, saved, "text", address)
    assert again.explorer("x.state") == state
    assert again.page.locator(".view-matrix").is_visible()
    odd = opened(context, saved, "text", "sight=99&head=x&query=-4&queries=9-2&view=nothing&of=difference")
    assert odd.explorer("x.state.sight") == 0
    assert odd.explorer("x.state.view") == "word"
    assert odd.complaints == []


def test_any_token_is_text(context, saved):
    one = opened(context, saved, "hostile")
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


def test_the_picture_is_in_colour_until_a_word_is_pointed_at(context, saved):
    one = opened(context, saved, "image")
    canvas = one.page.locator(".view-image .main .picture canvas")
    assert not canvas.is_visible()
    one.page.locator(".view-image .word", has_text="small").hover()
    one.settle()
    assert canvas.is_visible()
    row = shares(2, 3, 3, 35).mean((0, 1))[1]
    assert float(one.page.locator(".view-image").get_attribute("data-weight")) == pytest.approx(
        float(row.max()), abs=1e-4
    )
    one.page.mouse.move(5, 5)
    one.settle()
    assert not canvas.is_visible()
    one.page.locator(".view-image [role=listbox]").focus()
    for expected in (0, 1, 2, 2):
        one.page.keyboard.press("ArrowRight")
        one.settle()
        assert one.explorer("x.state.query") == expected
    one.page.locator(".view-image .main .picture").click(position={"x": 20, "y": 20})
    one.settle()
    assert one.page.locator(".who").inner_text().startswith("Here looked most: ")
    assert one.page.locator(".strip .small").count() == 3
    one.show(view="film", step=2)
    assert one.page.locator(".written .now").inner_text() == "dog"
    assert one.page.locator("ol.links li.chosen bdi").inner_text() == "dog"
    one.show(view="word")
    assert one.complaints == []


def test_two_are_compared(context, saved, sights):
    one = opened(context, saved, "compare")
    one.show(view="compare", head=1)
    one.settle(250)
    assert one.page.locator(".three .matrix").count() == 3
    other = attended(1)
    change = weights(other, 0, 1) - weights(sights, 0, 1)
    packed = pack(change)
    found = one.explorer(
        "x.ask(a).then((m) => Array.from(m.map.f32))",
        {"ask": "map", "of": "difference", "sight": 0, "head": 1, "size": [T, T]},
    )
    np.testing.assert_allclose(np.array(found).reshape(T, T), unpack(packed), atol=2e-4)
    assert one.complaints == []


def test_views_are_saved_as_png_and_svg(context, saved, tmp_path):
    one = opened(context, saved, "text")
    for view in VIEWS:
        one.show(view=view)
        for kind, begin in (("PNG", b"\x89PNG"), ("SVG", b"<svg")):
            with one.page.expect_download() as started:
                one.page.get_by_role("button", name=f"Save this view as {kind}").click()
            path = tmp_path / started.value.suggested_filename
            started.value.save_as(path)
            assert path.name == f"A-keeper-{view}.{kind.lower()}"
            assert path.read_bytes().startswith(begin)
            if kind == "SVG":
                tree = ET.fromstring(path.read_text(encoding="utf-8"))  # noqa: S314 - our own
                assert len(list(tree.iter())) > 5
    assert one.complaints == []


def test_a_live_source_is_asked_for_windows(context, saved, sights):
    """What a notebook and a server do: each level is computed when it is looked at."""
    answers, asked = Answers(sights, tokens=WORDS), []

    def ask(request):
        asked.append(request)
        return answers.answer(request)

    one = opened(context, saved, "text")
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
    one.settle(250)
    windows = [x for x in asked if x["ask"] == "map" and x.get("queries")]
    a, b = windows[-1]["queries"]
    assert b - a < T
    assert windows[-1]["size"][0] == b - a  # single weights
    assert one.page.locator(".matrix").get_attribute("data-level").startswith(f"{b - a}x")
    assert one.complaints == []


def test_touch_and_a_narrow_screen(browser, saved):
    context = browser.new_context(
        viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True, offline=True
    )
    one = opened(context, saved, "text")
    one.page.locator(".word", has_text="lamp").tap()
    one.settle()
    assert one.explorer("x.state.query") == WORDS.index("lamp")
    for view in VIEWS:
        one.show(view=view)
        assert one.page.evaluate("document.documentElement.scrollWidth") <= 390
    one.show(view="matrix")
    box = one.page.locator(".matrix canvas").bounding_box()
    one.page.touchscreen.tap(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.8)
    one.settle()
    assert one.explorer("x.state.key") is not None
    one.page.evaluate(
        """() => {
          const canvas = document.querySelector(".matrix canvas");
          const { left, top } = canvas.getBoundingClientRect();
          const at = (type, pointerId, place) => canvas.dispatchEvent(new PointerEvent(type,
            { pointerId, pointerType: "touch", clientX: left + place, clientY: top + place, bubbles: true }));
          canvas.setPointerCapture = () => {};
          at("pointerdown", 1, 180);
          at("pointerdown", 2, 220);
          for (let i = 1; i < 8; i++) {
            at("pointermove", 1, 180 - 8 * i);
            at("pointermove", 2, 220 + 8 * i);
          }
          at("pointerup", 1, 120);
          at("pointerup", 2, 280);
        }"""
    )
    one.settle(250)
    assert one.explorer("x.state.queries[1] - x.state.queries[0]") < T
    assert one.complaints == []
    context.close()


def test_the_height_stays(context, saved):
    one = opened(context, saved, "text")
    for view in VIEWS:
        one.show(view=view)
        one.settle(250)
        before = one.page.evaluate("document.documentElement.scrollHeight")
        one.page.wait_for_timeout(500)
        assert one.page.evaluate("document.documentElement.scrollHeight") == before


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_serious_stands_in_anybodys_way(browser, saved, scheme):
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed"
    ).Axe()
    colours = {"runOnly": {"type": "rule", "values": ["color-contrast"]}}  # what a theme changes
    context = browser.new_context(viewport={"width": 1200, "height": 900}, color_scheme=scheme, offline=True)
    for name, views in (("text", VIEWS), ("image", ("image", "film")), ("compare", ("compare",))):
        one = opened(context, saved, name)
        for view in views:
            one.show(view=view)
            if view == "word":  # its table and the keys too
                one.page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
            found = axe.run(one.page, options=colours if scheme == "dark" else None).response["violations"]
            serious = [(v["id"], v["nodes"][0]["html"][:200]) for v in found if v["impact"] in SERIOUS]
            assert serious == [], (view, scheme)
    context.close()


def test_the_theme_may_change_while_it_is_looked_at(context, saved):
    one = opened(context, saved, "text")
    one.show(view="matrix")
    light = one.page.evaluate("document.querySelector('.matrix canvas').toDataURL()")
    one.page.emulate_media(color_scheme="dark")
    one.settle(250)
    assert one.page.evaluate("document.querySelector('.matrix canvas').toDataURL()") != light
    assert one.complaints == []
