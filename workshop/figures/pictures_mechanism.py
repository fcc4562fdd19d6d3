"""Make the pictures of the mechanism's chapter: why the root, why waves for positions, and two diagrams.

Usage: python -m workshop.figures.pictures_mechanism [FOLDER]
"""

import sys
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from torch import Tensor

import sightline as sl
from sightline.look.palette import LINES, THEME, hexadecimal, weight
from sightline.show.style import ACCENT, DIVERGING, INK, LINE, MAIN, SOFT
from workshop import PICTURES

GREEN, RED, GREY, BLUE = MAIN, ACCENT, SOFT, LINES[2]
CARD = THEME["card"][0]
WIDTHS = [4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048]


def plain(axes: Axes) -> Axes:
    """Axes without a frame above and to the right."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return axes


def root_of_d() -> Figure:
    """Spread of the scores, the largest weight and the gradient over d, with the root and without."""
    torch.manual_seed(0)
    found: dict[str, dict[str, list[float]]] = {}
    for name, power in (("divided by the root of d", 0.5), ("not divided", 0.0)):
        rows: dict[str, list[float]] = {"spread": [], "peak": [], "gradient": []}
        for d in WIDTHS:
            q, k = torch.randn(2, 256, d)
            scores = q @ k.T / d**power
            weights = scores.softmax(-1)
            rows["spread"].append(scores.std().item())
            rows["peak"].append(weights.amax(-1).mean().item())
            rows["gradient"].append((weights * (1 - weights)).sum(-1).mean().item())
        found[name] = rows
    figure = Figure(figsize=(11, 3.4), dpi=150, layout="constrained")
    panels = {
        "spread": "standard deviation of the scores",
        "peak": "largest weight of a query, mean",
        "gradient": "gradient of the weights, by their own scores",
    }
    labels = {"spread": "", "peak": "", "gradient": "sum of w (1 - w) over a query's keys"}
    for axes, (kind, title) in zip(figure.subplots(1, 3), panels.items(), strict=True):
        for (name, rows), colour in zip(found.items(), (GREEN, RED), strict=True):
            plain(axes).plot(WIDTHS, rows[kind], "o-", color=colour, markersize=4, label=name)
        axes.set(xscale="log", xlabel="width d of queries and keys", ylabel=labels[kind], title=title)
        axes.set_xticks([4, 32, 256, 2048], ["4", "32", "256", "2,048"])
        axes.minorticks_off()
        axes.title.set_fontsize(10)
        if kind == "spread":
            axes.plot(WIDTHS, np.sqrt(WIDTHS), ":", color=GREY)
            axes.annotate("√d", (WIDTHS[-2], WIDTHS[-2] ** 0.5), xytext=(-16, 4), textcoords="offset points")
            axes.set_yscale("log")
            axes.legend(frameon=False, fontsize=9)
        else:
            axes.set_ylim(0, 1.04)
    return figure


def index_as_position() -> Figure:
    """What is left of a word after its position was added, and what a position is worth in two lengths."""
    torch.manual_seed(0)
    n, d = 200, 64
    words = torch.randn(n, d)
    index = torch.arange(n, dtype=torch.float32)
    added = {
        "the index i": (words + index[:, None], RED),
        "its share i / n": (words + index[:, None] / n, BLUE),
        "waves (sinusoidal)": (words + sl.positions.sinusoidal(n, d), GREEN),
    }
    figure = Figure(figsize=(11, 3.6), dpi=150, layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    for name, (x, colour) in added.items():
        plain(left).plot(torch.cosine_similarity(x, words), color=colour, label=name, linewidth=1.2)
    left.set(xlabel="position", ylabel="cosine with the word alone", ylim=(-0.3, 1.42))
    left.set_yticks([-0.2, 0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
    left.set_title("the index drowns the word", fontsize=10)
    left.legend(frameon=False, fontsize=9, loc="upper right")
    steps = {length: torch.arange(length) / length for length in (10, 40)}
    for length, colour in ((10, BLUE), (40, GREY)):
        plain(middle).plot(steps[length], "o-", color=colour, markersize=3, label=f"a sentence of {length}")
    middle.set(xlabel="position", ylabel="i / n")
    middle.set_title("its share: a step is another one\nin every length", fontsize=10)
    middle.legend(frameon=False, fontsize=9)
    table = sl.positions.sinusoidal(100, d)
    for start, colour, width in (
        (0, GREEN, 6),
        (30, hexadecimal(weight(0.2)), 3),
        (60, INK, 1),
    ):  # one over the other
        products = table[start : start + 40] @ table[start]
        plain(right).plot(products, color=colour, linewidth=width, label=f"from position {start}")
    right.set(xlabel="distance", ylabel="PE[pos] · PE[pos + distance]")
    right.set_title("waves: the same at every position,\nwhatever the length", fontsize=10)
    right.legend(frameon=False, fontsize=9)
    return figure


# Diagrams


class Board:
    """Boxes and arrows on a plane of given size, one unit a tenth of an inch."""

    def __init__(self, width: float, height: float) -> None:
        self.figure = Figure(figsize=(width / 10, height / 10), dpi=150)
        self.axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set(xlim=(0, width), ylim=(0, height))
        self.axes.axis("off")

    def box(self, x: float, y: float, w: float, h: float, words: str, colour: str) -> tuple[float, float]:
        """A box with words whose middle is (x, y)."""
        shape = FancyBboxPatch((x - w / 2, y - h / 2), w, h, boxstyle="round,pad=0,rounding_size=0.8")
        shape.set(facecolor=colour, edgecolor=INK, linewidth=1)
        self.axes.add_patch(shape)
        self.axes.text(x, y, words, ha="center", va="center", fontsize=9, color=INK)
        return x, y

    def arrow(self, *points: tuple[float, float], head: bool = True, colour: str = INK) -> None:
        """A line through points, with a head at the last."""
        xs, ys = zip(*points, strict=True)
        self.axes.plot(xs[:-1] + xs[-1:], ys[:-1] + ys[-1:], color=colour, linewidth=1, zorder=0)
        if head:
            self.axes.annotate(
                "",
                points[-1],
                points[-2],
                arrowprops={"arrowstyle": "-|>", "color": colour, "shrinkA": 0, "shrinkB": 0},
                zorder=0,
            )

    def frame(self, x: float, y: float, w: float, h: float, words: str) -> None:
        """A pale field around other things, with words at its upper left."""
        shape = FancyBboxPatch((x, y), w, h, boxstyle="round,pad=0,rounding_size=1.5")
        shape.set(facecolor=CARD, edgecolor=LINE, linewidth=1, zorder=-1)
        self.axes.add_patch(shape)
        self.axes.text(x + 1.5, y + h - 2, words, fontsize=9, color=SOFT, ha="left", va="center")

    def note(self, x: float, y: float, words: str, **settings: str) -> None:
        """Small words beside something."""
        self.axes.text(x, y, words, fontsize=8, color=SOFT, va="center", **settings)  # type: ignore[arg-type]


ATTEND, NORM, MLP, EMBED, OUT = "#f6c9a8", "#f5eeb5", "#bfe0ea", "#f3c6cf", "#d9d3ec"


def stack(board: Board, x: float, y: float, parts: list[tuple[str, str]]) -> dict[str, tuple[float, float]]:
    """Boxes upwards, each branch added to what passes it by, then normed."""
    places = {}
    board.arrow((x, y - 5), (x, y - 1.75))
    for words, colour in parts:
        places[words] = board.box(x, y, 20, 3.5, words, colour)
        board.box(x, y + 5, 20, 2.6, "add and norm", NORM)
        board.arrow((x, y + 1.75), (x, y + 3.7))
        board.arrow((x, y - 3.6), (x + 13, y - 3.6), (x + 13, y + 5), (x + 10, y + 5), colour=GREY)
        board.arrow((x, y + 6.3), (x, y + 9.75), head=words != parts[-1][0])
        y += 11.5
    return places


def transformer() -> Figure:
    """The whole of it: figure 1 of the paper, with this package's names."""
    board = Board(92, 74)
    board.frame(8, 17, 33, 30, "N encoder layers")
    board.frame(50, 17, 34, 41.5, "N decoder layers")
    left, right = 23.0, 66.0
    for x, words, inputs in ((left, "source", "tokens"), (right, "target", "tokens so far")):
        board.box(x, 7, 20, 3.5, f"{words} embedding", EMBED)
        board.note(x, 2.5, inputs, ha="center")
        board.arrow((x, 3.6), (x, 5.25))
        board.arrow((x, 8.75), (x, 12.2))
        board.axes.add_patch(
            FancyBboxPatch((x - 0.9, 12.3), 1.8, 1.8, boxstyle="circle,pad=0.1", fc="w", ec=INK)
        )
        board.axes.text(x, 13.2, "+", ha="center", va="center", fontsize=10)
        board.arrow((x - 12, 13.2), (x - 1.3, 13.2))
        board.note(x - 12.4, 13.2, "positions", ha="right")
        board.arrow((x, 14.4), (x, 17.5), head=False)
    encoder = [("self-attention", ATTEND), ("feed-forward", MLP)]
    stack(board, left, 22.5, encoder)
    decoder = [("masked self-attention", ATTEND), ("cross-attention", ATTEND), ("feed-forward", MLP)]
    places = stack(board, right, 22.5, decoder)
    x, y = places["cross-attention"]
    board.arrow((left, 40.3), (left, 49.5), (46, 49.5), (46, y), (x - 10, y))
    board.note(29, 51.2, "memory: keys and values", ha="left")
    board.box(right, 62, 20, 3.5, "linear, softmax", OUT)
    board.arrow((right, 51.8), (right, 60.25))
    board.arrow((right, 63.75), (right, 68))
    board.note(right, 69.8, "probabilities of the next token", ha="center")
    return board.figure


def many_heads() -> Figure:
    """Heads side by side, each an attention of a share of the width, joined by one matrix."""
    board = Board(88, 58)
    xs = [22.0, 44.0, 66.0]
    board.note(2, 7, "Q, K, V\n(T or S, E)", ha="left")
    for name, x in zip("QKV", xs, strict=True):
        board.box(x, 7, 14, 3.5, name, EMBED)
    for depth, colour in ((2, LINE), (1, CARD), (0, "#ffffff")):
        shape = FancyBboxPatch(
            (12 + depth * 2.2, 13.5 + depth * 1.6), 62, 24, boxstyle="round,pad=0,rounding_size=1.2"
        )
        shape.set(facecolor=colour, edgecolor=SOFT, linewidth=1, zorder=-depth)
        board.axes.add_patch(shape)
    for name, x in zip("QKV", xs, strict=True):
        board.box(x, 18, 14, 3.5, f"W$^{name}_i$", MLP)
        board.arrow((x, 8.75), (x, 16.25))
        board.note(x + 1, 21.5, "(T, E / h)" if name == "Q" else "(S, E / h)", ha="left")
    board.box(44, 28, 50, 4.5, "softmax(q kᵀ / √(E / h)) v", ATTEND)
    for x in xs:
        board.arrow((x, 19.75), (x, 25.75))
    board.note(45.5, 33, "head i, (T, E / h)", ha="left")
    board.note(80, 35, "h heads", ha="left")
    board.box(44, 44.5, 36, 3.5, "concatenate: (T, E)", NORM)
    board.arrow((44, 30.25), (44, 42.75))
    board.box(44, 51, 36, 3.5, "W$^O$", OUT)
    board.arrow((44, 46.25), (44, 49.25))
    board.arrow((44, 52.75), (44, 56.5))
    board.note(45.5, 55.5, "output, (T, E)", ha="left")
    return board.figure


def shift() -> Figure:
    """A rotation for each pair of columns moves every position on by the same offset."""
    table: Tensor = sl.positions.sinusoidal(48, 16)
    offset = 8
    moved = table @ sl.positions.shift_matrix(offset, 16).T
    figure = Figure(figsize=(11, 3.6), dpi=150, layout="constrained")
    first, second, third = figure.subplots(1, 3, width_ratios=(1, 1, 1))
    first.imshow(table.T, aspect="auto", cmap=DIVERGING, vmin=-1, vmax=1)
    first.set(title="PE", xlabel="position", ylabel="dimension")
    second.imshow(sl.positions.shift_matrix(offset, 16), cmap=DIVERGING.reversed(), vmin=-1, vmax=1)
    second.set(
        title=f"M: rotations, for an offset of {offset}", xlabel="dimension of PE", ylabel="dimension of M PE"
    )
    third.imshow(moved.T, aspect="auto", cmap=DIVERGING, vmin=-1, vmax=1)
    apart = (moved[:-offset] - table[offset:]).abs().max().item()
    third.set(
        title=f"M PE = PE, {offset} further on (apart by {apart:.0e})", xlabel="position", ylabel="dimension"
    )
    for axes in (first, second, third):
        axes.title.set_fontsize(10)
    return figure


DRAWN = {
    "root_of_d": root_of_d,
    "index_as_position": index_as_position,
    "position_shift": shift,
    "transformer": transformer,
    "many_heads": many_heads,
}


def main() -> None:
    """Write them all."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURES
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in DRAWN.items():
        make().savefig(folder / f"{name}.png", dpi=100)
        print(folder / f"{name}.png")


if __name__ == "__main__":
    main()
