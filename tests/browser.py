"""A real browser in tests: the system's Chromium, driven by Playwright, with no way out of this machine."""

import contextlib
import os
import shutil

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium():
    """The path of a browser, or a skip that says why there is none."""
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed; pip install playwright")
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip(f"there is no browser here, looked for {', '.join(NAMES)}")
    return found


@contextlib.contextmanager
def open_browser():
    """A browser that runs without a window."""
    path = chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = driver.chromium.launch(executable_path=path, args=sandbox)
        yield browser
        browser.close()
