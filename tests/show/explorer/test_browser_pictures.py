"""The explorer in a real browser: images, films, two side by side; saved pictures, touch, nobody kept out."""

import xml.etree.ElementTree as ET

import numpy as np
import pytest
import torch

from sightline.look import palette
from tests.show.explorer.saved_pages import SHORTER, VIEWS, WORDS, T, attended, weights
from tests.show.predictions import shares

pytestmark = pytest.mark.plain
SERIOUS = {"serious", "critical"}
EVERY = {"text": VIEWS, "image": ("image", "film"), "compare": ("compare",), "lengths": ("compare",)}


def test_the_picture_is_in_colour_until_a_word_is_pointed_at(context, saved):
    one = saved.open(context, "image")
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


def test_lines_lead_to_the_patches_that_are_read(context, saved):
    one = saved.open(context, "image")
    one.show(view="lines", sight=0)
    means = shares(2, 3, 3, 35).mean((0, 1))
    read = (means >= 0.05).any(0)
    assert 0 < read.sum() < 35
    assert one.page.locator(".view-lines path").count() == (means >= 0.05).sum()
    assert one.page.locator(".view-lines text[data-side=keys]").count() == read.sum()
    assert not one.page.get_by_role("button", name="Arcs").is_visible()
    one.page.locator(".view-lines select").select_option("0.4")
    assert one.page.locator(".view-lines .readout").inner_text().startswith("No weight is 0.4 or more")
    one.show(view="word")
    assert not one.page.locator(".view-word .legend").is_visible()
    assert one.complaints == []


def test_two_are_compared(context, saved):
    one = saved.open(context, "compare")
    one.show(view="compare", head=1)
    one.settle()
    assert one.page.locator(".three .matrix").count() == 3
    other = attended(1)
    change = weights(other, 0, 1) - weights(attended(), 0, 1)
    found = one.explorer(
        "x.ask(a).then((m) => Array.from(m.map.f32))",
        {"ask": "map", "of": "difference", "sight": 0, "head": 1, "size": [T, T]},
    )
    np.testing.assert_allclose(np.array(found).reshape(T, T), change, atol=2e-4)
    assert one.complaints == []


def test_views_are_saved_as_png_and_svg(context, saved, tmp_path):
    for name, view in ((name, view) for name, views in EVERY.items() for view in views):
        one = saved.open(context, name)
        one.show(view=view)
        for kind, begin in (("PNG", b"\x89PNG"), ("SVG", b"<svg")):
            with one.page.expect_download() as started:
                one.page.get_by_role("button", name=f"Save this view as {kind}").click()
            path = tmp_path / started.value.suggested_filename
            started.value.save_as(path)
            assert path.name.endswith(f"-{view}.{kind.lower()}")
            assert path.read_bytes().startswith(begin)
            if kind == "SVG":
                tree = ET.fromstring(path.read_text(encoding="utf-8"))  # noqa: S314 - our own
                assert len(list(tree.iter())) > 5
        assert one.complaints == []


def test_touch_and_a_narrow_screen(browser, saved):
    context = browser.new_context(
        viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True, offline=True
    )
    one = saved.open(context, "text")
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
    one.settle()
    assert one.explorer("x.state.queries[1] - x.state.queries[0]") < T
    assert one.complaints == []
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_serious_stands_in_anybodys_way(browser, saved, scheme):
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed"
    ).Axe()
    colours = {"runOnly": {"type": "rule", "values": ["color-contrast"]}}  # what a theme changes
    context = browser.new_context(viewport={"width": 1200, "height": 900}, color_scheme=scheme, offline=True)
    for name, views in EVERY.items():
        one = saved.open(context, name)
        for view in views:
            one.show(view=view)
            if view in {"word", "film"}:  # its table and the keys too
                one.page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
            found = axe.run(one.page, options=colours if scheme == "dark" else None).response["violations"]
            serious = [(v["id"], v["nodes"][0]["html"][:200]) for v in found if v["impact"] in SERIOUS]
            assert serious == [], (view, scheme)
    context.close()


def test_two_of_different_length_are_linked_by_their_words(context, saved):
    one = saved.open(context, "lengths", "view=compare")
    one.settle()
    assert one.page.locator(".three .one:visible").count() == 2
    note = one.page.locator(".view-compare .note").first.inner_text()
    assert note.startswith(f"The difference needs as many queries and keys in both: long has {T} and {T}")
    assert one.page.locator(".menu:has(> span:text-is('Of'))").is_hidden()
    first, second = (one.page.locator(".three .matrix").nth(i) for i in (0, 1))
    at, middle = (WORDS.index("lamp"), WORDS.index("because")), T // 2
    first.locator("canvas").focus()
    for place, keys in zip(at, (("ArrowUp", "ArrowDown"), ("ArrowLeft", "ArrowRight")), strict=True):
        for _ in range(abs(place - middle)):
            one.page.keyboard.press(keys[place > middle])
    one.settle()
    assert first.locator(".readout").inner_text().startswith(f"lamp ({at[0]}) → because ({at[1]}): ")
    q, k = SHORTER.index("lamp"), SHORTER.index("because")
    assert second.locator(".readout").inner_text().startswith(f"lamp ({q}) → because ({k}): ")
    other = attended(3, len(SHORTER), layers=2)
    mean = (weights(other, 0, 0) + weights(other, 0, 1)) / 2
    assert float(second.get_attribute("data-weight")) == pytest.approx(float(mean[q, k]), abs=1e-4)
    one.show(view="word", of=1, query=q)
    assert one.page.locator(".word").all_text_contents() == SHORTER
    one.show(of="difference")
    assert one.explorer("x.state.of") == 0
    one.show(view="compare", of=0, sight=2)
    assert "short has 2 layers, long 3" in one.page.locator(".view-compare .note").first.inner_text()
    assert one.page.locator(".three .one:visible").count() == 1
    assert one.complaints == []


def test_a_region_says_who_looked_there(context, saved):
    one = saved.open(context, "image", "sight=0")
    box = one.page.locator(".view-image .main .picture").bounding_box()

    def middle(row, column):
        return box["x"] + (column + 0.5) * box["width"] / 7, box["y"] + (row + 0.5) * box["height"] / 5

    one.page.mouse.move(*middle(1, 2))
    one.page.mouse.down()
    one.page.mouse.move(*middle(3, 5), steps=5)
    one.page.mouse.up()
    one.settle()
    mean = shares(2, 3, 3, 35).mean((0, 1)).view(3, 5, 7)[:, 1:4, 2:6].sum((1, 2))
    best = int(mean.argmax())
    text = f"Here looked most: {('a', 'small', 'dog')[best]} {float(mean[best]):.3f}"
    assert one.page.locator(".who").inner_text().startswith(text)
    one.page.locator(".view-image .main .picture").focus()
    one.page.keyboard.press("Escape")
    assert one.page.locator(".who").inner_text().strip() == ""
    assert one.complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_colours_are_the_palette_s(browser, saved, scheme):
    context = browser.new_context(color_scheme=scheme, reduced_motion="reduce", offline=True)
    one = saved.open(context, "text", f"sight=1&head=1&query={T - 1}")
    one.settle()
    row = torch.tensor(weights(attended(), 1, 1)[T - 1])
    for i in (int(row.argmax()), int(row.argsort()[-3])):
        expected = palette.weight(float(row[i] / row.max()) ** 0.8, dark=scheme == "dark")
        style = f"getComputedStyle(document.querySelectorAll('.word')[{i}]).backgroundColor"
        found = [int(x) for x in one.page.evaluate(style)[4:-1].split(",")]
        assert max(abs(a - b) for a, b in zip(found, expected, strict=True)) <= 3, (found, expected)
    context.close()
