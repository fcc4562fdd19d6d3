"""Draw the picture of docs/do/serve.md with Chromium.

Usage: python -m workshop.figures.pictures_serve runs/demo
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from workshop import PICTURES

EXAMPLE, WORD = 5, "checkered"


def main() -> None:
    """Draw it."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("run", type=Path)
    run = options.parse_args().run
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        draw_page(browser, run)
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


if __name__ == "__main__":
    main()
