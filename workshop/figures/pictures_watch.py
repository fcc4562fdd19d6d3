"""Make the picture of what watching a model costs over the length, from the measurements of a GPU.

Usage: python -m workshop.figures.pictures_watch [JSON] [FOLDER]

JSON is what `python -m benchmarks watch --device cuda --json JSON` writes; default: watch-h200.json of
benchmarks/results.
"""

import json
import re
import sys
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from sightline.look.palette import LINES
from sightline.show.style import MAY_LOOK, SOFT, style
from workshop import PICTURES, ROOT

SERIES = re.compile(r"watch Llama 1 x (\d+)$")
LISTENING, INK = LINES[6], SOFT
CONTESTANTS = ("sightline", "listening", "blind")

Times = dict[int, dict[str, float]]  # T -> contestant -> milliseconds


def read(path: Path) -> tuple[Times, str]:
    """The times at each length, and the machine; leaves with a sentence if there are none."""
    report = json.loads(path.read_text(encoding="utf-8"))
    times: Times = {}
    for case in report["cases"]:
        found = SERIES.search(case["case"])
        measured = {result["contestant"]: result["milliseconds"] for result in case["results"]}
        if found and all(measured.get(name) for name in CONTESTANTS):
            times[int(found[1])] = measured
    if len(times) < 2:
        sys.exit(
            f"{path} has {len(times)} of the cases 'watch Llama 1 x T' among {len(report['cases'])}, two are "
            f"needed; measure them with `python -m benchmarks watch --device cuda --json {path}`"
        )
    return times, report["machine"]["devices"].get("cuda", "a GPU")


def drawn(times: Times, machine: str) -> Figure:
    """Time over the blind model's: the listening, and on top of it the looking."""
    lengths = sorted(times)
    shortest, longest = (times[t]["sightline"] / times[t]["blind"] for t in (lengths[0], lengths[-1]))
    title = (
        f"A watched model takes {shortest:.2f} times its blind time at {lengths[0]:,} tokens, "
        f"{longest:.2f} at {lengths[-1]:,}"
    )
    with style():
        figure = Figure(figsize=(9.6, 4.0), dpi=150, layout="constrained")
        figure.get_layout_engine().set(w_pad=0.12, h_pad=0.08)  # type: ignore[union-attr, call-arg]
        figure.suptitle(title, x=0.012, ha="left", fontsize=13)
        panel(figure.add_subplot(), times)
        about = f"a Llama of 8 layers, 2,048 wide, 16 heads, bfloat16, {machine}; received, entropy and peak"
        figure.supxlabel(about, x=0.012, ha="left", fontsize=9, color=INK)
    return figure


def panel(ax: Axes, times: Times) -> None:
    """The two shares as areas over the line of the blind model, with the whole written above."""
    lengths = sorted(times)
    listening, watched = (
        [times[t][name] / times[t]["blind"] for t in lengths] for name in ("listening", "sightline")
    )
    lower = [min(a, b) for a, b in zip(listening, watched, strict=True)]  # noise may put it above
    ax.set(xscale="log", xlim=(lengths[0] / 1.25, lengths[-1] * 2.4), ylim=(0, 1.18 * max(watched)))
    ax.fill_between(lengths, 1, lower, color=LISTENING, alpha=0.35, linewidth=0)
    ax.fill_between(lengths, lower, watched, color=MAY_LOOK, alpha=0.35, linewidth=0)
    ax.axhline(1, xmin=0.03, xmax=0.86, color=INK, linewidth=1.5)
    ax.plot(lengths, lower, "-o", color=LISTENING, linewidth=2, markersize=4)
    ax.plot(lengths, watched, "-o", color=MAY_LOOK, linewidth=2, markersize=4)
    for t, y in zip(lengths, watched, strict=True):
        ax.annotate(
            f"{y:.2f}", (t, y), (0, 7), textcoords="offset points", ha="center", color=MAY_LOOK, fontsize=9
        )
    space = 0.06 * ax.get_ylim()[1]
    heights = [1.0, max(lower[-1], 1 + space), 0.0]
    heights[2] = max(watched[-1], heights[1] + space)
    names = ("blind", INK), ("listening", LISTENING), ("and looking", MAY_LOOK)
    for (name, colour), y in zip(names, heights, strict=True):
        ax.annotate(
            name,
            (lengths[-1], y),
            (10, 0),
            textcoords="offset points",
            va="center",
            color=colour,
            fontweight="bold",
            fontsize=10,
        )
    ax.xaxis.set_major_locator(FixedLocator(lengths))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda t, _: f"{t / 1024:g}k" if t >= 1024 else f"{t:g}"))
    ax.tick_params(colors=INK)
    ax.grid(axis="y", linewidth=0.8)
    ax.set_axisbelow(True)
    ax.set_xlabel("tokens", color=INK, loc="left")
    ax.set_ylabel("time over blind", color=INK)


def main() -> None:
    """Write it."""
    kept = ROOT / "benchmarks" / "results" / "watch-h200.json"
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else kept
    folder = Path(sys.argv[2]) if len(sys.argv) > 2 else PICTURES
    picture = drawn(*read(path))
    folder.mkdir(parents=True, exist_ok=True)
    picture.savefig(folder / "watch_over_length.png")
    print(folder / "watch_over_length.png")


if __name__ == "__main__":
    main()
