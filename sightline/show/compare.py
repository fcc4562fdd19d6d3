"""The score functions side by side: the same queries and keys, matched in different ways."""

from collections.abc import Mapping, Sequence

import torch
from matplotlib.figure import Figure
from torch import Tensor

from sightline.attention.scores import Score, named
from sightline.shapes import Float
from sightline.show.style import SCALE, Sheet, matrix_of, style


def scores(
    q: Float[Tensor, "T Dq"],
    k: Float[Tensor, "S Dk"],
    scores: Mapping[str, Score | str],
    *,
    queries: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
) -> Figure:
    """Draw ``softmax(score(q, k))`` for each score, under its name, all on one scale of colours.

    Args:
        q: Queries.
        k: Keys.
        scores: What to call each score, and the score or the name of one without parameters.
        queries: A name for each row.
        keys: A name for each column.

    Example:
        >>> figure = scores(torch.eye(3), torch.eye(3), {"dot": "dot", "angle": "cosine"})
        >>> [axes.get_title() for axes in figure.axes[:2]]
        ['dot', 'angle']
    """
    if not scores:
        raise ValueError("there must be at least one score to draw, got an empty mapping")
    with torch.no_grad():
        weights = {name: torch.softmax(named(score)(q, k), dim=-1) for name, score in scores.items()}
    matrices = {name: matrix_of(x, f"softmax of {name!r}") for name, x in weights.items()}
    brightest = max(float(matrix.max()) for matrix in matrices.values())
    with style():
        sheet = Sheet.of(len(matrices), q.size(-2), k.size(-2), queries=queries, keys=keys, beside=SCALE)
        for ax, (name, matrix) in zip(sheet.axes, matrices.items(), strict=True):
            image = sheet.draw(ax, matrix, brightest=brightest)
            sheet.name(ax, queries, keys)
            ax.set_title(name)
        sheet.explain(image, "Weight")
    return sheet.figure
