"""The overlay figure: an image, and once more for each word with the weights of that word over it."""

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

from sightline.look import palette
from sightline.shapes import Float, Shaped
from sightline.show.caption_overlay import Box, CaptionOverlay
from sightline.show.fonts import FallbackFontFigure
from sightline.show.style import style

_PANEL = 1.75  # inches of an image's longer side
_MOST_ACROSS = 6
_BOX = palette.THEME["link"][1]


def colours() -> ListedColormap:
    """The colours of weights over an image: transparent at zero, glowing at the largest."""
    table = np.ones((256, 4))
    table[:, :3] = np.array(palette.scale(palette.glow, 256)) / 255
    table[:, 3] = np.linspace(0.0, 1.0, 256) ** 0.65 * 0.9
    return ListedColormap(table, name="overlay")


def overlay(
    record: CaptionOverlay, *, head: int | None = None, title: str | None = None, smooth: bool = True
) -> Figure:
    """Draw the image, then one panel per word: the image in grey with the word's weights over it.

    All words share one colour scale, from zero to the largest weight of any word, or to four even shares if
    that is more. A cross marks the patch with the largest weight; a box marks the object that a word names,
    where it is known. The record's note is written under the title.

    Args:
        record: The image, the words and their weights.
        head: Which head to show. Default: the mean of all.
        title: Text above the panels. Default: the caption.
        smooth: Whether to interpolate between patches; otherwise each patch is a square of one colour.

    Example:
        >>> record = CaptionOverlay(image=torch.zeros(3, 8, 8, dtype=torch.uint8), words=["a", "dog"],
        ...                         weights=torch.full((2, 4, 6), 1 / 6), grid=(2, 3))
        >>> [axes.get_title() for axes in overlay(record).axes]
        ['', 'a', 'dog', '']
    """
    maps = record.maps(head)
    image = pixels(record.image)
    height, width = image.shape[:2]
    across = min(len(record.words) + 1, _MOST_ACROSS)
    down = math.ceil((len(record.words) + 1) / across)
    tall, wide = _PANEL * height / max(height, width), _PANEL * width / max(height, width)
    room = across * (wide + 0.12)  # inches for a line of text
    lines = textwrap.wrap(record.caption if title is None else title, max(20, int(9.5 * room)))
    notes = textwrap.wrap(record.note, max(28, int(14 * room)))
    above = 0.05 + 0.25 * len(lines) + 0.17 * len(notes)
    size = (room + 1.0, above + down * (tall + 0.34) + 0.1)
    brightest = record.brightest(head)
    with style():
        figure = FallbackFontFigure(figsize=size, dpi=150)
        left, top = 0.15 / size[0], size[1] - 0.14
        figure.text(left, top / size[1], "\n".join(lines), va="top", fontsize=13)
        top -= 0.25 * len(lines)
        figure.text(left, top / size[1], "\n".join(notes), va="top", fontsize=9, color="0.35")
        for i in range(len(record.words) + 1):
            row, column = divmod(i, across)
            left, bottom = 0.12 + column * (wide + 0.12), 0.1 + (down - 1 - row) * (tall + 0.34)
            ax = figure.add_axes((left / size[0], bottom / size[1], wide / size[0], tall / size[1]))
            ax.axis("off")
            if i == 0:
                ax.imshow(image)
                continue
            _draw(ax, image, maps[i - 1], brightest, smooth=smooth, box=record.boxes.get(i - 1))
            ax.set_title(record.words[i - 1], fontsize=11, pad=3, parse_math=False)
        bar = figure.add_axes(((size[0] - 0.78) / size[0], 0.1 / size[1], 0.13 / size[0], tall / size[1]))
        scale = mpl.cm.ScalarMappable(mpl.colors.Normalize(0, brightest), colours())
        bar.set_facecolor("#777777")  # the colours lie on a grey photo in the panels too
        figure.colorbar(scale, cax=bar, label="weight on a patch", ticks=[0, brightest], format="{x:.2f}")
        bar.yaxis.labelpad = -14
    return figure


def pixels(image: Shaped[Tensor, "C h w"]) -> Any:
    """The image as an array ``(h, w, 3)``; one channel becomes three equal ones."""
    colour = image.expand(3, -1, -1) if image.size(0) == 1 else image
    return colour.permute(1, 2, 0).cpu().numpy()


def to_grey(image: Any) -> Any:
    """An array ``(h, w, 3)`` without its colours and darker, so that weights stand out against it."""
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
    """Draw one word: the grey image, its weights, a cross at the largest, and the box if there is one."""
    height, width = image.shape[:2]
    ax.imshow(to_grey(image))
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
    rim = [withStroke(linewidth=2.6, foreground="black")]  # visible on light patches too
    ax.plot(x, y, marker="+", color="white", markersize=7, markeredgewidth=1.3, path_effects=rim)
    if box is not None:
        left, top, right, bottom = box
        ax.add_patch(
            Rectangle((left - 0.5, top - 0.5), right - left, bottom - top, fill=False, edgecolor=_BOX, lw=1.4)
        )
    ax.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5))
