"""A real Jupyter Lab opens a notebook, and what was seen shows itself: live, and as high as before."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.show.explorer.browser import chromium, launched

pytestmark = pytest.mark.plain
ROOT = Path(__file__).parents[3]
WORDS = "the keeper walked down to the sea".split()  # noqa: SIM905
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


@pytest.fixture
def lab(tmp_path):
    """The address of a Jupyter Lab with one notebook."""
    pytest.importorskip("jupyterlab", reason="jupyterlab is not installed; pip install jupyterlab ipykernel")
    pytest.importorskip("anywidget")
    chromium()
    cell = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": CELL}
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    notebook = {"cells": [cell], "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "seen.ipynb").write_text(json.dumps(notebook))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    own = {name: str(tmp_path / name) for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")}
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", f"--port={port}", "--allow-root"]
    command += ["--IdentityProvider.token=", f"--ServerApp.root_dir={tmp_path}", "--LabApp.news_url=None"]
    log = (tmp_path / "log").open("w")
    server = subprocess.Popen(command, env=os.environ | own, stdout=log, stderr=log)  # noqa: S603
    try:
        _wait(f"http://127.0.0.1:{port}/api", 60)
        yield f"http://127.0.0.1:{port}/lab/tree/seen.ipynb"
    finally:
        server.terminate()
        server.wait(30)
        log.close()


def _wait(url, seconds):
    until = time.monotonic() + seconds
    while not _answers(url):
        assert time.monotonic() < until, f"{url} did not answer within {seconds} s"
        time.sleep(0.5)


def _answers(url):
    try:
        urllib.request.urlopen(url).close()  # noqa: S310 - loopback
    except (urllib.error.URLError, ConnectionError):
        return False
    return True


def test_a_notebook_shows_what_was_seen(lab):
    with launched() as browser:
        page = browser.new_page(viewport={"width": 1300, "height": 1000})
        outside = []
        page.on("request", lambda request: outside.append(request.url))
        page.set_default_timeout(120_000)
        page.goto(lab, wait_until="domcontentloaded")
        page.wait_for_selector(".jp-CodeCell .cm-content")
        page.wait_for_timeout(3000)
        page.click(".jp-CodeCell .cm-content")
        page.keyboard.press("Shift+Enter")
        page.wait_for_selector(".sl ol.links li")
        assert page.locator(".sl .word").all_text_contents() == WORDS
        height = page.locator(".sl").bounding_box()["height"]
        page.locator(".sl .tabs button", has_text="Matrix").click()
        page.wait_for_selector(".sl .matrix canvas")
        page.locator(".sl .tabs button", has_text="Words").click()
        page.wait_for_timeout(10_000)
        assert page.locator(".sl").bounding_box()["height"] == height
        local = ("http://127.0.0.1", "data:", "blob:")
        assert [url for url in outside if not url.startswith(local)] == []
