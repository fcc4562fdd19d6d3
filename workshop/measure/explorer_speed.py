"""Measure the explorer: a saved page's size and how fast it opens and pans; windows of a long text.

Usage: python -m workshop.measure.explorer_speed [--tokens 32768] [--device cuda]

One core computes. The browser's part needs playwright and a Chromium; without them it says that it is left
out.
"""

import argparse
import importlib.util
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import torch

import sightline as sl
from sightline import show
from sightline.show.explorer import Answers
from sightline.show.explorer.arrays import unpack

LAYERS, HEADS, WIDTH = 12, 12, 64  # GPT-2's
SHORT, WINDOW, SIDE, TIMES, SECONDS = 128, 4096, 256, 50, 5


def attended(n: int, heads: int = HEADS, device: str = "cpu") -> sl.Sight:
    """Causal attention of random queries and keys, of GPT-2's shape; in half precision on a GPU."""
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    q, k, v = torch.randn(3, 1, heads, n, WIDTH, device=device, dtype=dtype).unbind()
    return sl.look(q, k, v, sl.masks.causal())


def saved_page() -> None:
    """The size of a page of 12 layers x 12 heads x 128 tokens, how fast it opens, frames while it pans."""
    sights = {f"h.{i}.attn": attended(SHORT) for i in range(LAYERS)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.html"
        show.page(sights, tokens=[f"word{i}" for i in range(SHORT)]).save(path)
        print(f"saved page of {LAYERS} x {HEADS} x {SHORT}: {path.stat().st_size / 1e6:.2f} MB")
        chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
        if chromium is None or importlib.util.find_spec("playwright") is None:
            print("not opened: playwright or a Chromium is missing")
            return
        from playwright.sync_api import sync_playwright  # noqa: PLC0415

        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
            )
            page = browser.new_page(viewport={"width": 1200, "height": 900})
            counters = page.context.new_cdp_session(page)
            counters.send(
                "Performance.enable", {"timeDomain": "threadTicks"}
            )  # of the processor, not the clock
            started = time.perf_counter()
            page.goto(path.as_uri())
            page.wait_for_selector("ol.links li")
            spent = time.perf_counter() - started
            metrics = counters.send("Performance.getMetrics")["metrics"]
            busy = next(x["value"] for x in metrics if x["name"] == "TaskDuration")
            print(
                f"  opens in {spent:.2f} s, until a word's links are there; its thread computes {busy:.2f} s"
            )
            frames = page.evaluate(f"document.querySelector('.sl').explorer.measure({SECONDS})")
            print(f"  {frames:.1f} frames a second while panning, median over {SECONDS} s")
            browser.close()


def long_text(n: int, device: str) -> None:
    """A window of a long text, from one head, and single weights beside the rows of the sight."""
    sight = attended(n, 1, device)
    started, busy = time.perf_counter(), time.process_time()
    answers = Answers(sight, tokens=[f"word{i}" for i in range(n)])
    answers.meta()
    answers.answer({"ask": "overview", "size": 64})
    answers.answer({"ask": "map", "size": [512, 512], "quick": True})
    spent, computed = time.perf_counter() - started, time.process_time() - busy
    print(f"{n} tokens: what the first paint asks takes {spent:.2f} s, of which {computed:.2f} s on the core")
    first = n - 2 * WINDOW
    request = {
        "ask": "map",
        "head": 0,
        "queries": [first + WINDOW, n],
        "keys": [0, WINDOW],
        "size": [SIDE, SIDE],
    }
    wall, cpu = [], []
    for _ in range(TIMES):
        started, busy = time.perf_counter(), time.process_time()
        answers.answer(request)
        wall.append(time.perf_counter() - started)
        cpu.append(time.process_time() - busy)
    spent, computed = (1e3 * statistics.median(times) for times in (wall, cpu))
    print(f"  {SIDE} x {SIDE} of a {WINDOW} x {WINDOW} window, median of {TIMES}:")
    print(f"  {spent:.0f} ms, of which {computed:.0f} ms on the core")
    deepest = answers.answer(
        {"ask": "map", "head": 0, "queries": [n - 7, n], "keys": [100, 111], "size": [7, 11]}
    )
    rows = sight.rows(list(range(n - 7, n)))[0, 0, :, 100:111].cpu()
    worst = float((torch.tensor(unpack(deepest["map"])) - rows).abs().max())
    print(f"  single weights differ from the rows of the sight by {worst:.1e} at most")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=32_768)
    parser.add_argument("--device", default="cpu", help="where the long text is: cpu or cuda")
    chosen = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    saved_page()
    long_text(chosen.tokens, chosen.device)
