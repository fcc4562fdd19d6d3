"""Real notebooks are opened, and what was seen shows itself: live, as high as before, asking nobody outside.

``python -m workshop.release.lab`` installs them; where they are not, these tests are skipped.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

from tests.show.explorer.browser import chromium, launched
from workshop import ROOT

WORDS = "the keeper walked down to the sea".split()  # noqa: SIM905
PATIENCE = 180  # seconds: a kernel has to import torch
CELL = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import torch, sightline as sl
layer = torch.nn.TransformerEncoderLayer(32, 4, batch_first=True)
model = torch.nn.TransformerEncoder(layer, 2).eval()
with sl.watch(model, keep=True, tokens={WORDS!r}) as seen:
    model(torch.randn(1, 7, 32))
seen
"""


@contextlib.contextmanager
def running(module, arguments, folder, path):
    """A server of notebooks in a folder, until it answers; gives its address."""
    pytest.importorskip(module, reason=f"{module} is not installed; see workshop/release/lab.py")
    pytest.importorskip("anywidget")
    chromium()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    own = {name: str(folder / name) for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")}
    command = [sys.executable, "-m", module, *arguments, f"--port={port}"]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(command, cwd=folder, env=os.environ | own, stdout=log, stderr=log)
        try:
            _wait(f"http://127.0.0.1:{port}{path}")
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(30)


def _wait(url):
    until = time.monotonic() + PATIENCE
    while not _answers(url):
        assert time.monotonic() < until, f"{url} did not answer within {PATIENCE} s"
        time.sleep(0.5)


def _answers(url):
    try:
        urllib.request.urlopen(url).close()  # noqa: S310 - loopback
    except (urllib.error.URLError, ConnectionError):
        return False
    return True


@contextlib.contextmanager
def opened(url):
    """A page; at its end it has asked nobody but this machine."""
    with launched() as browser:
        page, asked = browser.new_page(viewport={"width": 1300, "height": 1000}), []
        page.on("request", lambda request: asked.append(request.url))
        page.set_default_timeout(1000 * PATIENCE)
        page.goto(url, wait_until="domcontentloaded")
        yield page
        local = ("http://127.0.0.1", "data:", "blob:")
        assert [url for url in asked if not url.startswith(local)] == []


def walk_through(page):
    """The views answer: words, a zoomed matrix; and after ten seconds the widget is as high as it was."""
    page.wait_for_selector(".sl ol.links li")
    assert page.locator(".sl .word").all_text_contents() == WORDS
    height = page.locator(".sl").bounding_box()["height"]
    page.locator(".sl .tabs button", has_text="Matrix").click()
    page.locator(".sl .matrix canvas").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("+")
    page.wait_for_selector(".sl .matrix[data-level*=' of ']")
    page.locator(".sl .tabs button", has_text="Words").click()
    page.wait_for_timeout(10_000)
    assert page.locator(".sl").bounding_box()["height"] == height


def test_jupyter_lab_shows_what_was_seen(tmp_path):
    cell = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": CELL}
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    notebook = {"cells": [cell], "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "seen.ipynb").write_text(json.dumps(notebook))
    arguments = ["--no-browser", "--allow-root", "--IdentityProvider.token=", "--LabApp.news_url=None"]
    with (
        running("jupyterlab", arguments, tmp_path, "/api") as address,
        opened(f"{address}/lab/tree/seen.ipynb") as page,
    ):
        page.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status=idle]")
        for _ in range(PATIENCE // 5):  # a cell that is run before its kernel listens is not run at all
            page.locator(".jp-CodeCell .cm-content").first.click()
            page.keyboard.press("Shift+Enter")
            page.wait_for_timeout(5000)
            if page.locator(".jp-InputArea-prompt").first.inner_text() != "[ ]:":
                break
        walk_through(page)


def test_marimo_shows_what_was_seen(tmp_path):
    body = "".join(f"    {line}\n" for line in CELL.strip().splitlines())
    (tmp_path / "seen.py").write_text(
        f"import marimo\n\napp = marimo.App()\n\n@app.cell\ndef _():\n{body}    return\n"
    )
    arguments = ["run", "seen.py", "--headless", "--no-token", "--host=127.0.0.1"]
    with running("marimo", arguments, tmp_path, "/") as address, opened(address) as page:
        walk_through(page)
