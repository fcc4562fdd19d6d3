"""Figures of a classifier: maps over the image, attention distances by layer, and the confusion matrix."""

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from sightline.shapes import Float, Int, Shaped
from sightline.show.fonts import FallbackFontFigure
from sightline.show.overlay import colours, pixels, to_grey
from sightline.show.records import AttentionRecord, GridKeys
from sightline.show.style import ACCENT, COLOURS, MAIN, frame, ink_on, name_ticks, style

__all__ = ["confusion_matrix", "distances", "head_overlays", "received_by_layer", "rollout_overlay"]

_PANEL = 1.5  # inches of an image
_SMALL = 64  # pixels of a side up to which patches are shown as squares
_MOST = 144  # panels of one figure
_MOST_NUMBERS = 40  # classes of a confusion matrix up to which the counts are written
_ACROSS = 6  # panels in a row
_LETTERS = 24  # of a line above a panel


def rollout_overlay(attention: AttentionRecord, *, title: str | None = None, note: str = "") -> Figure:
    """Draw the image, and beside it the image with the summary map of the first query over it.

    Args:
        attention: Over a grid. A classifier's summary is its rollout.
        title: Text above the panels.
        note: A smaller line under the title, such as how the image was cropped.
    """
    keys = _grid_of(attention)
    summary = attention.summary[0].unflatten(-1, (keys.rows, keys.columns))
    name = "\n".join(textwrap.wrap(attention.summary_label, _LETTERS))
    return _panels(keys.image, [[None, summary]], [["image", name]], title, "share of a patch", note)


def head_overlays(
    attention: AttentionRecord,
    *,
    layers: Sequence[int] | None = None,
    title: str | None = None,
    note: str = "",
) -> Figure:
    """Draw the weights of the first query in every head over the image: a row per layer, a column per head.

    Args:
        attention: Over a grid; ``weights (L, H, T, P)``.
        layers: Which layers. Default: all, or the last ones where all would not fit.
        title: Text above the panels.
        note: A smaller line under the title, such as how the image was cropped.
    """
    keys = _grid_of(attention)
    maps = attention.weights[:, :, 0].unflatten(-1, (keys.rows, keys.columns))  # (L, H, rows, columns)
    n_layers, n_heads = maps.shape[:2]
    chosen = list(range(n_layers)) if layers is None else list(layers)
    wrong = [n for n in chosen if not 0 <= n < n_layers]
    if wrong:
        raise ValueError(f"layer must be in 0..{n_layers - 1}, got {wrong[0]}; there are {n_layers} layers")
    chosen = chosen[-max(1, _MOST // n_heads) :]
    rows = [[maps[layer, head] for head in range(n_heads)] for layer in chosen]
    names = [[f"layer {layer} head {head}" for head in range(n_heads)] for layer in chosen]
    return _panels(keys.image, rows, names, title, "weight on a patch", note)


def received_by_layer(
    image: Shaped[Tensor, "C h w"],
    received: Float[Tensor, "L P"],
    grid: tuple[int, int],
    *,
    title: str | None = None,
) -> Figure:
    """Draw the share of all weight that each patch received, a panel per layer.

    Args:
        image: uint8.
        received: Shares that sum to one in each layer, patches row by row.
        grid: Rows and columns of patches.
        title: Text above the panels.
    """
    maps = [layer.unflatten(-1, grid) for layer in received]
    starts = range(0, len(maps), _ACROSS)
    rows = [maps[i : i + _ACROSS] for i in starts]
    names = [[f"layer {i + j}" for j in range(len(row))] for i, row in zip(starts, rows, strict=True)]
    return _panels(image, rows, names, title, "share of all weight")


def distances(distance: Float[Tensor, "L H"], *, title: str | None = None) -> Figure:
    """Draw how far each head looks, in pixels, by layer: the figure of the ViT paper.

    Args:
        distance: The mean attention distance of each head.
        title: Text above.

    Example:
        >>> distances(torch.rand(4, 3)).axes[0].get_ylabel()
        'mean attention distance, pixels'
    """
    values = distance.detach().cpu().double().numpy()
    n_layers, n_heads = values.shape
    with style():
        size = (max(4.2, 0.35 * n_layers + 2), 3.2)
        figure = FallbackFontFigure(figsize=size, dpi=150, layout="constrained")
        ax = figure.subplots()
        for head in range(n_heads):
            ax.plot(range(n_layers), values[:, head], "o", color=MAIN, alpha=0.6, markersize=5)
        ax.plot(range(n_layers), values.mean(1), color=ACCENT, linewidth=1.5, label="mean of the heads")
        ax.set(xlabel="layer, from the image up", ylabel="mean attention distance, pixels", title=title)
        ax.set_ylim(0, 1.1 * float(values.max()) or 1.0)
        ax.grid(axis="y", linewidth=0.8)
        ax.set_xlim(-0.5, n_layers - 0.5)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.legend(loc="lower right", fontsize=10)
    return figure


def confusion_matrix(counts: Int[Tensor, "V V"], names: Sequence[str], *, title: str | None = None) -> Figure:
    """Draw a confusion matrix, true classes down and predicted classes across, coloured by the row's shares.

    Args:
        counts: How often each true class was predicted as each class.
        names: The classes.
        title: Text above.

    Example:
        >>> confusion_matrix(torch.eye(2, dtype=torch.long), ["cat", "dog"]).axes[0].get_xlabel()
        'predicted class'
    """
    table = counts.cpu().double().numpy()
    shares = table / np.maximum(table.sum(1, keepdims=True), 1)
    n = len(names)
    side = min(max(0.42 * n, 2.5), 10.0)
    with style():
        figure = FallbackFontFigure(figsize=(side + 2.4, side + 1.4), dpi=150, layout="constrained")
        ax = figure.subplots()
        image = ax.imshow(shares, cmap=COLOURS, vmin=0, vmax=1)
        frame(ax)
        name_ticks(ax.xaxis, n, names, room=side)
        name_ticks(ax.yaxis, n, names, room=side)
        if n <= _MOST_NUMBERS:
            for (row, column), count in np.ndenumerate(table):
                if count:
                    shade = ink_on(COLOURS(shares[row, column]))
                    ax.text(column, row, f"{count:.0f}", ha="center", va="center", fontsize=8, color=shade)
        ax.set(xlabel="predicted class", ylabel="true class", title=title)
        figure.colorbar(image, label="share of the true class", shrink=0.8)
    return figure


def _grid_of(attention: AttentionRecord) -> GridKeys:
    """The grid that was looked at, or a sentence if it was words."""
    if not isinstance(attention.keys, GridKeys):
        raise ValueError(  # noqa: TRY004  the record is fine, only for another figure
            f"this figure is of attention over an image, got {len(attention.keys)} words as keys; "
            "draw it with sightline.show.prediction"
        )
    return attention.keys


def _panels(
    image: Shaped[Tensor, "C h w"],
    rows: Sequence[Sequence[Tensor | None]],
    names: Sequence[Sequence[str]],
    title: str | None,
    label: str,
    note: str = "",
) -> Figure:
    """Draw maps over the image in rows of panels, all on one scale; None is the image itself."""
    photo = pixels(image)
    height, width = photo.shape[:2]
    tall, wide = _PANEL * height / max(height, width), _PANEL * width / max(height, width)
    across = max(map(len, rows))
    lines = 1 + max(name.count("\n") for row in names for name in row)
    full_width = across * (wide + 0.1) + 1.1
    titles = textwrap.wrap(title or "", int(10 * full_width))
    notes = textwrap.wrap(note, int(14 * full_width))
    above = 0.1 + 0.22 * len(titles) + 0.17 * len(notes)
    tall = max(tall, 1.3 / len(rows))  # room for the label of the scale
    size = full_width, above + len(rows) * (tall + 0.15 + 0.15 * lines) + 0.1
    brightest = max(float(x.max()) for row in rows for x in row if x is not None)
    with style():
        figure = FallbackFontFigure(figsize=size, dpi=150, layout="constrained")
        axes = figure.subplots(len(rows), across, squeeze=False)
        scale: Any = None
        for row, line, of_row in zip(rows, axes, names, strict=True):
            for ax in line[len(row) :]:
                ax.remove()
            for ax, weights, name in zip(line, row, of_row, strict=False):
                scale = _draw(ax, photo, weights, brightest) or scale
                ax.set_title(name, fontsize=9, pad=3)
        figure.get_layout_engine().set(rect=(0, 0, 1, 1 - above / size[1]))  # type: ignore[union-attr, call-arg]
        top = size[1] - 0.1
        figure.text(0.5, top / size[1], "\n".join(titles), ha="center", va="top", fontsize=12)
        top -= 0.22 * len(titles)
        figure.text(0.5, top / size[1], "\n".join(notes), ha="center", va="top", fontsize=9, color="0.35")
        kept = [ax for line, row in zip(axes, rows, strict=True) for ax in line[: len(row)]]
        bar = figure.colorbar(scale, ax=kept, label=label, aspect=24, fraction=0.06)
        bar.ax.set_facecolor("#777777")  # the colours lie on a grey photo in the panels too
    return figure


def _draw(ax: Axes, photo: Any, weights: Tensor | None, brightest: float) -> Any:
    ax.axis("off")
    if weights is None:
        ax.imshow(photo)
        return None
    height, width = photo.shape[:2]
    ax.imshow(to_grey(photo))
    extent = (-0.5, width - 0.5, height - 0.5, -0.5)
    between = "nearest" if max(height, width) <= _SMALL else "bicubic"
    values = weights.detach().cpu().double().numpy()
    return ax.imshow(
        values, cmap=colours(), vmin=0, vmax=brightest or 1.0, extent=extent, interpolation=between
    )
