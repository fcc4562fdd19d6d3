"""Figures of a sight, at any length: the weights of one head, or of all heads of a layer."""

import math
from collections.abc import Sequence
from typing import TypeVar

from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator, StrMethodFormatter
from torch import Tensor

from sightline.look.difference import SightDifference
from sightline.look.sight import Sight, Span
from sightline.messages import check_integer, format_value
from sightline.shapes import Float
from sightline.show.fonts import FallbackFontFigure
from sightline.show.style import (
    NAME,
    SCALE,
    Sheet,
    draw_matrix,
    limits_of,
    name_room,
    name_ticks,
    style,
    to_matrix,
)

AnySight = Sight | SightDifference
_Sight = TypeVar("_Sight", Sight, SightDifference, Sight | SightDifference)

_MOST_HEADS = 128
_PANEL = 1.45  # inches of a panel
# The largest panel where tokens are written: heads up to which it holds, and its inches.
_LARGEST_PANEL = {4: 4.5, 16: 3.6, _MOST_HEADS: 2.0}
_MOST_NAMED = 32  # tokens up to which they are written beside the panels
_FEW = 32  # keys up to which the colour scale is linear
_DARKEST = 1e-4  # the dark end of a logarithmic scale, as a share of the brightest


def sight_map(
    sight: AnySight,
    queries: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    *,
    head: int | None = None,
    size: int | None = None,
    window: tuple[Span, Span] | None = None,
    title: str | None = None,
) -> Figure:
    """Draw the weights of one head, or the mean of all heads, bright where they are large.

    Up to ``size`` queries and keys get a cell each. Beyond that, a cell is a mean of weights, and rows and
    columns are numbered. With more than 32 keys the colour scale is logarithmic.

    Args:
        sight: Of one item of the batch; q and k kept, or a map measured. Or the difference of two sights,
            ``after - before``: then the scale has two sides, white at zero, and is linear.
        queries: One name per query, written where each query has a row.
        keys: One name per key.
        head: Which head. Default: the mean of all.
        size: Cells down and across, at most. Default: those of the measured map, else 256.
        window: Only these queries and keys, each ``(first, past_the_last)``.
        title: Text above. Default: the name of the module that was watched.

    Example:
        >>> x = torch.randn(1, 2, 3, 8)
        >>> figure = sight_map(sl.look(x, x, x), list("abc"), list("abc"), head=1)
        >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
        ['a', 'b', 'c']
    """
    one = select_head(sight, head)
    spans = window or ((0, sight.t), (0, sight.s))
    matrix = to_matrix(pooled_map(one, size, 256, window), "map")
    whole = matrix.shape == tuple(last - first for first, last in spans)
    rows = _inside(check_names(queries, sight.t, "query"), spans[0]) if whole else None
    columns = _inside(check_names(keys, sight.s, "key"), spans[1]) if whole else None
    with style():
        room = rows or [f"{spans[0][1]:,}"]
        title = title or sight.name
        sheet = Sheet.create(
            1, *matrix.shape, queries=room, keys=columns, title=title, above=0.1, beside=SCALE
        )
        ax = sheet.axes[0]
        limits = limits_of([matrix], signed=isinstance(sight, SightDifference))
        image = draw_matrix(ax, matrix, limits)
        if sight.s > _FEW and limits[0] == 0:
            use_log_scale(image, float(matrix.max()))
        _place(
            image,
            spans[0] if rows is None else (0, len(rows)),
            spans[1] if columns is None else (0, len(columns)),
        )
        sheet.label_axes(ax, rows, columns)
        for axis, names in ((ax.yaxis, rows), (ax.xaxis, columns)):
            if names is None:
                axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        sheet.add_colorbar(image, _label(sight, whole=whole))
    return sheet.figure


def heads(
    sight: AnySight,
    queries: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    *,
    size: int | None = None,
    title: str | None = None,
) -> Figure:
    """Draw every head of a layer, with its number and its entropy in nats, on one colour scale.

    Args:
        sight: Of one item of the batch; q and k kept, or a map measured. Up to 128 heads.
        queries: One name per query, written at the edges where there are 32 or fewer, all that fit.
        keys: One name per key.
        size: Cells down and across, at most. Default: those of the measured map, else 64.
        title: Text above. Default: the name of the module that was watched.

    Example:
        >>> x = torch.zeros(1, 2, 3, 8)
        >>> [axes.get_title() for axes in heads(sl.look(x, x, x)).axes[:2]]
        ['head 0 · 1.10', 'head 1 · 1.10']
    """
    one = select_item(sight)
    if not one.has_heads or not 0 < one.lead[0] <= _MOST_HEADS:
        shape = "averaged heads" if one.averaged else f"leading dimensions {one.lead}"
        raise ValueError(f"a grid has 1 to {_MOST_HEADS} heads, got a sight with {shape}")
    rows, columns = check_names(queries, sight.t, "query"), check_names(keys, sight.s, "key")
    maps = pooled_map(one, size, 64)  # (H, rows, columns)
    whole = tuple(maps.shape[-2:]) == (sight.t, sight.s)
    names = [f"head {i}" for i in range(maps.size(0))]
    if "entropy" in one.statistics:
        entropies = one.entropy.detach().double().nanmean(-1).tolist()  # NaN at padding
        sign = "+" if isinstance(one, SightDifference) else ""
        known = zip(names, entropies, strict=True)
        names = [name if math.isnan(nats) else f"{name} · {nats:{sign}.2f}" for name, nats in known]
    named = [names if whole and len(names or ()) <= _MOST_NAMED else None for names in (rows, columns)]
    return head_panels(
        maps,
        names,
        *named,
        spans=(sight.t, sight.s),
        title=title or sight.name,
        label=_label(sight, whole=whole),
        logarithmic=sight.s > _FEW,
        signed=isinstance(sight, SightDifference),
    )


def head_panels(
    maps: Float[Tensor, "H rows columns"],
    titles: Sequence[str],
    queries: list[str] | None = None,
    keys: list[str] | None = None,
    *,
    spans: tuple[int, int] | None = None,
    title: str = "",
    label: str = "Weight",
    logarithmic: bool = False,
    signed: bool = False,
) -> Figure:
    """Draw one panel per head, on one colour scale, with tokens at the edges.

    Args:
        maps: Up to 128 heads.
        titles: One per panel.
        queries: Tokens of the rows; numbers if None.
        keys: Tokens of the columns; numbers if None.
        spans: The number of queries and keys. Default: one per row and column.
        title: Stands above the grid.
        label: Text beside the colour bar.
        logarithmic: Whether the colour scale is logarithmic.
        signed: Whether the colour scale has two sides; so it is where a value is negative.
    """
    if not 0 < maps.size(0) <= _MOST_HEADS:
        raise ValueError(f"a grid has 1 to {_MOST_HEADS} heads, got {maps.size(0)}; draw a part of them")
    matrices = [to_matrix(head, "map") for head in maps]
    limits = limits_of(matrices, signed=signed)
    t, s = spans or (maps.size(1), maps.size(2))
    with style():
        figure, axes = _grid(len(matrices), t, s, queries, keys)
        for ax, matrix, name in zip(axes, matrices, titles, strict=True):
            image = draw_matrix(ax, matrix, limits)
            if logarithmic and limits[0] == 0:
                use_log_scale(image, limits[1])
            _place(image, (0, t), (0, s))
            ax.set_title(name, fontsize=10)
        figure.suptitle(title, fontsize=12)
        figure.supylabel("Query", fontsize=11)
        figure.supxlabel("Key", fontsize=11)
        figure.colorbar(image, ax=axes, label=label, aspect=30, fraction=0.05)
    return figure


def _label(sight: AnySight, *, whole: bool) -> str:
    what = "weight" if whole else "mean weight"
    return f"Difference of {what}s" if isinstance(sight, SightDifference) else what.capitalize()


def select_item(sight: _Sight) -> _Sight:
    """The only item of a batch; ValueError if there are several."""
    if not isinstance(sight, Sight | SightDifference):
        raise TypeError(f"a figure shows a Sight, got {format_value(sight)}; seen[name] gives one")
    batch = sight.lead[: sight.n_batch]
    if any(n != 1 for n in batch):
        raise ValueError(
            f"a figure shows one item, got a sight with leading dimensions {sight.shape}; pick one, sight[0]"
        )
    return sight[(0,) * len(batch)] if batch else sight


def select_head(sight: _Sight, head: int | None) -> _Sight:
    """One head of the only item, or the mean of its heads."""
    one = select_item(sight)
    if head is None:
        return one.mean_heads() if one.has_heads else one
    if not one.has_heads:
        raise ValueError(f"this sight has no single heads, got head={head}; leave it out")
    check_integer("head", head)
    if not 0 <= head < one.lead[0]:
        raise ValueError(f"head must be in 0..{one.lead[0] - 1}, got {head}")
    return one[head]


def pooled_map(
    sight: AnySight, size: int | None, default: int, window: tuple[Span, Span] | None = None
) -> Float[Tensor, "... rows columns"]:
    """The map that was measured, or one of at most ``size`` cells a side."""
    if size is None and window is None and "map" in sight.statistics:
        return sight.statistics["map"]
    size = default if size is None else size
    if size < 1:
        raise ValueError(f"size must be at least 1 cell, got {size}")
    queries, keys = window or (None, None)
    lengths = [n if span is None else span[1] - span[0] for n, span in ((sight.t, queries), (sight.s, keys))]
    return sight.map((min(size, lengths[0]), min(size, lengths[1])), queries=queries, keys=keys)


def check_names(names: Sequence[str] | None, count: int, what: str) -> list[str] | None:
    """The names as a list; ValueError if there are not ``count`` of them."""
    if names is not None and len(names) != count:
        raise ValueError(
            f"there must be one name for each {what}, got {len(names)} names for {count} of them"
        )
    return None if names is None else list(names)


def use_log_scale(image: AxesImage, brightest: float) -> None:
    """Make the colour scale logarithmic."""
    if brightest > 0:
        image.set_norm(LogNorm(brightest * _DARKEST, brightest, clip=True))
        colours = image.get_cmap()
        image.set_cmap(colours.with_extremes(bad=colours(0.0)))  # where the weight is zero


def _inside(names: list[str] | None, span: Span) -> list[str] | None:
    return None if names is None else names[slice(*span)]


def _place(image: AxesImage, queries: Span, keys: Span) -> None:
    """Place an image over the positions of its queries and keys."""
    image.set_extent((keys[0] - 0.5, keys[1] - 0.5, queries[1] - 0.5, queries[0] - 0.5))


def _grid(
    count: int, t: int, s: int, queries: list[str] | None, keys: list[str] | None
) -> tuple[Figure, list[Axes]]:
    """Lay out panels in rows, named or numbered at the edges of the grid."""
    wide = [n for n in range(math.ceil(count**0.5), math.ceil(2 * count**0.5) + 1) if n <= max(count, 1)]
    columns = min(wide, key=lambda n: (-count % n, abs(n - 1.5 * math.ceil(count / n))))
    rows = math.ceil(count / columns)
    height, width = _PANEL * min(max(t / s, 0.5), 1), _PANEL * min(max(s / t, 0.5), 1)
    most = next(inches for heads, inches in _LARGEST_PANEL.items() if count <= heads)
    height = height if queries is None else max(height, min(NAME * t, most))
    width = width if keys is None else max(width, min(NAME * s, most))
    size = (
        max(columns * (width + 0.2), 2.6) + 1.9 + name_room(queries),
        rows * (height + 0.45) + 0.9 + name_room(keys) * (2 if count % columns else 1),
    )
    figure = FallbackFontFigure(figsize=size, dpi=150, layout="constrained")
    axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flatten().tolist()
    for spare in axes[count:]:
        spare.remove()
    for i, ax in enumerate(axes[:count]):
        for axis, n, names, room in ((ax.xaxis, s, keys, width), (ax.yaxis, t, queries, height)):
            if names is not None:
                name_ticks(axis, n, names, room=room, upright=True)
            else:
                axis.set_major_locator(MaxNLocator(nbins=2, integer=True, min_n_ticks=1))
                axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        ax.tick_params(labelbottom=i + columns >= count)  # in the last row, and where it is shorter
    return figure, axes[:count]
