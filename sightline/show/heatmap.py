"""The heatmap of a table of positions."""

from typing import Any

import numpy.typing as npt
from matplotlib.figure import Figure
from torch import Tensor

from sightline.shapes import Float
from sightline.show.fonts import FallbackFontFigure
from sightline.show.style import name_ticks, style, to_matrix

_COLOURS = "viridis"  # of values, not weights: the colours of the course that this figure comes from


def positions(table: Float[Tensor, "T E"] | npt.NDArray[Any], *, title: str | None = None) -> Figure:
    """Draw a table of positions, positions down and embedding dimensions across.

    Args:
        table: ``sightline.positions.sinusoidal(length, d_model)``, or the weight of learned positions; a
            tensor or an array, (T, E).
        title: Text above.

    Returns:
        The figure. In a sinusoidal table the left columns change fast and the right ones slowly.

    Example:
        >>> from sightline.positions import sinusoidal
        >>> positions(sinusoidal(64, 32)).axes[0].get_ylabel()
        'Position in the sequence'
    """
    values = to_matrix(table, "table")
    with style():
        figure = FallbackFontFigure(figsize=(8, 5), dpi=150, layout="constrained")
        axes = figure.subplots()
        image = axes.imshow(values, aspect="auto", cmap=_COLOURS)
        name_ticks(axes.xaxis, values.shape[1], None, room=6.0)
        name_ticks(axes.yaxis, values.shape[0], None, room=4.0)
        axes.set(xlabel="Embedding dimension", ylabel="Position in the sequence", title=title)
        figure.colorbar(image, label="Value")
    return figure
