"""The figure of captioning: the picture, and for each word that was said, where the model looked."""

import math
import textwrap
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from torch import Tensor

from sightline.shapes import Float
from sightline.show.fonts import Picture
from sightline.show.style import style
from sightline.show.told import Box, Told

_PANEL = 1.75  # inches of a picture's longer side
_MOST_ACROSS = 6
_SEEN = "inferno"  # of weights over a photo: from black, which a grey photo shows through, to light
_BOX = "#35c4f0"


def colours() -> ListedColormap:
    """The colours of weights over a picture: clear where there is none, glowing where there is most."""
    table = mpl.colormaps[_SEEN](np.linspace(0.45, 0.97, 256))
    table[:, 3] = np.linspace(0.0, 1.0, 256) ** 0.65 * 0.9
    return ListedColormap(table, name="seen")


def overlay(told: Told, *, head: int | None = None, title: str | None = None, smooth: bool = True) -> Figure:
    """Draw the picture and, for each word, the picture again with the weights of that word over it.

    All words share one scale of colours, from no weight to the largest weight of any word, or to four times
    an even share if that is more. A cross marks the
    patch that a word looked at most; the box of the thing it speaks of is drawn where it is known.

    Args:
        told: The picture, the words and their weights.
        head: Which head to show. Default: the mean of all.
        title: Stands above. Default: the sentence.
        smooth: Whether to blur from patch to patch; else every patch is a square of one colour.

    Example:
        >>> told = Told(image=torch.zeros(3, 8, 8, dtype=torch.uint8), words=["a", "dog"],
        ...             weights=torch.full((2, 4, 6), 1 / 6), grid=(2, 3))
        >>> [axes.get_title() for axes in overlay(told).axes]
        ['', 'a', 'dog', '']
    """
    maps = told.maps(head)
    image = _photo(told.image)
    height, width = image.shape[:2]
    across = min(len(told.words) + 1, _MOST_ACROSS)
    down = math.ceil((len(told.words) + 1) / across)
    tall, wide = _PANEL * height / max(height, width), _PANEL * width / max(height, width)
    lines = textwrap.wrap(
        told.caption if title is None else title, max(20, int(9.5 * across * (wide + 0.12)))
    )
    above = 0.05 + 0.25 * len(lines)
    size = (across * (wide + 0.12) + 1.0, above + down * (tall + 0.34) + 0.1)
    brightest = told.brightest(head)
    with style():
        figure = Picture(figsize=size, dpi=150)
        figure.text(0.15 / size[0], 1 - 0.14 / size[1], "\n".join(lines), va="top", fontsize=13)
        for i in range(len(told.words) + 1):
            row, column = divmod(i, across)
            left, bottom = 0.12 + column * (wide + 0.12), 0.1 + (down - 1 - row) * (tall + 0.34)
            ax = figure.add_axes((left / size[0], bottom / size[1], wide / size[0], tall / size[1]))
            ax.axis("off")
            if i == 0:
                ax.imshow(image)
                continue
            _draw(ax, image, maps[i - 1], brightest, smooth=smooth, box=told.boxes.get(i - 1))
            ax.set_title(told.words[i - 1], fontsize=11, pad=3, parse_math=False)
        bar = figure.add_axes(((size[0] - 0.78) / size[0], 0.1 / size[1], 0.13 / size[0], tall / size[1]))
        shown = mpl.cm.ScalarMappable(mpl.colors.Normalize(0, brightest), colours())
        bar.set_facecolor("#777777")  # what lies under the colours is a grey photo here too
        figure.colorbar(shown, cax=bar, label="weight on a patch", ticks=[0, brightest], format="{x:.2f}")
        bar.yaxis.labelpad = -14
    return figure


def _photo(image: Tensor) -> Any:
    return image.permute(1, 2, 0).cpu().numpy()


def grey(image: Any) -> Any:
    """The picture without its colours and a little darker, so that weights stand out of it."""
    light = image.astype(np.float32) @ np.array([0.299, 0.587, 0.114], dtype=np.float32)
    return np.repeat((light * 0.72)[..., None], 3, -1).astype(np.uint8)


def _draw(
    ax: Axes,
    image: Any,
    weights: Float[Tensor, "rows columns"],
    brightest: float,
    *,
    smooth: bool,
    box: Box | None,
) -> None:
    """One word: the grey picture, its weights, a cross at the largest, and the box if it is known."""
    height, width = image.shape[:2]
    ax.imshow(grey(image))
    ax.imshow(
        weights.numpy(),
        cmap=colours(),
        vmin=0,
        vmax=brightest,
        extent=(-0.5, width - 0.5, height - 0.5, -0.5),
        interpolation="bicubic" if smooth else "nearest",
    )
    rows, columns = weights.shape
    row, column = divmod(int(weights.argmax()), columns)
    x, y = (column + 0.5) * width / columns - 0.5, (row + 0.5) * height / rows - 0.5
    rim = [withStroke(linewidth=2.6, foreground="black")]  # seen on light patches too
    ax.plot(x, y, marker="+", color="white", markersize=7, markeredgewidth=1.3, path_effects=rim)
    if box is not None:
        left, top, right, bottom = box
        ax.add_patch(
            Rectangle((left - 0.5, top - 0.5), right - left, bottom - top, fill=False, edgecolor=_BOX, lw=1.4)
        )
    ax.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5))
