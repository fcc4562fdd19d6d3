"""The served page in a real browser: what a person does with it, by mouse, by keyboard, on a phone."""

import base64
import contextlib
import threading
from concurrent.futures import Future
from pathlib import Path

import pytest

import sightline as sl
from sightline.serve.app import Service
from sightline.serve.limits import Limits
from sightline.serve.model import open_model
from sightline.serve.server import Server, bind
from tests.serve.conftest import png
from tests.show.explorer.browser import PATIENCE, launched

FIXTURES = Path(__file__).parents[1] / "fixtures" / "written_by_0_1"
pytestmark = pytest.mark.plain


@pytest.fixture(scope="module")
def browser():
    with launched() as browser:
        yield browser


@contextlib.contextmanager
def served(name, **options):
    """The address of a server of a small run, in a thread."""
    model = open_model(FIXTURES / name / "finished")
    examples = Future()
    examples.set_result(model.examples())
    service = Service(model=model, examples=examples, **options)
    ready = threading.Event()
    with bind("127.0.0.1", 0) as listening:
        server = Server(service, ready.set)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        assert ready.wait(60)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/{service.access.token}/"
        server.stop()
        thread.join(30)
    service.worker.stop()


@pytest.fixture(scope="module")
def address():
    with served("caption") as address:
        yield address


@pytest.fixture
def page(browser, address):
    with open_page(browser, address) as page:
        yield page


@contextlib.contextmanager
def open_page(browser, address):
    """The page, freshly opened; at the end it has said nothing on the console, and asked nobody else."""
    context = browser.new_context(viewport={"width": 1200, "height": 900}, reduced_motion="reduce")
    context.set_default_timeout(PATIENCE)
    page, said, asked = context.new_page(), [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(address)
    page.wait_for_selector("#example-list button")
    yield page
    context.close()
    noted = ("status of 4", "Executing inline script violates")  # the browser notes every refusal
    assert [text for text in said if not any(words in text for words in noted)] == []
    assert all(url.startswith((address, "data:", "blob:")) for url in asked)


def result_of(page):
    page.wait_for_selector("#result:not([hidden])[aria-busy=false] .sl[data-ready]")
    return page.locator("#output").inner_text()


def test_a_click_on_an_example_shows_the_caption_and_where_each_word_looked(page):
    page.locator("#example-list button").nth(2).click()
    text = result_of(page)
    run = sl.open_run(FIXTURES / "caption" / "finished")
    example = list(run.predictor.examples(run.dataset(), "test", 3))[2]
    (prediction,) = run.predictor.predict([example], run.task.predict_options(), attention=True)
    assert text == prediction.text
    assert page.locator("#example-list button[aria-pressed=true]").count() == 1
    page.locator(".view-image [role=option]").nth(1).click()
    page.wait_for_selector(".view-image[data-weight]")
    shown = float(page.locator(".view-image").get_attribute("data-weight"))
    assert shown == pytest.approx(float(prediction.attention.summary[1].max()), abs=1e-5)
    assert page.evaluate("document.activeElement !== document.body")


def readable_example(page):
    """An example that the small translator has all tokens for."""
    tokens = sl.open_run(FIXTURES / "translate" / "finished").predictor.tokens
    return next(
        x for x in page.locator("#example-list button").all_inner_texts() if tokens.unknown(x) is None
    )


def state_of(page):
    """The state that the address brings back, once the view has written it."""
    page.wait_for_selector('.sl[data-waiting="0"]', state="attached")
    return dict(part.split("=") for part in page.evaluate("location.hash.slice(1)").split("&"))


def test_a_picture_opens_in_colour(browser, address):
    context = browser.new_context()  # and moves, where motion is welcome
    page = context.new_page()
    page.goto(address)
    page.locator("#example-list button").first.click()
    result_of(page)
    page.wait_for_timeout(1000)
    assert not page.locator(".view-image .main .picture canvas").is_visible()
    assert page.locator(".view-image [aria-selected=true]").count() == 0
    page.locator(".view-image [role=option]").first.hover()
    page.locator(".view-image .main .picture canvas").wait_for()
    context.close()


def test_the_address_of_a_result_brings_its_view_back_while_it_is_kept(browser):
    with served("translate", limits=Limits(kept=1)) as address, open_page(browser, address) as page:
        given = readable_example(page)
        page.locator("#text").fill(given)
        page.locator("#send").click()
        text = result_of(page)
        page.locator(".tabs [data-view=matrix]").click()
        page.locator(".matrix canvas").focus()
        for key in ("ArrowDown", "+", "Enter"):
            page.keyboard.press(key)
        page.wait_for_url(lambda now: "queries=" in now)
        state, url = state_of(page), page.url
        assert {"look", "view", "query", "key", "queries", "keys"} <= set(state)
        page.reload()
        copied = page.context.new_page()
        copied.goto(url)
        for one in (page, copied):
            assert result_of(one) == text
            assert one.locator("#text").input_value() == given
            assert one.locator(".view-matrix").is_visible()
            assert state_of(one) == state
        copied.close()
        page.locator("#text").fill(f"{given} {given}")
        page.locator("#send").click()
        page.wait_for_url(lambda now: state["look"] not in now)
        assert result_of(page)
        page.go_back()
        page.wait_for_selector("#problem:not([hidden])")
        page.reload()
        page.wait_for_selector("#problem:not([hidden])")
        sentence = "This result is no longer kept, only the last ones are; give the input once more."
        assert page.locator("#problem").inner_text() == sentence
        assert page.locator("#text-form").is_visible()


def test_a_file_is_given_by_keyboard_and_by_dropping_it(page, tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(png(60, 40))
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "file"
    page.locator("#file").set_input_files(path)
    first = result_of(page)
    data = base64.b64encode(png(60, 40)).decode()
    page.evaluate(
        """(data) => {
            const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
            const transfer = new DataTransfer();
            transfer.items.add(new File([bytes], "b.png", { type: "image/png" }));
            for (const name of ["dragenter", "dragover", "drop"]) {
                const options = { bubbles: true, cancelable: true, dataTransfer: transfer };
                document.body.dispatchEvent(new DragEvent(name, options));
            }
        }""",
        data,
    )
    page.wait_for_selector("body.busy")
    assert result_of(page) == first
    assert not page.evaluate("document.body.classList.contains('dropping')")


def test_what_is_no_picture_is_answered_by_a_sentence(page, tmp_path):
    path = tmp_path / "<b>.png"
    path.write_bytes(b"<script>alert(1)</script>")
    page.locator("#file").set_input_files(path)
    page.wait_for_selector("#problem:not([hidden])")
    assert page.locator("#problem").inner_text() == "'upload' is not an image that can be read; it is text."
    assert page.locator("#problem").get_attribute("role") == "alert"
    path.write_bytes(bytes(9_000_000))
    page.locator("#file").set_input_files(path)
    page.locator("#problem", has_text="A file may have").wait_for()
    page.locator("#example-list button").first.click()
    result_of(page)
    assert page.locator("#problem").is_hidden()


@pytest.mark.parametrize("width", [390, 1600])
def test_the_page_fits_its_width(page, width):
    page.set_viewport_size({"width": width, "height": 800})
    page.locator("#example-list button").first.click()
    result_of(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    small = page.evaluate(
        "[...document.querySelectorAll('#example-list button, .primary')].filter((x) => x.offsetParent)"
        ".filter((x) => x.getBoundingClientRect().height < 40).length"
    )
    assert small == 0


def test_everything_has_a_name_for_a_screen_reader(page):
    page.locator("#example-list button").first.click()
    result_of(page)
    unnamed = page.evaluate(
        """[...document.querySelectorAll("button, input, select, textarea, [role=tab]")].filter((x) =>
            x.offsetParent && !x.textContent.trim() && !x.labels?.length && !x.getAttribute("aria-label") &&
            !x.querySelector("img[alt]:not([alt=''])")).map((x) => x.outerHTML)"""
    )
    assert unnamed == []
    headings = page.evaluate(
        "[...document.querySelectorAll('h1')].filter((x) => x.offsetParent).map((x) => x.id)"
    )
    assert headings == ["question"]
    assert page.locator("html[lang=en]").count() == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_serious_stands_in_anybodys_way(page, scheme):
    module = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe-playwright-python is missing"
    )
    page.emulate_media(color_scheme=scheme)
    transitions = "document.getAnimations().filter(one => one instanceof CSSTransition)"  # of colours
    page.evaluate(f"Promise.all({transitions}.map(one => one.finished)).then(() => null)")

    def violations():
        found = module.Axe().run(page).response["violations"]
        grave = [x for x in found if x["impact"] in {"serious", "critical"}]
        return [(x["id"], x["nodes"][0]["html"][:200], x["nodes"][0]["failureSummary"]) for x in grave]

    assert violations() == []
    page.locator("#example-list button").first.click()
    result_of(page)
    page.evaluate("document.getElementById('others').open = true")
    assert violations() == []


def test_the_policy_holds_against_a_script_in_the_page(page):
    page.evaluate(
        """() => {
            const script = document.createElement("script");
            script.textContent = "window.broken = true";
            document.body.append(script);
        }"""
    )
    assert page.evaluate("window.broken") is None


def test_a_text_is_typed_and_read_and_an_error_of_the_model_is_a_sentence(browser):
    with served("translate") as address, open_page(browser, address) as page:
        run = sl.open_run(FIXTURES / "translate" / "finished")
        text = readable_example(page)
        page.locator("#text").fill(text)
        page.keyboard.press("Control+Enter")
        (prediction,) = run.predict([text])
        assert result_of(page) == prediction.text
        page.locator("#text").fill("\u2603")
        page.locator("#send").click()
        page.wait_for_selector("#problem:not([hidden])")
        assert "no token for the character" in page.locator("#problem").inner_text()
        page.locator("#text").fill("  ")
        page.locator("#send").click()
        page.locator("#problem", has_text="There is nothing").wait_for()


def test_a_page_whose_server_began_anew_says_what_to_do(browser, address):
    context = browser.new_context()
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("#example-list button")
    page.evaluate("history.replaceState(null, '', '/another-token/')")
    page.locator("#file").set_input_files({"name": "a.png", "mimeType": "image/png", "buffer": png()})
    page.locator("#problem", has_text="Use the whole address that the server printed").wait_for()
    context.close()
