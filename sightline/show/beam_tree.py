"""The tree of a beam search: what was tried, how likely it was, where each looked, and what won."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.offsetbox import AnnotationBbox, OffsetImage
from torch import Tensor

from sightline.decode.trace import BeamTrace
from sightline.look.palette import hexadecimal, weight
from sightline.shapes import Float
from sightline.show.fonts import FallbackFontFigure
from sightline.show.overlay import colours, pixels, to_grey
from sightline.show.records import GridKeys
from sightline.show.style import COLOURS, INK, LINE, MAIN, SOFT, frame, style

__all__ = ["beam_tree"]

_WON, _LOST, _INK = MAIN, LINE, INK
_COLUMN, _ROW = 1.25, 0.55  # inches of a step and of a row
_NAME, _THUMBNAIL = 0.17, 0.62  # inches that a row grows by for what a word looked at: its name, or an image
_END = 0.14  # and for the score of what ended
_LINE = 10.8  # points of a line in a box


_Names = Callable[[int, int], str]


class _End(NamedTuple):
    """A hypothesis that ended: at which step, from which row of the one before, and its score."""

    step: int
    row: int
    score: float


def beam_tree(
    trace: BeamTrace,
    words: Callable[[int], str],
    keys: Sequence[str] | GridKeys | None = None,
    *,
    title: str | None = None,
) -> Figure:
    """Draw a beam search, steps from left to right, the kept beginnings of a step one below the other.

    Args:
        trace: What ``beam(..., trace=trace)`` noted.
        words: The word of a token's id.
        keys: Names of what was looked at, or the image and its grid; with them, and a trace that has weights,
            every word has what it looked at most, or the image with its weights, and all weights
            of the winner stand below the tree.
        title: Text above.

    Returns:
        The figure. Each word has its probability after its beginning; a line is as thick as that. What ended
        has its final score, the log-probability divided for the length.

    Raises:
        ValueError: If nothing was traced, or there are not as many names as keys.

    Example:
        >>> from sightline.decode.beam import beam
        >>> from sightline.decode.trace import BeamTrace
        >>> trace = BeamTrace()
        >>> config = sl.models.TranslatorConfig(source_vocab_size=9, vocab_size=9, d_model=8, n_heads=2)
        >>> model = sl.models.Translator(config).eval()
        >>> ids = torch.tensor([[4, 5, 2]])
        >>> found = beam(model, model.start(ids), max_length=4, width=2, trace=trace)
        >>> len(beam_tree(trace, str).axes) > 0
        True
    """
    if not trace.steps:
        raise ValueError("a beam search must have been traced to be drawn, got none; beam(..., trace=trace)")
    ends = [_End(t, row, score) for t, step in enumerate(trace.steps) for row, score in step.ended]
    winner = max(ends, key=lambda end: end.score) if ends else None
    path = _path(trace, winner)
    looked = _looked(trace, path, keys)
    steps, rows = len(trace.steps), max(len(step.tokens) for step in trace.steps)
    with style():
        tall = _ROW + (_END if ends else 0)
        heights = [rows * tall]
        if looked is not None and keys is not None:
            grown, below = (_THUMBNAIL, _COLUMN) if isinstance(keys, GridKeys) else (_NAME, 0.22 * len(keys))
            heights = [rows * (tall + grown), below]
        figure = FallbackFontFigure(
            figsize=(1.6 + _COLUMN * steps, sum(heights) + 1.2), dpi=150, layout="constrained"
        )
        panels = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights, squeeze=False)[:, 0]
        names: _Names | None = None
        if looked is not None and keys is not None:
            if isinstance(keys, GridKeys):
                _draw_thumbnails(panels[0], trace, keys)
                _draw_images(panels[1], looked, keys)
            else:
                names = partial(_most_looked_at, trace, keys)
                _draw_weights(panels[1], looked, keys)
        _draw_tree(panels[0], trace, words, names, path)
        lines = 2 if names is None else 3
        thumbnails = looked is not None and isinstance(keys, GridKeys)
        _draw_ends(panels[0], ends, winner, lines * _LINE / 2 + (72 * _THUMBNAIL if thumbnails else 0))
        panels[0].set_title(title)
        panels[0].set_xlim(-1.2, steps - 0.2)
    return figure


def _path(trace: BeamTrace, winner: _End | None) -> list[int]:
    """The rows that the winner went through, step by step; of the likeliest beginning if none ended."""
    last, row = (winner.step - 1, winner.row) if winner is not None else (len(trace.steps) - 1, 0)
    path = []
    for t in range(last, -1, -1):
        path.append(row)
        row = trace.steps[t].parents[row]
    return path[::-1]


def _looked(trace: BeamTrace, path: list[int], keys: Sequence[str] | GridKeys | None) -> Tensor | None:
    """Where the winner looked at each of its steps, (S, steps), NaN after its end."""
    if keys is None or any(step.weights is None for step in trace.steps):
        return None
    n = keys.rows * keys.columns if isinstance(keys, GridKeys) else len(keys)
    columns = []
    for t, step in enumerate(trace.steps):
        weights = step.weights
        assert weights is not None  # noqa: S101
        if weights.size(-1) != n:
            raise ValueError(f"there must be a name for each of the {weights.size(-1)} keys, got {n} names")
        inside = t <= len(path)
        row = path[t - 1] if 0 < t <= len(path) else 0
        columns.append(weights[row] if inside else torch.full((n,), torch.nan))
    return torch.stack(columns, dim=1)


def _weights_of(trace: BeamTrace, t: int, row: int) -> Float[Tensor, " S"]:
    """Where a beginning looked when its last word was chosen."""
    step = trace.steps[t]
    assert step.weights is not None  # noqa: S101 - asked only of a trace that has them
    return step.weights[step.parents[row]]


def _most_looked_at(trace: BeamTrace, keys: Sequence[str], t: int, row: int) -> str:
    """The name of the key with the largest weight."""
    return keys[int(_weights_of(trace, t, row).argmax())]


def _draw_tree(
    axes: Axes,
    trace: BeamTrace,
    words: Callable[[int], str],
    names: _Names | None,
    path: list[int],
) -> None:
    box: dict[str, Any] = {"boxstyle": "round,pad=0.25", "linewidth": 1}
    plain = box | {"facecolor": "white", "edgecolor": _LOST}
    axes.text(-1, 0, "start", ha="center", va="center", fontsize=9, color=_INK, bbox=plain, zorder=3)
    for t, step in enumerate(trace.steps):
        for row, (parent, token, log_prob) in enumerate(
            zip(step.parents, step.tokens, step.log_probs, strict=True)
        ):
            won = t < len(path) and path[t] == row
            colour, share = (_WON if won else _LOST), math.exp(log_prob)
            above = parent if t else 0
            axes.plot([t - 1, t], [above, row], color=colour, linewidth=0.5 + 4 * share, zorder=1)
            text = f"{words(token)}\n{share:.2f}" + (f"\nat {names(t, row)}" if names is not None else "")
            axes.text(
                t, row, text, ha="center", va="center", fontsize=9, color=_INK, zorder=3,
                bbox=box | {"facecolor": hexadecimal(weight(0.08)) if won else "white", "edgecolor": colour},
            )  # fmt: skip
    axes.set_ylim(max(len(step.tokens) for step in trace.steps) - 0.4, -0.6)
    axes.set_yticks([])
    axes.tick_params(labelbottom=False)


def _draw_ends(axes: Axes, ends: list[_End], winner: _End | None, below: float) -> None:
    """The final score so many points below the word that ended; the empty text may end, too."""
    for end in ends:
        row, down = (end.row, below) if end.step else (0, _LINE / 2)
        axes.annotate(
            f"end {end.score:.2f}", (end.step - 1, row), (0, -down - 9), textcoords="offset points",
            ha="center", va="center", fontsize=7.5, color=_WON if end == winner else SOFT,
            weight="bold" if end == winner else "normal", zorder=4,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.4},
        )  # fmt: skip


def _draw_thumbnails(axes: Axes, trace: BeamTrace, keys: GridKeys) -> None:
    """Below each word the image in grey, with the weights over it that the word was chosen with."""
    image = to_grey(pixels(keys.image))
    zoom = 72 * _THUMBNAIL / max(image.shape[:2])  # from pixels to points
    brightest = _brightest([step.weights for step in trace.steps], keys)
    for t, step in enumerate(trace.steps):
        for row in range(len(step.tokens)):
            seen = OffsetImage(_seen(image, _weights_of(trace, t, row), keys, brightest), zoom=zoom)
            below = (0, -13 - 36 * _THUMBNAIL)  # points from the word's middle to the image's
            place = AnnotationBbox(seen, (t, row), below, boxcoords="offset points", frameon=False, zorder=2)
            axes.add_artist(place)


def _brightest(weights: Sequence[Tensor | None], keys: GridKeys) -> float:
    """The top of the colour scale: the largest weight, or four even shares if that is more."""
    largest = max(float(x.nan_to_num().max()) for x in weights if x is not None)
    return max(largest, 4 / (keys.rows * keys.columns))


def _seen(image: Any, weights: Float[Tensor, " S"], keys: GridKeys, brightest: float) -> Any:
    """A grey image with weights glowing over it, (h, w, 3)."""
    grid = weights.float().view(1, 1, keys.rows, keys.columns)
    smooth = F.interpolate(grid, image.shape[:2], mode="bilinear", align_corners=False)[0, 0]
    glow = colours()((smooth / brightest).clamp(0, 1).numpy())
    alpha = glow[..., 3:]
    return image / 255 * (1 - alpha) + glow[..., :3] * alpha


def _draw_weights(axes: Axes, looked: Tensor, keys: Sequence[str]) -> None:
    axes.imshow(looked.numpy(), cmap=COLOURS, aspect="auto", vmin=0)
    frame(axes)
    axes.set_yticks(range(len(keys)), list(keys))
    axes.spines["left"].set_position(("data", -0.5))  # names stand beside the rows, not below the start
    axes.tick_params(labelbottom=False)
    axes.set_xlabel("where the winner looked before each word, and before its end")


def _draw_images(axes: Axes, looked: Float[Tensor, "S steps"], keys: GridKeys) -> None:
    """The image in grey under each step, with the winner's weights over it."""
    image = to_grey(pixels(keys.image))
    tall = 0.92 * image.shape[0] / image.shape[1]
    brightest = _brightest([looked], keys)
    for t, weights in enumerate(looked.T):
        if weights.isnan().any():
            continue
        extent = (t - 0.46, t + 0.46, tall, 0.0)
        axes.imshow(image, extent=extent, zorder=1)
        grid = weights.view(keys.rows, keys.columns).numpy()
        axes.imshow(
            grid, cmap=colours(), vmin=0, vmax=brightest, extent=extent, interpolation="bicubic", zorder=2
        )
    axes.set(ylim=(tall + 0.04, -0.04), yticks=[], aspect="equal", anchor="N")
    axes.tick_params(labelbottom=False)
    axes.set_xlabel("where the winner looked before each word, and before its end")
