"""Record a walk through the saved page of the explorer: words, heads, and the matrix down to single weights.

Usage: python -m workshop.figures.recording_explorer [PICTURE]

It needs playwright, pillow and a Chromium on this machine; the page is docs/explorer_page.html.
"""

import io
import os
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from workshop import DOCS

SIZE = (960, 640)
LINGER, STEP = 1800, 320  # milliseconds
HEAD = "sight=1&head=3"
N, TO = 96, (20, 34, 18, 32)  # the first and the last window of the zoom: queries and keys


def walk() -> list[tuple[str, int]]:
    """The addresses of the views, each with how long it stays."""
    words = [(f"sight=2&head=9&query={query}", STEP * 2) for query in (12, 20, 28, 35, 43)]
    zoom = []
    for i in range(9):
        share = (i / 8) ** 0.5
        a, b, c, d = (round(s + (e - s) * share) for s, e in zip((0, N, 0, N), TO, strict=True))
        zoom.append((f"view=matrix&{HEAD}&query=24&key=22&queries={a}-{b}&keys={c}-{d}", STEP))
    words[-1] = (words[-1][0], LINGER)
    zoom[0] = (f"view=matrix&{HEAD}&query=24&key=22", LINGER)
    zoom[-1] = (zoom[-1][0], LINGER)
    return [*words, ("view=overview", LINGER), *zoom]


def main() -> None:
    """Write the recording."""
    picture = Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS / "pictures/explorer.webp"
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    frames = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        context = browser.new_context(viewport={"width": SIZE[0], "height": SIZE[1]}, offline=True)
        for address, _ in walk():
            page = context.new_page()
            page.goto(f"{(DOCS / 'explorer_page.html').as_uri()}#{address}")
            page.wait_for_selector(".sl[data-ready]")
            page.wait_for_timeout(900)
            frames.append(Image.open(io.BytesIO(page.screenshot())).convert("RGB"))
            page.close()
        browser.close()
    how = {"duration": [stay for _, stay in walk()], "loop": 0, "quality": 72, "method": 6}
    frames[0].save(picture, save_all=True, append_images=frames[1:], **how)
    sys.stdout.write(f"{picture}: {len(frames)} frames, {picture.stat().st_size >> 10} kB\n")


if __name__ == "__main__":
    main()
