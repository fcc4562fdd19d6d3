"""Attention as blocks of characters, for a terminal: colours where it has them, shades where it has none.

A character is twice as high as wide. In colour each one is two cells, the upper half ``▀`` in front and the
lower half behind it; without colour a cell is two characters wide. Either way cells are squares, and a tile
takes the same room.
"""

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from rich.cells import cell_len, set_cell_size
from rich.color import Color
from rich.console import Console
from rich.style import Style
from rich.text import Text
from torch import Tensor
from torch.nn import functional

from sightline.look.sight import Sight
from sightline.palette import Colour, scale, weight
from sightline.shapes import Float, Shaped
from sightline.tasks.attention import Attention, Grid

__all__ = ["Tile", "image_tile", "print_attention", "print_sights", "print_tiles", "tiles_per_row"]

_SHADES = " ░▒▓█"
_ASCII = " .:*#"
_SMALLEST, _LARGEST = 12, 32  # characters across a tile
_NAME = 16  # characters of a name beside a row
_LEVELS = 64

Pixels = np.ndarray[tuple[int, ...], np.dtype[np.uint8]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Tile:
    """A small picture with a title.

    Attributes:
        title: Above it.
        weights: One cell each, or the bytes of an image, ``(h, w, 3)``.
    """

    title: str
    weights: np.ndarray[tuple[int, ...], np.dtype[np.float32]] | Pixels

    @property
    def is_image(self) -> bool:
        """Whether the cells are colours."""
        return self.weights.ndim == 3


def print_attention(console: Console, attention: Attention, title: str = "", *, heads: bool = True) -> None:
    """Draw an attention that holds its weights.

    Over an image: the image, and beside it what each word looked at; of one query, what each head looked at.
    Over words: all heads; one head alone has the words at its sides.

    Args:
        console: Where to.
        attention: The weights.
        title: Above.
        heads: Whether to draw each head of words; else the summary alone.
    """
    if title:
        console.print(Text(title, style="bold"), soft_wrap=True)
    n_layers, n_heads = attention.weights.shape[:2]
    if isinstance(attention.keys, Grid):
        print_tiles(console, _over_image(attention, attention.keys), 0, 2 * attention.keys.columns)
    elif n_layers * n_heads == 1 or not heads:
        print_matrix(console, _array(attention.summary), attention.queries, attention.keys)
    else:
        for layer, weights in enumerate(attention.weights):
            place = "" if n_layers == 1 else f"layer {layer}, "
            tiles = [Tile(title=f"{place}head {h}", weights=_array(w)) for h, w in enumerate(weights)]
            print_tiles(console, tiles, n_heads)


def print_sights(console: Console, sights: Mapping[str, Sight]) -> None:
    """Draw all heads of some sights, each at the size that the terminal has room for."""
    for name, sight in sights.items():
        console.print(Text(name or "the model itself", style="bold"), soft_wrap=True)
        one = sight[(0,) * sight.n_batch] if sight.n_batch else sight
        n_heads = one.lead[-1] if one.has_heads else 1
        _, across = tiles_per_row(console.width, n_heads)
        across = across if _has_colour(console) else max(1, across // 2)
        size = (min(one.t, across), min(one.s, across))
        maps = one.map(size).reshape(-1, *size)
        print_tiles(
            console, [Tile(title=f"head {h}", weights=_array(m)) for h, m in enumerate(maps)], n_heads
        )


def print_tiles(console: Console, tiles: Sequence[Tile], n: int, smallest: int = _SMALLEST) -> None:
    """Draw tiles side by side, as many as fit.

    Args:
        console: Where to; its width counts.
        tiles: What.
        n: How many belong together, so that a row holds all of them or an even part; 0: whatever fits.
        smallest: Characters across a tile, at least, if the terminal has so many.
    """
    per_row, across = tiles_per_row(console.width, n or len(tiles), is_even=n > 0, smallest=smallest)
    for first in range(0, len(tiles), per_row):
        columns = [_lines(console, tile, across) for tile in tiles[first : first + per_row]]
        height = max(len(lines) for lines in columns)
        for i in range(height):
            row = Text(no_wrap=True)
            for lines in columns:
                row.append_text(lines[i] if i < len(lines) else Text(" " * across))
                row.append(" ")
            row.rstrip()
            console.print(row, soft_wrap=True)
        console.print()


def print_matrix(
    console: Console, weights: Float[np.ndarray, "T S"], queries: Sequence[str], keys: Sequence[str]
) -> None:
    """Draw one head large, the queries at its side and the keys below; a wide one is cut at the right."""
    side = min(_NAME, console.width // 3, max(map(cell_len, queries), default=0))
    room = console.width - side - 1
    across = 2 if 2 * len(keys) <= room else 1  # characters of a cell
    shown = max(1, room // across)
    largest = float(weights.max(initial=0.0)) or 1.0
    for name, row in zip(queries, weights[:, :shown] / largest, strict=True):
        line = Text(set_cell_size(_plain(name), side) + " ", no_wrap=True)
        for share in row:
            line.append_text(_cell(console, float(share))[:across])
        if not _has_colour(console):  # where there is colour, blanks have one
            line.rstrip()
        console.print(line, soft_wrap=True)
    names = [_plain(key)[:_NAME] for key in keys[:shown]]
    for i in range(max(map(len, names), default=0)):  # the names of the keys, written downwards
        letters = (set_cell_size(name[i] if i < len(name) else " ", across) for name in names)
        console.print(Text((" " * (side + 1) + "".join(letters)).rstrip()), soft_wrap=True)
    cut = f"; the first {shown} of {len(keys)} keys" if shown < len(keys) else ""
    console.print(Text(f"the largest weight is {largest:.3f}{cut}"))
    console.print()


def image_tile(image: Shaped[Tensor, "C h w"]) -> Tile:
    """The picture itself."""
    pixels = image.expand(3, -1, -1).permute(1, 2, 0).cpu().numpy()
    return Tile(title="the picture", weights=pixels)


def tiles_per_row(width: int, n: int, *, is_even: bool = True, smallest: int = _SMALLEST) -> tuple[int, int]:
    """How many tiles stand side by side, and how many characters each one has across.

    Example:
        >>> tiles_per_row(80, 12), tiles_per_row(200, 12), tiles_per_row(80, 4), tiles_per_row(20, 12)
        ((6, 12), (12, 15), (4, 19), (1, 20))
    """
    fits = max(1, (width + 1) // (smallest + 1))
    per_row = min(fits, max(n, 1))
    if is_even:
        per_row = next(k for k in range(per_row, 0, -1) if n % k == 0) if n else per_row
    return per_row, max(1, min(max(_LARGEST, smallest), (width + 1) // per_row - 1))


def _over_image(attention: Attention, grid: Grid) -> list[Tile]:
    shape = (grid.rows, grid.columns)
    tiles = [image_tile(grid.image)]
    summary = zip(attention.queries, _array(attention.summary), strict=True)
    tiles += [Tile(title=word, weights=row.reshape(shape)) for word, row in summary]
    n_layers, n_heads = attention.weights.shape[:2]
    if len(attention.queries) == 1 and n_layers * n_heads > 1:
        heads = _array(attention.weights)[:, :, 0]
        tiles += [
            Tile(title=f"layer {i}, head {h}", weights=heads[i, h].reshape(shape))
            for i in range(n_layers)
            for h in range(n_heads)
        ]
    return tiles


def _lines(console: Console, tile: Tile, across: int) -> list[Text]:
    """A tile as lines of text, each as wide as it may be."""
    title = Text(set_cell_size(_plain(tile.title), across))
    if not _has_colour(console):
        return [title, *_shaded(console, tile, across)]
    cells = _resized(tile.weights, across)
    pixels = cells if tile.is_image else _colours(cells)
    lines = [title]
    for upper, lower in itertools.zip_longest(pixels[::2], pixels[1::2]):
        line = Text()
        for i, above in enumerate(upper.tolist()):
            line.append("▀", _style(tuple(above), None if lower is None else tuple(lower[i].tolist())))
        lines.append(_padded(line, across))
    return lines


def _shaded(console: Console, tile: Tile, across: int) -> Iterator[Text]:
    values = tile.weights.mean(-1) / 255 if tile.is_image else tile.weights
    cells = _resized(np.asarray(values, dtype=np.float32), max(1, across // 2))
    for row in cells / (float(cells.max(initial=0.0)) or 1.0):
        line = Text()
        for share in row:
            line.append_text(_cell(console, float(share)))
        yield _padded(line, across)


def _cell(console: Console, share: float) -> Text:
    """A cell two characters wide."""
    if _has_colour(console):
        colour = Color.from_rgb(*_ramp()[round(share * (_LEVELS - 1))])
        return Text("  ", Style(bgcolor=colour))
    shades = _SHADES if console.encoding.lower().startswith("utf") else _ASCII
    return Text(2 * shades[min(len(shades) - 1, math.ceil(share * (len(shades) - 1) - 0.25))])


def _resized(cells: np.ndarray, across: int) -> np.ndarray:
    """Repeat cells, or take means of neighbours, so that the longer side has as many as fit."""
    height, width = cells.shape[:2]
    times = across // max(height, width)
    if times >= 1:
        return cells.repeat(times, 0).repeat(times, 1)
    scale = across / max(height, width)
    size = (max(1, round(height * scale)), max(1, round(width * scale)))
    values = torch.from_numpy(np.ascontiguousarray(cells)).float().reshape(height, width, -1)
    means = functional.adaptive_avg_pool2d(values.permute(2, 0, 1), size).permute(1, 2, 0)
    return means.numpy().reshape(*size, *cells.shape[2:]).astype(cells.dtype)


def _colours(weights: np.ndarray) -> Pixels:
    shares = weights / (float(weights.max(initial=0.0)) or 1.0)
    return np.asarray(_ramp(), dtype=np.uint8)[np.rint(shares * (_LEVELS - 1)).astype(int)]


@functools.cache
def _ramp() -> list[Colour]:
    """Colours for weights from none to the largest, as on dark pages."""
    return scale(weight, _LEVELS, dark=True)


@functools.lru_cache(maxsize=4096)
def _style(above: tuple[int, ...], below: tuple[int, ...] | None) -> Style:
    behind = None if below is None else Color.from_rgb(*below)
    return Style(color=Color.from_rgb(*above), bgcolor=behind)


def _padded(line: Text, across: int) -> Text:
    line.append(" " * max(0, across - line.cell_len))
    return line


def _has_colour(console: Console) -> bool:
    return console.color_system is not None and not console.no_color


def _plain(text: str) -> str:
    """A name on one line: what would move the cursor is shown as a box."""
    return "".join(letter if letter.isprintable() else "□" for letter in text)


def _array(weights: Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    array: np.ndarray[tuple[int, ...], np.dtype[np.float32]] = weights.detach().float().cpu().numpy()
    return array
