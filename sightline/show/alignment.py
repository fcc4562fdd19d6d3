"""Figures of attention over words: alignments, all heads of a layer, and arcs within a sentence."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Arc
from torch import Tensor

from sightline.shapes import Float, is_tensor
from sightline.show.fonts import FallbackFontFigure
from sightline.show.matrix import weights as draw_weights
from sightline.show.sights import head_panels
from sightline.show.style import COLOURS, style, to_matrix

__all__ = ["alignment", "arcs", "head_grid"]

_LEAST = 0.05  # smaller weights get no arc


def alignment(
    weights: Float[Tensor, "T S"],
    source: Sequence[str],
    target: Sequence[str],
    *,
    title: str | None = None,
) -> Figure:
    """Draw which source word each written word looked at, source across and output down.

    Args:
        weights: Row t holds the weights of written word t; average or choose heads first.
        source: The words that were read.
        target: The words that were written.
        title: Text above.

    Example:
        >>> figure = alignment(torch.eye(2), ["ein", "Hund"], ["a", "dog"])
        >>> figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()
        ('read', 'written')
    """
    return _rename_axes(draw_weights(weights, readable(target), readable(source), title), "written", "read")


def head_grid(
    weights: Float[Tensor, "H T S"],
    queries: Sequence[str],
    keys: Sequence[str],
    *,
    title: str | None = None,
) -> Figure:
    """Draw all heads of a layer, one panel each.

    Args:
        weights: Up to 128 heads.
        queries: One word per row.
        keys: One word per column.
        title: Text above.
    """
    is_tensor(weights, "weights")
    if weights.dim() != 3:
        raise ValueError(f"weights must be (H, T, S), got shape {tuple(weights.shape)}")
    names = [f"head {i}" for i in range(weights.size(0))]
    return head_panels(
        weights,
        names if len(names) > 1 else [""],
        readable(queries),
        readable(keys),
        title=title or "",
    )


def arcs(weights: Float[Tensor, "T T"], words: Sequence[str], *, title: str | None = None) -> Figure:
    """Draw self-attention within a sentence: an arc from each word to the words it looks at.

    Arcs above go to later words, arcs below to earlier ones; wide and dark arcs have large weights. A ring is
    a word that looks at itself. Weights below 0.05 are left out.

    Args:
        weights: Row t holds the weights of word t; average or choose heads first.
        words: The sentence.
        title: Text above.

    Example:
        >>> figure = arcs(torch.tensor([[0.0, 1.0], [1.0, 0.0]]), ["hello", "world"])
        >>> [text.get_text() for text in figure.axes[0].texts]
        ['hello', 'world']
    """
    matrix = to_matrix(weights, "weights")
    n = len(words)
    if matrix.shape != (n, n):
        raise ValueError(f"arcs join words to words, got weights {matrix.shape} for {n} words")
    positions = _positions(words)
    reach = positions[-1] / 2 + 0.6
    with style():
        figure = FallbackFontFigure(figsize=(max(3.0, 0.55 + 0.55 * positions[-1]), 3.6), dpi=150)
        ax = figure.add_axes((0.02, 0.02, 0.96, 0.86 if title else 0.96))
        ax.set(xlim=(-0.8, positions[-1] + 0.8), ylim=(-reach * 0.75, reach * 0.75), xticks=[], yticks=[])
        for t in range(n):
            for s in range(n):
                if matrix[t, s] >= _LEAST:
                    ax.add_patch(_arc(positions[t], positions[s], float(matrix[t, s]), reach))
        for x, word in zip(positions, readable(words), strict=True):
            box = {"boxstyle": "round,pad=0.15", "fc": "white", "ec": "none", "alpha": 0.9}
            ax.text(x, 0, word, ha="center", va="center", bbox=box, zorder=3)
        if title:
            figure.text(0.5, 0.97, title, ha="center", va="top")
    return figure


def _arc(start: float, end: float, weight: float, reach: float) -> Arc:
    colour = COLOURS(0.35 + 0.65 * weight)
    look: dict[str, Any] = {"color": colour, "linewidth": 0.4 + 3.2 * weight, "alpha": 0.35 + 0.6 * weight}
    if start == end:
        return Arc((start, 0), 0.9, reach * 0.2, **look)
    height = min(abs(end - start), reach * 1.3)
    first, last = (0, 180) if end > start else (180, 360)
    return Arc(((start + end) / 2, 0), abs(end - start), height, theta1=first, theta2=last, **look)


def _positions(words: Sequence[str]) -> list[float]:
    """The position of each word, as far from the one before as the two words are long."""
    positions = [0.0]
    for before, word in pairwise(words):
        positions.append(positions[-1] + max(0.8, 0.09 * (len(before) + len(word)) + 0.25))
    return positions


def readable(words: Sequence[str]) -> list[str]:
    """Tokens without the mark ``▁`` of a word's beginning; a lone mark becomes ``␣``."""
    return [word.replace("▁", " ").strip() or "␣" for word in words]


def _rename_axes(figure: Figure, down: str, across: str) -> Figure:
    for ax in figure.axes:
        if ax.get_ylabel() == "Query":
            ax.set_ylabel(down)
        if ax.get_xlabel() == "Key":
            ax.set_xlabel(across)
    return figure
