"""The style that all figures share: fonts, colours, the layout of matrices, names of rows and columns."""

import math
import textwrap
import unicodedata
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
import torch
from matplotlib.axes import Axes
from matplotlib.axis import Axis, XAxis
from matplotlib.colors import Colormap, ListedColormap
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.rcsetup import cycler
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from sightline.look import palette
from sightline.shapes import is_tensor
from sightline.show.fonts import FONT, FallbackFontFigure


def _colormap(name: str, colours: Sequence[palette.Colour]) -> ListedColormap:
    return ListedColormap([palette.hexadecimal(colour) for colour in colours], name=name)


# Figures are drawn on light paper, with the colours of a page there.
PAPER, INK, SOFT, LINE, ACCENT, MAIN = (
    palette.THEME[name][0] for name in ("paper", "ink", "soft", "line", "accent", "link")
)
COLOURS = _colormap("weights", palette.scale(palette.weight, 256))
DIVERGING = _colormap("differences", palette.scale(palette.difference, 257, least=-1.0))
MAY_LOOK, MAY_NOT = MAIN, LINE
_NAMES, _SMALLEST = 10.0, 7.0  # font size of a name, and the smallest that is tried so that all fit

_STYLE: Any = {
    "font.family": FONT,
    "font.size": 11,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": LINE,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.prop_cycle": cycler(color=palette.LINES),
    "grid.color": LINE,
    "axes.titlesize": 12,
    "axes.labelsize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.bottom": False,
    "axes.spines.left": False,
    "axes.grid": False,
    "xtick.labelsize": _NAMES,
    "ytick.labelsize": _NAMES,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "text.parse_math": False,  # a token may hold a dollar sign, which would start a formula
}
SCALE = 1.4  # inches of a colour bar with its labels
_LONGEST = 18  # letters of a name, beyond which it is cut
_LETTER = 0.085  # inches of a letter
_CELL = 0.36  # inches of a cell, where there is room
NAME = 0.21  # inches from one name to the next


def style() -> AbstractContextManager[None]:
    """A context with the settings of these figures; matplotlib's own come back after it."""
    return mpl.rc_context(_STYLE)


@dataclass(frozen=True)
class Sheet:
    """A figure of matrices side by side, each T x S, with queries down and keys across; laid out in inches.

    Attributes:
        figure: The figure.
        axes: One per matrix.
        t: Rows of each matrix.
        s: Columns of each matrix.
        height: Height of a matrix, in inches.
        width: Width of a matrix, in inches.
    """

    figure: Figure
    axes: list[Axes]
    t: int
    s: int
    height: float
    width: float

    @classmethod
    def create(
        cls,
        count: int,
        t: int,
        s: int,
        *,
        queries: Sequence[str] | None = None,
        keys: Sequence[str] | None = None,
        title: str | None = None,
        above: float = 0.35,
        beside: float = 0.15,
        below: float = 0.0,
    ) -> "Sheet":
        """Lay out some matrices, at most three in a row, with room for the names of rows and columns.

        Args:
            count: How many matrices.
            t: Rows of each.
            s: Columns of each.
            queries: Names of the rows, left of each matrix.
            keys: Names of the columns, slanted, under each matrix.
            title: Text above all, wrapped to the width.
            above: Inches above each matrix, for its name.
            beside: Inches on the right, for a colour bar.
            below: Inches at the bottom, for a legend.
        """
        columns = math.ceil(count / math.ceil(count / 3))
        rows = math.ceil(count / columns)
        most = 6.5 if count == 1 else 2.8
        needed = NAME * max(t, s)  # for all names
        if (queries or keys) and needed <= 1.5 * most:
            most = max(most, needed)
        height, width = _sides(t, s, most=most)
        slanted = _LETTER * _longest(keys) * math.sqrt(0.5)  # as far down as left of its column
        left, under = max(0.45, _LETTER * _longest(queries) + 0.12, slanted), max(0.3, slanted + 0.2)
        across, down = left + width + 0.15, above + height + under
        full_width = max(0.35 + columns * across + beside, 3.2)
        lines = textwrap.wrap(title or "", int(10 * full_width))
        full_height = 0.15 + 0.25 * len(lines) + rows * down + 0.3 + below
        figure = FallbackFontFigure(figsize=(full_width, full_height), dpi=150)
        figure.text(0.5, 1 - 0.12 / full_height, "\n".join(lines), ha="center", va="top", fontsize=12)
        axes = []
        for i in range(count):
            row, column = divmod(i, columns)
            x = 0.35 + column * across + left
            y = below + 0.3 + (rows - 1 - row) * down + under
            box = (x / full_width, y / full_height, width / full_width, height / full_height)
            axes.append(figure.add_axes(box, ylabel="" if column else "Query"))
            axes[-1].set_xlabel("Key" if i + columns >= count else "")
        return cls(figure, axes, t, s, height, width)

    def draw(
        self, ax: Axes, matrix: Any, *, brightest: float, colours: str | Colormap | None = None
    ) -> AxesImage:
        """Draw one matrix, with colours from 0 to the brightest value of all; see :func:`draw_matrix`."""
        return draw_matrix(ax, matrix, (0.0, brightest), colours)

    def label_axes(self, ax: Axes, queries: Sequence[str] | None, keys: Sequence[str] | None) -> None:
        """Name or number the rows and the columns of one matrix."""
        name_ticks(ax.yaxis, self.t, queries, room=self.height)
        name_ticks(ax.xaxis, self.s, keys, room=self.width)

    def draw_cell_lines(self, ax: Axes) -> None:
        """Draw thin white lines between cells, where they are large enough to be counted."""
        if self.height / self.t > 0.12 and self.width / self.s > 0.12:
            ax.set_xticks([x + 0.5 for x in range(self.s - 1)], minor=True)
            ax.set_yticks([y + 0.5 for y in range(self.t - 1)], minor=True)
            ax.grid(which="minor", color="white", linewidth=1)
            ax.tick_params(which="minor", length=0)

    def add_colorbar(self, image: AxesImage, label: str) -> None:
        """Draw the colour bar on the right of the matrices, as high as they are."""
        boxes = [ax.get_position() for ax in self.axes]
        right, bottom, top = max(b.x1 for b in boxes), min(b.y0 for b in boxes), max(b.y1 for b in boxes)
        inch = 1 / self.figure.get_figwidth()
        scale = self.figure.add_axes((right + 0.2 * inch, bottom, 0.18 * inch, top - bottom))
        self.figure.colorbar(image, cax=scale, label=label)


Limits = tuple[float, float]  # the ends of a colour scale


def limits_of(matrices: Sequence[Any], *, signed: bool = False) -> Limits:
    """The ends of the colour scale that matrices share: from 0, or, with signs, as far to either side."""
    least, most = min(float(x.min()) for x in matrices), max(float(x.max()) for x in matrices)
    if least >= 0 and not signed:
        return 0.0, most
    end = max(-least, most) or 1.0
    return -end, end


def draw_matrix(ax: Axes, matrix: Any, limits: Limits, colours: str | Colormap | None = None) -> AxesImage:
    """Draw one matrix: dark where it is large; on a scale with two sides orange above 0 and blue below."""
    chosen = colours or (DIVERGING if limits[0] < 0 else COLOURS)
    frame(ax)
    return ax.imshow(matrix, cmap=chosen, vmin=limits[0], vmax=limits[1], aspect="auto")


def frame(ax: Axes) -> None:
    """A thin line around a matrix, whose smallest weights have the colour of the paper."""
    for side in ax.spines.values():
        side.set(visible=True, color=LINE, linewidth=0.8)


def ink_on(colour: Any) -> str:
    """Black or white, whichever reads better on a colour.

    Example:
        >>> ink_on(COLOURS(0.1)), ink_on(COLOURS(0.9))
        ('black', 'white')
    """
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in colour[:3]]
    light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "black" if light > 0.179 else "white"


def name_ticks(
    axis: Axis, count: int, names: Sequence[str] | None, *, room: float, upright: bool = False
) -> None:
    """Label rows or columns by name, or by number if ``names`` is None.

    All names are written if they fit into ``room`` inches, in smaller letters if need be; else evenly spaced
    ones. Long names of columns are slanted, or upright, which takes less room.
    """
    if names is None:
        axis.set_major_locator(
            MaxNLocator(nbins=max(1, min(8, int(room / 0.3))), integer=True, min_n_ticks=1)
        )
        return
    if len(names) != count:
        raise ValueError(
            f"there must be one name for each row or column, got {len(names)} names for {count} of them"
        )
    size = min(_NAMES, _NAMES * room / (count * NAME))
    step = 1
    if size < _SMALLEST:
        size, step = _NAMES, math.ceil(count * NAME / room)
    shortened = [_short(name) for name in names]
    sideways: dict[str, Any] = {}
    if isinstance(axis, XAxis) and _longest(names) > 2:
        slanted = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
        sideways = {"rotation": 90} if upright else slanted
    axis.set_ticks(range(0, count, step), shortened[::step], parse_math=False, fontsize=size, **sideways)


def to_matrix(x: "Tensor | npt.NDArray[Any]", name: str) -> Any:
    """A 2-D tensor or array as a float64 array; ValueError if it is not 2-D or is empty."""
    if isinstance(x, np.ndarray) and x.dtype.kind not in "biuf":
        raise TypeError(f"{name} must hold real numbers to be drawn, got an array of {x.dtype}")
    x = torch.from_numpy(x) if isinstance(x, np.ndarray) else x
    is_tensor(x, name)  # dense, too
    if x.is_meta or x.is_complex():
        raise ValueError(f"{name} must hold real numbers to be drawn, got {x.dtype} on {x.device}")
    if x.dim() != 2 or not x.numel():
        raise ValueError(
            f"{name} must be a matrix with at least one row and one column to be drawn, got shape "
            f"{tuple(x.shape)}"
        )
    return x.detach().cpu().double().numpy()


def name_room(names: Sequence[str] | None) -> float:
    """The width of the longest name, in inches."""
    return _LETTER * _longest(names)


def _longest(names: Sequence[str] | None) -> int:
    """The width of the longest name in letters; a Chinese, Japanese or Korean one counts as two."""
    return max(len(name) + sum(map(_is_wide, name)) for name in map(_short, names or [""]))


def _is_wide(letter: str) -> bool:
    return unicodedata.east_asian_width(letter) in "WF"


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "…"


def _sides(t: int, s: int, *, most: float) -> tuple[float, float]:
    """Height and width in inches of T rows and S columns: square cells, unless one side would be too thin."""
    least = 1.6
    if max(t, s) > 4 * min(t, s):
        return min(max(t * _CELL, least), most), min(max(s * _CELL, least), most)
    cell = min(max(_CELL, least / min(t, s)), most / max(t, s))
    return t * cell, s * cell
