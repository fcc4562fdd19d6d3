"""Figures of T x S matrices, queries down and keys across: attention weights and masks."""

from collections.abc import Mapping, Sequence

import torch
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from torch import Tensor

from sightline.attention.masks import Mask, as_mask
from sightline.look.difference import SightDifference
from sightline.look.sight import Sight
from sightline.shapes import Bool, Float, Shaped, is_tensor
from sightline.show.sights import select_item
from sightline.show.style import MAY_LOOK, MAY_NOT, SCALE, Sheet, draw_matrix, limits_of, style, to_matrix

_MOST_PANELS = 16


def weights(
    weights: Float[Tensor, "... T S"] | Sight | SightDifference,
    queries: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    title: str | None = None,
) -> Figure:
    """Draw attention weights, bright where they are large; one panel per head.

    Differences of weights, negative ones among them, are drawn on a scale with two sides: white at zero, red
    above, blue below.

    Args:
        weights: ``(T, S)``, or ``(H, T, S)`` for up to 16 heads; or a sight of one item, or the difference of
            two, ``show.weights(after - before)``.
        queries: One name per row; where not all fit, evenly spaced ones are written.
        keys: One name per column.
        title: Text above.

    Example:
        >>> figure = weights(torch.eye(3), queries=list("abc"), keys=list("xyz"))
        >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
        ['a', 'b', 'c']
    """
    signed = isinstance(weights, SightDifference)
    if isinstance(weights, Sight | SightDifference):
        title = weights.name if title is None else title
        weights = select_item(weights).rows(range(weights.t))
    is_tensor(weights, "weights")
    heads = weights[None] if weights.dim() == 2 else weights
    if heads.dim() != 3 or not 0 < heads.size(0) <= _MOST_PANELS:
        raise ValueError(
            f"weights must be (T, S), or (H, T, S) with 1 to {_MOST_PANELS} heads, got shape "
            f"{tuple(weights.shape)}; pick one item of the batch, weights[0]"
        )
    matrices = [to_matrix(head, "weights") for head in heads]
    limits = limits_of(matrices, signed=signed)
    with style():
        sheet = Sheet.create(
            len(matrices),
            *heads.shape[1:],
            queries=queries,
            keys=keys,
            title=title,
            above=0.35 if len(matrices) > 1 else 0.1,
            beside=SCALE,
        )
        for head, (ax, matrix) in enumerate(zip(sheet.axes, matrices, strict=True)):
            image = draw_matrix(ax, matrix, limits)
            sheet.label_axes(ax, queries, keys)
            ax.set_title(f"head {head}" if len(matrices) > 1 else "")
        sheet.add_colorbar(image, "Weight" if limits[0] == 0 else "Difference of weights")
    return sheet.figure


def mask(mask: Mask | Shaped[Tensor, "..."], t: int, s: int | None = None) -> Figure:
    """Draw which keys each query may look at; one panel per item of a batch.

    Args:
        mask: A Mask, or a tensor as :func:`sightline.attention` takes it. A bias is drawn by what it forbids.
        t: Number of queries.
        s: Number of keys. Default: as many as queries.

    Example:
        >>> from sightline.attention.masks import causal
        >>> mask(causal(), 5).axes[0].get_xlabel()
        'Key'
    """
    allowed = _allowed(mask, t, t if s is None else s).flatten(0, -3)  # (panels, T, S)
    named = {f"item {i}": one for i, one in enumerate(allowed)}
    if len(named) == 1:
        named = {"": allowed[0]}
    return _gallery(named)


def masks(named: Mapping[str, Mask | Shaped[Tensor, "..."]], t: int, s: int | None = None) -> Figure:
    """Draw several masks side by side under their names; each must be the same for the whole batch.

    Example:
        >>> from sightline.attention.masks import causal, window
        >>> figure = masks({"causal": causal(), "window": window(1, 1)}, 5)
        >>> [axes.get_title() for axes in figure.axes]
        ['causal', 'window']
    """
    drawn = {}
    for name, one in named.items():
        allowed = _allowed(one, t, t if s is None else s)
        if allowed.shape[:-2].numel() != 1:
            raise ValueError(
                f"masks draws one T x S matrix for each name, got {tuple(allowed.shape)} for {name!r}; "
                "show.mask draws the items of one batch"
            )
        drawn[name] = allowed.flatten(0, -3)[0]
    return _gallery(drawn)


def _allowed(mask: Mask | Tensor, t: int, s: int) -> Bool[Tensor, "... T S"]:
    """True where a query may look, with at least one leading dimension."""
    if t < 1 or s < 1:
        raise ValueError(f"a mask is drawn for at least one query and one key, got T={t} and S={s}")
    dense = as_mask(mask).dense(t, s)
    allowed = dense if dense.dtype == torch.bool else ~dense.isneginf()
    return allowed[None] if allowed.dim() == 2 else allowed


def _gallery(named: Mapping[str, Bool[Tensor, "T S"]]) -> Figure:
    if not 0 < len(named) <= _MOST_PANELS:
        raise ValueError(f"one figure holds 1 to {_MOST_PANELS} masks, got {len(named)}; draw a part of them")
    t, s = next(iter(named.values())).shape
    with style():
        sheet = Sheet.create(len(named), t, s, below=0.4)
        for ax, (name, allowed) in zip(sheet.axes, named.items(), strict=True):
            colours = ListedColormap([MAY_NOT, MAY_LOOK])
            sheet.draw(ax, to_matrix(allowed, "mask"), brightest=1.0, colours=colours)
            sheet.label_axes(ax, None, None)
            sheet.draw_cell_lines(ax)
            ax.set_title(name)
        legend = [Patch(color=MAY_LOOK, label="may look"), Patch(color=MAY_NOT, label="may not")]
        sheet.figure.legend(handles=legend, loc="lower center", ncols=2)
    return sheet.figure
