"""Measure a recurrent layer beside an attention layer over the length of the sequence, and draw both.

Usage: python -m workshop.figures.time_over_length measure [--device cuda] [--json FILE]  adds to FILE
       python -m workshop.figures.time_over_length draw [--json FILE] [--out PICTURE]

One layer each, forward, batch 1, width 256: torch's GRU, which takes T steps one after the other, and
self-attention with 4 heads, which compares T x T pairs at once.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn

import sightline as sl
from sightline.show.style import ACCENT, MAIN, SOFT
from workshop import PICTURES

HERE = Path(__file__).parent
WIDTH, HEADS = 256, 4
LENGTHS = [64, 128, 256, 512, 1024, 2048, 4096, 8192]
FURTHER = [16384, 32768]  # on a GPU
COLOURS = {"recurrent": ACCENT, "attention": MAIN}
NAMES = {"recurrent": "GRU: T steps, one after the other", "attention": "self-attention: T x T pairs at once"}


def layers(device: str) -> dict[str, Callable[[Tensor], Tensor]]:
    """What is measured, by name."""
    gru = nn.GRU(WIDTH, WIDTH, batch_first=True, device=device)
    attend = sl.nn.MultiheadAttention(WIDTH, HEADS, batch_first=True, device=device)
    return {
        "recurrent": lambda x: gru(x)[0],
        "attention": lambda x: attend(x, x, x, need_weights=False)[0],
    }


def seconds(call: Callable[[Tensor], Tensor], x: Tensor) -> float:
    """The median time of a call, after two to warm up: of the GPU, or of the one core that is used."""
    clock = time.perf_counter if x.is_cuda else time.process_time  # others may use the machine too
    times: list[float] = []
    while len(times) < 7 and sum(times) < 2:
        if x.is_cuda:
            torch.cuda.synchronize()
        start = clock()
        call(x)
        if x.is_cuda:
            torch.cuda.synchronize()
        times.append(clock() - start)
    return statistics.median(times[2:] or times)


@torch.no_grad()
def measure(device: str) -> dict[str, dict[str, float]]:
    """Seconds by layer and length."""
    torch.manual_seed(0)
    found: dict[str, dict[str, float]] = {}
    for name, call in layers(device).items():
        found[name] = {}
        for length in LENGTHS + (FURTHER if device == "cuda" else []):
            found[name][str(length)] = seconds(call, torch.randn(1, length, WIDTH, device=device))
            print(f"{device} {name} T={length}: {found[name][str(length)] * 1e3:.3g} ms", flush=True)
    return found


def draw(measured: dict[str, dict[str, dict[str, float]]]) -> Figure:
    """A panel for each machine, both axes logarithmic."""
    figure = Figure(figsize=(4.8 * len(measured), 4.0), dpi=150, layout="constrained")
    panels = figure.subplots(1, len(measured), squeeze=False)[0]
    for axes, (machine, curves) in zip(panels, sorted(measured.items()), strict=True):
        for name, curve in curves.items():
            lengths = [int(t) for t in curve]
            times = [1e3 * curve[str(t)] for t in lengths]
            axes.plot(lengths, times, "o-", color=COLOURS[name], label=NAMES[name], markersize=4)
        slopes(axes, curves)
        axes.set(xscale="log", yscale="log", xlabel="length T", ylabel="milliseconds", title=machine)
        axes.set_xticks([64, 512, 4096, 32768], ["64", "512", "4,096", "32,768"])
        axes.minorticks_off()
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    panels[0].legend(frameon=False, fontsize=9)
    return figure


def slopes(axes: Axes, curves: dict[str, dict[str, float]]) -> None:
    """Thin lines through the last points that grow like T and like T squared."""
    for name, power, words, place in (
        ("recurrent", 1, "grows like T", (-10, 8)),
        ("attention", 2, "grows like T²", (12, -9)),
    ):
        last = max(map(int, curves[name]))
        end = 1e3 * curves[name][str(last)]
        lengths = [last // 16, last]
        axes.plot(lengths, [end * (t / last) ** power for t in lengths], ":", color=SOFT, linewidth=1)
        axes.annotate(
            words,
            (lengths[0], end / 16**power),
            textcoords="offset points",
            xytext=place,
            ha="right" if place[0] < 0 else "left",
            fontsize=8,
            color=SOFT,
        )


def main() -> None:
    """Measure or draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["measure", "draw"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path, default=HERE / "time_over_length.json")
    parser.add_argument("--out", type=Path, default=PICTURES / "time_over_length.png")
    given = parser.parse_args()
    measured = json.loads(given.json.read_text()) if given.json.exists() else {}
    if given.what == "measure":
        machine = torch.cuda.get_device_name() if given.device == "cuda" else "one CPU core"
        torch.set_num_threads(1)
        measured[machine] = measure(given.device)
        given.json.write_text(json.dumps(measured, indent=1) + "\n")
        return
    draw(measured).savefig(given.out, dpi=100)
    print(given.out)


if __name__ == "__main__":
    main()
