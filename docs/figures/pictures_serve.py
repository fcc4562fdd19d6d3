# ruff: noqa: INP001, S603
"""Draw the pictures of docs/do/serve.md with Chromium.

Usage: python docs/figures/pictures_serve.py runs/demo
"""

import argparse
import io
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright
from rich.console import Console

from sightline.cli.blocks import print_attention
from sightline.tasks.run import open_run

PICTURES = Path(__file__).parents[1] / "pictures"
EXAMPLE, WORD = 5, "checkered"
DARK = "background: #14151a; color: #ddd; padding: 14px; font: 14px/16.4px 'DejaVu Sans Mono', monospace;"


def main() -> None:
    """Draw all of them."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("run", type=Path)
    run = options.parse_args().run
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        draw_page(browser, run)
        draw_terminal(browser, run)
        browser.close()


def draw_page(browser: Any, run: Path) -> None:
    """The served page after a click on an example and on a word."""
    command = [sys.executable, "-m", "sightline", "serve", str(run), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None  # noqa: S101
            address = server.stdout.readline().strip()
            page = browser.new_page(viewport={"width": 1060, "height": 1160}, reduced_motion="reduce")
            page.goto(address)
            page.locator("#example-list button").nth(EXAMPLE).click()
            page.wait_for_selector(".sl[data-ready]")
            page.locator(".view-image [role=option]", has_text=WORD).first.click()
            page.wait_for_timeout(800)  # until the picture is lit
            page.evaluate("scrollTo(0, 0)")
            page.screenshot(path=PICTURES / "serve_page.png")
            page.close()
        finally:
            server.terminate()


def draw_terminal(browser: Any, run: Path) -> None:
    """What ``sightline look --text`` draws."""
    opened = open_run(run, "cpu")
    (prediction,) = opened.predict([run / "sample.png"])
    console = Console(
        file=io.StringIO(), record=True, width=90, force_terminal=True, color_system="truecolor"
    )
    console.print(f"$ sightline look {run.name} sample.png --text")
    console.print(prediction.text)
    assert prediction.attention is not None  # noqa: S101 - it was asked for
    print_attention(console, prediction.attention, heads=False)
    text = console.export_html(inline_styles=True, code_format=f'<pre style="{DARK}">{{code}}</pre>')
    page = browser.new_page(viewport={"width": 830, "height": 300})
    page.set_content(f'<body style="margin: 0">{text}')
    page.locator("pre").screenshot(path=PICTURES / "look_text.png")
    page.close()


if __name__ == "__main__":
    main()
