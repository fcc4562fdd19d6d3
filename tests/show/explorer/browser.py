"""A real browser for tests: the system's Chromium, driven by Playwright; where there is none, a reason."""

import os
import shutil
from contextlib import contextmanager

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def chromium():
    """The path of a Chromium; the test is skipped where there is none, or no Playwright."""
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed; pip install playwright")
    named = os.environ.get("CHROMIUM")
    found = named or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip(f"no Chromium was found, neither in CHROMIUM nor as {', '.join(NAMES)}")
    return found


@contextmanager
def launched():
    """A browser without a window."""
    path = chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


class Opened:
    """A page with all it complained about and all it asked the network for."""

    def __init__(self, context, url):
        self.complaints, self.requests = [], []
        self.page = context.new_page()
        self.page.set_default_timeout(60_000)
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))
        self.page.goto(url)
        self.page.wait_for_selector(".sl[data-ready]")

    def _heard(self, message):
        if message.type in {"error", "warning"}:
            self.complaints.append(message.text)

    def explorer(self, script, argument=None):
        """Call the explorer of the page: ``x`` is its handle, ``a`` the argument."""
        return self.page.evaluate(
            f"async (a) => {{ const x = document.querySelector('.sl').explorer; return {script}; }}", argument
        )

    def show(self, **state):
        """Bring a state about and wait until it stands."""
        self.explorer("x.set(a)", state)
        self.settle()

    def settle(self, least=90):
        """Wait until nothing is asked any more; a view asks a moment after it stands still."""
        self.page.wait_for_timeout(least)
        self.page.wait_for_selector('.sl[data-waiting="0"]', state="attached")

    def outside(self):
        """What was asked of anything but this page."""
        return [url for url in self.requests[1:] if not url.startswith(("data:", "blob:"))]
