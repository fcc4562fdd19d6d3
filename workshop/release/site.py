"""Look at the built site in a browser: pages that load from a network, scroll sideways or fail axe-core.

    make docs && python -m workshop.release.site [--all] [--shots FOLDER]

Every chapter and the first pages of each kind, with --all every page: on a desk, in the dark and on a phone.
The search is tried from the folder, without a server. Exit code 1 if anything is found.
"""

import argparse
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright

from workshop import ROOT

SITE = ROOT / "build" / "site"
SIZES = {"desk": (1280, 900, "light"), "dark": (1280, 900, "dark"), "phone": (390, 844, "light")}


def chosen(every: bool) -> list[Path]:
    """The pages to look at."""
    pages = sorted(path for path in SITE.rglob("*.html") if path.name != "explorer_page.html")
    kinds = ("do", "know", "lookup", "source/sightline/attention")
    some = [SITE / "index.html", *(SITE / "learn").glob("*.html")]
    some += [path for kind in kinds for path in sorted((SITE / kind).glob("*.html"))[:2]]
    return pages if every else sorted(some)


def problems(page: Any, width: int) -> list[str]:
    """What is wrong with a page that is open."""
    found = []
    if page.evaluate("document.documentElement.scrollWidth") > width:
        found.append("scrolls sideways")
    for each in Axe().run(page).response["violations"]:
        told = f"{each['id']}, {len(each['nodes'])} times: {each['nodes'][0]['html'][:100]}"
        found += [told] if each["impact"] in {"serious", "critical"} else []
    return found


def main() -> int:
    """Look at the pages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--shots", type=Path)
    given = parser.parse_args()
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    found: list[str] = []
    outside: set[str] = set()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for size, (width, height, scheme) in SIZES.items():
            context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
            page = context.new_page()
            page.on("request", lambda request: outside.add(request.url))
            for path in chosen(given.all):
                page.goto(path.as_uri())
                name = str(path.relative_to(SITE))
                found += [f"{size} {name}: {problem}" for problem in problems(page, width)]
                if given.shots:
                    given.shots.mkdir(parents=True, exist_ok=True)
                    page.screenshot(path=given.shots / f"{size}_{name.replace('/', '_')}.png", full_page=True)
            if size == "desk":
                page.goto((SITE / "index.html").as_uri())
                page.get_by_role("textbox", name="Search").fill("softmax")
                page.locator(".md-search-result__item").first.wait_for(state="attached", timeout=120_000)
            context.close()
        browser.close()
    found += [
        f"loaded from elsewhere: {url}"
        for url in sorted(outside)
        if not url.startswith(("file:", "data:", "blob:"))
    ]
    sys.stdout.write(
        "\n".join([*found, f"{len(chosen(given.all))} pages in {len(SIZES)} sizes, {len(found)} findings"])
        + "\n"
    )
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
