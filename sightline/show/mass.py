"""Weight per key: bars with the tokens under them, or an area where there are too many keys."""

import math
from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator, StrMethodFormatter
from torch import Tensor

from sightline.look.sight import Sight
from sightline.look.uniform import even_attention
from sightline.messages import check_integer
from sightline.shapes import Int
from sightline.show.fonts import FallbackFontFigure
from sightline.show.sights import check_names, select_head
from sightline.show.style import ACCENT, INK, MAIN, SOFT, name_ticks, style

_BARS = 128  # keys that get a bar each
_BINS = 400
_MOST_ROWS = 12
_LOWEST = 0.05  # of the even share, where an area begins
_ALIKE = 1e-6  # even shares that differ by less are one
_WORTH = 0.0005  # a share that is worth naming


def received(
    sight: Sight, tokens: Sequence[str] | None = None, *, head: int | None = None, title: str | None = None
) -> Figure:
    """Draw the share of all weight that each key received, beside an even share.

    Up to 128 keys get a bar each. More are pooled: the area is the mean share of neighbouring keys, the line
    the largest among them, on a logarithmic scale, and the keys with the largest shares are named.

    Args:
        sight: Of one item of the batch, with ``received`` measured.
        tokens: One name per key.
        head: Which head. Default: the mean of all.
        title: Text above. Default: the name of the module that was watched.

    Example:
        >>> x = torch.zeros(1, 2, 4, 8)
        >>> figure = received(sl.look(x, x, x), ["a", "b", "c", "d"])
        >>> [float(bar.get_height()) for bar in figure.axes[0].patches]
        [0.25, 0.25, 0.25, 0.25]
    """
    one = select_head(sight, head)
    names = check_names(tokens, sight.s, "key")
    mass = _numbers(one.received)
    shares = mass / mass.sum() if mass.sum() else mass
    with style():
        figure, (ax,) = _strips(1, sight.s, names, title or sight.name)
        _draw(ax, shares, names, highest=float(shares.max()))
        _draw_even(ax, one)
        ax.set(xlabel="Key", ylabel="Share of all weight")
        ax.legend(loc="upper right", fontsize=10)
    return figure


def _draw_even(ax: Axes, sight: Sight) -> None:
    """A line at the share that each key would receive if every query looked at all it may alike."""
    even = even_attention(sight)
    if even is None:
        return
    shares = _numbers(even.received)
    shares = shares / shares.sum() if shares.sum() else shares
    look: dict[str, Any] = {"color": ACCENT, "linestyle": "--", "linewidth": 1, "label": "even share"}
    if np.ptp(shares) < _ALIKE * shares.max():
        ax.axhline(float(shares.mean()), **look)
    else:
        ax.plot(np.arange(len(shares)), shares, drawstyle="steps-mid", **look)


def rows(
    sight: Sight,
    index: int | Sequence[int] | Int[Tensor, " n"],
    tokens: Sequence[str] | None = None,
    *,
    queries: Sequence[str] | None = None,
    head: int | None = None,
    title: str | None = None,
) -> Figure:
    """Draw what some queries look at: a strip of bars per query, one bar per key.

    Args:
        sight: Of one item of the batch, q and k kept.
        index: Which queries, up to 12.
        tokens: One name per key.
        queries: One name per query. Default: the tokens, where there are as many queries as keys.
        head: Which head. Default: the mean of all.
        title: Text above. Default: the name of the module that was watched.

    Example:
        >>> q = k = v = 9 * torch.eye(3)[None, None]
        >>> figure = rows(sl.look(q, k, v), [1], ["he", "sees", "her"])
        >>> figure.axes[0].get_title(loc="left")
        "query 1 'sees'"
    """
    listed: Any = index.tolist() if isinstance(index, Tensor) else index
    chosen: list[Any] = [listed] if isinstance(listed, Integral) else list(listed)
    for i in chosen:
        check_integer("index", i)
    if not 0 < len(chosen) <= _MOST_ROWS:
        raise ValueError(f"one figure holds 1 to {_MOST_ROWS} rows, got {len(chosen)}; draw a part of them")
    one = select_head(sight, head)
    names = check_names(tokens, sight.s, "key")
    looking = check_names(queries, sight.t, "query")
    if looking is None and sight.t == sight.s:
        looking = names
    padding = [i for i in chosen if bool(one.is_padding[..., i % sight.t].any())]
    if padding:
        raise ValueError(f"rows must be queries that are not padding, got {padding[0]}; choose others")
    weights = _numbers(one.rows(chosen))  # (n, S)
    with style():
        figure, strips = _strips(len(chosen), sight.s, names, title or sight.name)
        for ax, i, row in zip(strips, chosen, weights, strict=True):
            _draw(ax, row, names, highest=float(weights.max()))
            name = "" if looking is None else f" {looking[i]!r}"
            ax.set_title(f"query {i % sight.t:,}{name}", loc="left", fontsize=11)
            ax.set_ylabel("Weight")
        strips[-1].set_xlabel("Key")
    return figure


def _strips(count: int, s: int, names: list[str] | None, title: str) -> tuple[Figure, list[Axes]]:
    """Axes on top of each other, wide and low, with the keys in common."""
    height = 2.6 if count == 1 else 1.3
    slanted = 0.06 * min(max(map(len, names or [""])), 18) if s <= _BARS else 0.0
    figure = FallbackFontFigure(
        figsize=(_width(s), count * height + slanted + 0.9), dpi=150, layout="constrained"
    )
    axes = figure.subplots(count, 1, sharex=True, squeeze=False)[:, 0].tolist()
    figure.suptitle(title, fontsize=12)
    for ax in axes:
        ax.spines["bottom"].set_visible(True)
        ax.spines["bottom"].set_color(SOFT)
    return figure, axes


def _draw(ax: Axes, shares: Any, names: list[str] | None, *, highest: float) -> None:
    """Draw bars where there is room for one per key, else an area."""
    ax.yaxis.set_major_formatter(FuncFormatter(_percent))
    if len(shares) > _BARS:
        _draw_area(ax, shares, names, highest)
        return
    ax.bar(range(len(shares)), shares.tolist(), width=0.8, color=MAIN)
    ax.set(xlim=(-0.6, len(shares) - 0.4), ylim=(0, 1.05 * highest or 1))
    ax.yaxis.set_major_locator(MaxNLocator(nbins=4))
    name_ticks(ax.xaxis, len(shares), names, room=_width(len(shares)) - 1.0)


def _draw_area(ax: Axes, shares: Any, names: list[str] | None, highest: float) -> None:
    """Draw the mean and the largest of neighbouring keys on a logarithmic scale; name the largest keys."""
    starts = np.arange(_BINS) * len(shares) // _BINS if len(shares) > _BINS else np.arange(len(shares))
    edges = np.append(starts, len(shares))
    means = np.add.reduceat(shares, starts) / np.diff(edges)
    largest = np.maximum.reduceat(shares, starts)
    lowest = _LOWEST / len(shares)
    each = math.ceil(len(shares) / len(starts))
    label = f"mean of {each}" if each > 1 else None
    ax.stairs(np.maximum(means, lowest), edges, baseline=lowest, fill=True, color=MAIN, label=label)
    if each > 1:
        tops = np.maximum(largest, lowest)
        ax.stairs(tops, edges, baseline=None, color=INK, label=f"largest of {each}")
    ax.set(yscale="log", xlim=(0, len(shares)), ylim=(lowest, max(2 * highest, 4 * lowest)))
    ax.yaxis.set_major_locator(LogLocator(numticks=5))
    ax.yaxis.set_major_formatter(FuncFormatter(_percent))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    most = [
        f"{_describe_key(names, int(i))} ({shares[i]:.1%})"
        for i in np.argsort(-shares, kind="stable")[:3]
        if shares[i] > _WORTH
    ]
    ax.set_title(f"most: {', '.join(most)}" if most else "", loc="right", fontsize=10)


def _describe_key(names: list[str] | None, i: int) -> str:
    return f"{i:,}" if names is None else f"{i:,} {names[i]!r}"


def _percent(share: float, _place: int | None = None) -> str:
    return f"{np.format_float_positional(100 * share, precision=8, trim='-')}%"


def _width(s: int) -> float:
    """The width of a figure with S keys, in inches."""
    return min(max(0.36 * s + 1.2, 5.0), 12.0)


def _numbers(x: Tensor) -> Any:
    return x.detach().cpu().double().numpy()
