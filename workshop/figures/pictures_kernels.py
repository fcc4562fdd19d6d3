"""Make the picture of what seeing costs over the length, from the measurements of a GPU.

Usage: python -m workshop.figures.pictures_kernels [JSON] [FOLDER]

JSON is what `python -m benchmarks look --device cuda --json JSON` writes; default: look-h200.json of
benchmarks/results.
"""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from sightline.show.style import ACCENT, LINE, MAY_LOOK, SOFT, style
from workshop import PICTURES, ROOT

SERIES = re.compile(r"look beside blind and eager .*\bT=(\d+)\b")
LINES = {  # contestant: its name here, its colour
    "eager": ("eager", ACCENT),
    "sightline": ("seen", MAY_LOOK),
    "blind": ("blind", SOFT),
}
INK = SOFT

Written = Callable[[float], str]
Curves = dict[str, dict[int, tuple[float, float]]]  # contestant -> T -> milliseconds, bytes


def read(path: Path) -> tuple[Curves, str]:
    """The three curves, and the machine they were measured on; leaves with a sentence if there are none."""
    report = json.loads(path.read_text(encoding="utf-8"))
    curves: Curves = {name: {} for name in LINES}
    for case in report["cases"]:
        found = SERIES.search(case["case"])
        for result in case["results"] if found else ():
            measured = result["milliseconds"], result["peak_bytes"]
            if found and result["contestant"] in curves and None not in measured:
                curves[result["contestant"]][int(found[1])] = measured
    if not curves["sightline"] or not curves["blind"]:
        sys.exit(
            f"{path} has no cases 'look beside blind and eager', got {len(report['cases'])} others; "
            f"measure them with `python -m benchmarks look --device cuda --json {path}`"
        )
    return curves, report["machine"]["devices"].get("cuda", "a GPU")


def drawn(curves: Curves, machine: str) -> Figure:
    """Time on the left, memory on the right, both over T, both logarithmic."""
    longest = max(curves["sightline"].keys() & curves["blind"].keys())
    times = curves["sightline"][longest][0] / curves["blind"][longest][0]
    title = f"Seeing all of it costs {times:.1f} times the blind kernel at {longest:,} tokens"
    if curves["eager"] and max(curves["eager"]) < longest:
        title += f"; eager attention ends at {max(curves['eager']):,}"
    with style():
        figure = Figure(figsize=(9.6, 4.0), dpi=150, layout="constrained")
        figure.get_layout_engine().set(w_pad=0.12, h_pad=0.08)  # type: ignore[union-attr, call-arg]
        figure.suptitle(title, x=0.012, ha="left", fontsize=13)
        left, right = figure.subplots(1, 2)
        panel(left, curves, 0, "Time", milliseconds)
        panel(right, curves, 1, "Memory at the peak, above the inputs", size)
        about = f"causal, 16 heads of 128 in bfloat16, {machine}; seen: received, entropy, peak, 64 x 64 map"
        figure.supxlabel(about, x=0.012, ha="left", fontsize=9, color=INK)
    return figure


def panel(ax: Axes, curves: Curves, which: int, title: str, written: Written) -> None:
    """One quantity of the three, each named where its line ends."""
    lengths = sorted(curves["sightline"])
    ax.set(xscale="log", yscale="log")
    ax.set_title(title, loc="left", fontsize=11, color=INK)
    ends = {}
    for name, (_, colour) in LINES.items():
        points = sorted((t, values[which]) for t, values in curves[name].items())
        if not points:
            continue
        xs, ys = zip(*points, strict=True)
        ax.plot(xs, ys, "-o", color=colour, linewidth=2, markersize=4, solid_capstyle="round")
        ends[name] = points[-1]
    ax.xaxis.set_major_locator(FixedLocator(lengths))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda t, _: f"{t / 1024:g}k"))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: written(y)))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.set_xlim(lengths[0] / 1.15, lengths[-1] * 4.4)  # room for the names
    ax.set_ylim(top=ax.get_ylim()[1] * 2.2)
    ax.spines["bottom"].set(visible=True, color=LINE, bounds=(lengths[0], lengths[-1]))
    ax.tick_params(colors=INK)
    ax.grid(axis="y", linewidth=0.8)
    ax.set_axisbelow(True)
    ax.set_xlabel("tokens", color=INK, loc="left")
    name_ends(ax, ends, written)


def name_ends(ax: Axes, ends: dict[str, tuple[int, float]], written: Written) -> None:
    """Write names and last values where the lines end; two that would touch are moved apart, each by half.

    A line that ends before the others is named above its end: beside it there are they.
    """
    last = max(t for t, _ in ends.values())
    low, high = ax.get_ylim()
    apart = (high / low) ** 0.075  # the height of a line of text
    for name, (t, y) in ends.items():
        word, colour = LINES[name]
        near = [at for other, (end, at) in ends.items() if other != name and end == t]
        moved = 1.0
        for at in near:
            overlap = max(1.0, apart / max(y / at, at / y)) ** 0.5
            moved *= overlap if y > at else 1 / overlap
        ax.annotate(
            f"{word} {written(y)}",
            (t, y * moved),
            xytext=(8, 0) if t == last else (0, 8),
            textcoords="offset points",
            ha="left" if t == last else "center",
            va="center" if t == last else "bottom",
            color=colour,
            fontweight="bold",
            fontsize=10,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
        )


def milliseconds(time: float) -> str:
    """A time as people say it."""
    return f"{time / 1000:.3g} s" if time >= 1000 else f"{time:.3g} ms" if time >= 10 else f"{time:.2g} ms"


def size(n_bytes: float) -> str:
    """Bytes as people say them."""
    for unit, word in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if n_bytes >= unit:
            return f"{n_bytes / unit:.3g} {word}" if n_bytes / unit < 100 else f"{n_bytes / unit:.0f} {word}"
    return f"{n_bytes:.0f} B"


def main() -> None:
    """Write it."""
    kept = ROOT / "benchmarks" / "results" / "look-h200.json"
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else kept
    folder = Path(sys.argv[2]) if len(sys.argv) > 2 else PICTURES
    picture = drawn(*read(path))
    folder.mkdir(parents=True, exist_ok=True)
    picture.savefig(folder / "look_over_length.png")
    print(folder / "look_over_length.png")


if __name__ == "__main__":
    main()
