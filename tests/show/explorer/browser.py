"""A real browser for tests: the system's Chromium, driven by Playwright; where there is none, a reason."""

import os
import shutil
from contextlib import contextmanager

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PATIENCE = 180_000  # milliseconds; only what never happens takes so long
COUNTING = """
  const open = new Set();
  window.isBusy = () => open.size > 0;
  const pairs = [["setTimeout", "clearTimeout"], ["requestAnimationFrame", "cancelAnimationFrame"]];
  for (const [begin, end] of pairs) {
    const [start, stop] = [window[begin].bind(window), window[end].bind(window)];
    window[begin] = (then, ...rest) => {
      const id = start((...args) => { open.delete(begin + id); then(...args); }, ...rest);
      open.add(begin + id);
      return id;
    };
    window[end] = (id) => { open.delete(begin + id); stop(id); };
  }
"""  # what a page has put off
CALM = """() => {
  const isCalm = !window.isBusy() && document.querySelector(".sl").dataset.waiting === "0"
    && [...document.images].every((image) => image.complete);
  window.calm = isCalm ? window.calm + 1 : 0;
  return window.calm > 2;  // frames
}"""


def chromium():
    """The path of a Chromium; the test is skipped where there is none, or no Playwright.

    CHROMIUM in the environment names another one, ``none`` leaves out what needs one.
    """
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed; pip install playwright")
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), "none")
    if found == "none":
        pytest.skip("no Chromium: install it, `apt-get install chromium`, or name one in CHROMIUM")
    return found


@contextmanager
def launched():
    """A browser without a window."""
    path = chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-gpu"]  # root may have no sandbox
        browser = playwright.chromium.launch(executable_path=path, args=options, timeout=PATIENCE)
        yield browser
        browser.close()


class Opened:
    """A page with all it complained about and all it asked the network for."""

    def __init__(self, context, url):
        self.complaints, self.requests = [], []
        self.page = context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.page.add_init_script(COUNTING)
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

    def settle(self):
        """Wait until the page does nothing any more: it waits for no answer, no timer, no frame, no image."""
        self.page.evaluate("window.calm = 0")
        self.page.wait_for_function(CALM)

    def outside(self):
        """What was asked of anything but this page."""
        return [url for url in self.requests[1:] if not url.startswith(("data:", "blob:"))]
