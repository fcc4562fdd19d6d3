"""What a Vision Transformer looked at: rollout and heads over the image, mass by layer, distance by depth."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from sightline.tasks.classify.attention import Glance
from sightline.shapes import Float, Int, Shaped
from sightline.show.fonts import Picture
from sightline.show.overlay import colours, grey
from sightline.show.style import COLOURS, MAY_LOOK, name_ticks, style

__all__ = ["class_heads", "confused", "distances", "layer_mass", "rolled"]

_PANEL = 1.5  # inches of a picture
_SMALL = 64  # pixels of a side below which patches are shown as squares
_MOST = 144  # panels of one figure
_MOST_NAMED = 40  # classes of a confusion matrix whose numbers are written
_DEPTH = "layer, from the image up"


def rolled(
    image: Shaped[Tensor, "C h w"], glance: Glance, *, item: int = 0, title: str | None = None
) -> Figure:
    """Draw the image, and beside it the image with the rollout over it.

    Args:
        image: Bytes.
        glance: Of this image, or of several of which it is the ``item``-th.
        item: Which of them.
        title: Stands above.
    """
    whole = glance.rollout[item].view(glance.grid)
    return _panels(image, [[None, whole]], [["image", "rollout"]], title, "share of a patch")


def class_heads(
    image: Shaped[Tensor, "C h w"],
    glance: Glance,
    *,
    item: int = 0,
    layers: Sequence[int] | None = None,
    title: str | None = None,
) -> Figure:
    """Draw what every head looked at on behalf of the class: a row a layer, a column a head.

    Args:
        image: Bytes.
        glance: Of this image, or of several of which it is the ``item``-th.
        item: Which of them.
        layers: Which layers. Default: all, or the last ones where they would be too many to see.
        title: Stands above.
    """
    maps = glance.heads[item]  # (L, H, P)
    n_layers, n_heads = maps.shape[:2]
    chosen = list(range(n_layers)) if layers is None else list(layers)
    wrong = [n for n in chosen if not 0 <= n < n_layers]
    if wrong:
        raise ValueError(f"layer must be in 0..{n_layers - 1}, got {wrong[0]}; there are {n_layers} layers")
    chosen = chosen[-max(1, _MOST // n_heads) :]
    rows = [[maps[layer, head].view(glance.grid) for head in range(n_heads)] for layer in chosen]
    names = [[f"layer {layer} head {head}" for head in range(n_heads)] for layer in chosen]
    return _panels(image, rows, names, title, "weight on a patch")


def layer_mass(
    image: Shaped[Tensor, "C h w"], glance: Glance, *, item: int = 0, title: str | None = None
) -> Figure:
    """Draw the share of all weight that each patch received, a panel a layer.

    Args:
        image: Bytes.
        glance: Of this image, or of several of which it is the ``item``-th.
        item: Which of them.
        title: Stands above.
    """
    maps = [layer.view(glance.grid) for layer in glance.received[item]]
    across = 6
    rows = [maps[i : i + across] for i in range(0, len(maps), across)]
    names = [
        [f"layer {i + j}" for j in range(len(row))]
        for i, row in zip(range(0, 999, across), rows, strict=False)
    ]
    return _panels(image, rows, names, title, "share of all weight")


def distances(distance: Float[Tensor, "L H"], *, title: str | None = None) -> Figure:
    """Draw how far each head looks, in pixels, by its depth: the ViT paper's figure.

    Args:
        distance: ``Glance.distance``.
        title: Stands above.

    Example:
        >>> distances(torch.rand(4, 3)).axes[0].get_ylabel()
        'mean attention distance, pixels'
    """
    values = distance.detach().cpu().double().numpy()
    n_layers, n_heads = values.shape
    with style():
        figure = Picture(figsize=(max(4.2, 0.35 * n_layers + 2), 3.2), dpi=150, layout="constrained")
        ax = figure.subplots()
        for head in range(n_heads):
            ax.plot(range(n_layers), values[:, head], "o", color=MAY_LOOK, alpha=0.6, markersize=5)
        ax.plot(range(n_layers), values.mean(1), color="#b5367a", linewidth=1.5, label="mean of the heads")
        ax.set(xlabel=_DEPTH, ylabel="mean attention distance, pixels", title=title)
        ax.set_ylim(0, 1.1 * float(values.max()) or 1.0)
        ax.grid(axis="y", color="#e4e4e8", linewidth=0.8)
        ax.set_xlim(-0.5, n_layers - 0.5)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.legend(loc="lower right", fontsize=10)
    return figure


def confused(counts: Int[Tensor, "V V"], names: Sequence[str], *, title: str | None = None) -> Figure:
    """Draw a confusion matrix: what each class, down, was taken for, across; as shares of the class.

    Args:
        counts: :func:`sightline.evaluate.classes.confusion`.
        names: Of the classes.
        title: Stands above.

    Example:
        >>> confused(torch.eye(2, dtype=torch.long), ["cat", "dog"]).axes[0].get_xlabel()
        'was taken for'
    """
    table = counts.cpu().double().numpy()
    shares = table / np.maximum(table.sum(1, keepdims=True), 1)
    n = len(names)
    side = min(max(0.42 * n, 2.5), 10.0)
    with style():
        figure = Picture(figsize=(side + 2.4, side + 1.4), dpi=150, layout="constrained")
        ax = figure.subplots()
        image = ax.imshow(shares, cmap=COLOURS, vmin=0, vmax=1)
        name_ticks(ax.xaxis, n, names, room=side)
        name_ticks(ax.yaxis, n, names, room=side)
        if n <= _MOST_NAMED:
            for (row, column), count in np.ndenumerate(table):
                if count:
                    shade = "white" if shares[row, column] < 0.5 else "black"
                    ax.text(column, row, f"{count:.0f}", ha="center", va="center", fontsize=8, color=shade)
        ax.set(xlabel="was taken for", ylabel="is", title=title)
        figure.colorbar(image, label="share of the class", shrink=0.8)
    return figure


def _panels(
    image: Shaped[Tensor, "C h w"],
    rows: Sequence[Sequence[Tensor | None]],
    names: Sequence[Sequence[str]],
    title: str | None,
    label: str,
) -> Figure:
    """Maps over the image in rows of panels, all on one scale; None is the image itself."""
    photo = _photo(image)
    height, width = photo.shape[:2]
    tall, wide = _PANEL * height / max(height, width), _PANEL * width / max(height, width)
    across = max(map(len, rows))
    size = across * (wide + 0.1) + 1.1, len(rows) * (tall + 0.3) + (0.5 if title else 0.2)
    brightest = max(float(x.max()) for row in rows for x in row if x is not None)
    with style():
        figure = Picture(figsize=size, dpi=150, layout="constrained")
        axes = figure.subplots(len(rows), across, squeeze=False)
        shown: Any = None
        for row, line, of_row in zip(rows, axes, names, strict=True):
            for ax in line[len(row) :]:
                ax.remove()
            for ax, weights, name in zip(line, row, of_row, strict=False):
                shown = _draw(ax, photo, weights, brightest) or shown
                ax.set_title(name, fontsize=9, pad=2)
        figure.suptitle(title or "", fontsize=12)
        kept = [ax for line, row in zip(axes, rows, strict=True) for ax in line[: len(row)]]
        bar = figure.colorbar(shown, ax=kept, label=label, aspect=24, fraction=0.06)
        bar.ax.set_facecolor("#777777")  # what lies under the colours is a grey photo here too
    return figure


def _draw(ax: Axes, photo: Any, weights: Tensor | None, brightest: float) -> Any:
    ax.axis("off")
    if weights is None:
        ax.imshow(photo)
        return None
    height, width = photo.shape[:2]
    ax.imshow(grey(photo))
    extent = (-0.5, width - 0.5, height - 0.5, -0.5)
    between = "nearest" if max(height, width) <= _SMALL else "bicubic"
    values = weights.detach().cpu().double().numpy()
    return ax.imshow(
        values, cmap=colours(), vmin=0, vmax=brightest or 1.0, extent=extent, interpolation=between
    )


def _photo(image: Tensor) -> Any:
    """Bytes (h, w, 3), whatever the channels."""
    colour = image.expand(3, -1, -1) if image.size(0) == 1 else image
    return colour.permute(1, 2, 0).cpu().numpy()
