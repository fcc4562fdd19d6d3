"""Score functions side by side, on the same queries and keys."""

from collections.abc import Mapping, Sequence

import torch
from matplotlib.figure import Figure
from torch import Tensor

from sightline.attention.scores import Score, named
from sightline.shapes import Float
from sightline.show.style import SCALE, Sheet, style, to_matrix


def scores(
    q: Float[Tensor, "T Dq"],
    k: Float[Tensor, "S Dk"],
    scores: Mapping[str, Score | str],
    *,
    queries: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
) -> Figure:
    """Draw ``softmax(score(q, k))`` for each score, one panel each, all on one colour scale.

    Args:
        q: Queries.
        k: Keys.
        scores: By title, a score, or the name of one without parameters.
        queries: One name per row.
        keys: One name per column.

    Example:
        >>> figure = scores(torch.eye(3), torch.eye(3), {"dot": "dot", "angle": "cosine"})
        >>> [axes.get_title() for axes in figure.axes[:2]]
        ['dot', 'angle']
    """
    if not scores:
        raise ValueError("there must be at least one score to draw, got an empty mapping")
    with torch.no_grad():
        weights = {name: torch.softmax(named(score)(q, k), dim=-1) for name, score in scores.items()}
    matrices = {name: to_matrix(x, f"softmax of {name!r}") for name, x in weights.items()}
    brightest = max(float(matrix.max()) for matrix in matrices.values())
    with style():
        sheet = Sheet.create(len(matrices), q.size(-2), k.size(-2), queries=queries, keys=keys, beside=SCALE)
        for ax, (name, matrix) in zip(sheet.axes, matrices.items(), strict=True):
            image = sheet.draw(ax, matrix, brightest=brightest)
            sheet.label_axes(ax, queries, keys)
            ax.set_title(name)
        sheet.add_colorbar(image, "Weight")
    return sheet.figure
