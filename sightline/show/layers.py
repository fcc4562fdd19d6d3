"""The entropy of all heads of a model in one figure: a row per layer, a column per head."""

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sightline.look.heads import by_layer, mean_per_head, sum_queries
from sightline.look.recording import Recording
from sightline.look.sight import Sight
from sightline.show.fonts import FallbackFontFigure
from sightline.show.style import COLOURS, frame, ink_on, name_ticks, style

_CELL = 0.5  # inches, wide enough for a number
_MOST_NUMBERS = 32  # rows or columns beyond which numbers would not be read


def entropy(seen: Recording | Mapping[str, Sight], *, title: str | None = None) -> Figure:
    """Draw the entropy of every head, in nats, averaged over its queries: dark heads are sharp.

    Args:
        seen: What :func:`sightline.watch` recorded, or sights by name.
        title: Text above. Default: the part that all names share.

    Example:
        >>> x = torch.zeros(1, 2, 3, 8)
        >>> figure = entropy({"layers.0.attn": sl.look(x, x, x), "layers.1.attn": sl.look(x, x, x)})
        >>> [label.get_text() for label in figure.axes[0].get_yticklabels()], figure.axes[0].get_title()
        (['0', '1'], 'layers.*.attn')
    """
    layers = by_layer(seen)
    if not layers:
        raise ValueError(
            seen.explanation() if isinstance(seen, Recording) else "there is no sight to draw, got none"
        )
    names = list(layers)
    found = [mean_per_head(sum_queries(sight.entropy, sight), sight).tolist() for sight in layers.values()]
    values = np.full((len(names), max(map(len, found))), np.nan)
    for row, heads in zip(values, found, strict=True):
        row[: len(heads)] = heads
    written, common = short_names(names)
    n_layers, n_heads = values.shape
    longest = 0.085 * min(max(map(len, written)), 40)
    with style():
        size = (
            min(max(n_heads * _CELL, 2.5), 12.0) + longest + 2.2,
            min(max(n_layers * 0.36, 1.4), 10.0) + 1.2,
        )
        figure = FallbackFontFigure(figsize=size, dpi=150, layout="constrained")
        ax = figure.subplots()
        image = ax.imshow(values, cmap=COLOURS, vmin=0, vmax=float(np.nanmax(values)) or 1.0, aspect="auto")
        frame(ax)
        name_ticks(ax.xaxis, n_heads, None, room=size[0] - 2)
        step = math.ceil(n_layers * 0.21 / (size[1] - 1.2))
        ax.set_yticks(range(0, n_layers, step), written[::step])
        if max(n_layers, n_heads) <= _MOST_NUMBERS and n_heads * _CELL <= 12.0:
            _write(ax, values)
        ax.set(xlabel="Head", ylabel="Layer", title=common if title is None else title)
        figure.colorbar(image, label="Entropy, nats")
    return figure


def short_names(names: Sequence[str]) -> tuple[list[str], str]:
    """The parts in which dotted names differ, and the pattern that they share.

    Example:
        >>> short_names(["encoder.layer.0.attention.self", "encoder.layer.1.attention.self"])
        (['0', '1'], 'encoder.layer.*.attention.self')
    """
    parts = [name.split(".") for name in names]
    least = min(map(len, parts)) - 1 if len(parts) > 1 else 0  # one part at least is left
    before = _in_common(parts)[:least]
    after = _in_common([part[::-1] for part in parts])[: least - len(before)][::-1]
    if not before + after:
        return list(names), ""
    short = [".".join(part[len(before) : len(part) - len(after)]) for part in parts]
    return short, ".".join([*before, "*", *after])


def _in_common(parts: Sequence[Sequence[str]]) -> list[str]:
    """The first parts that all names share."""
    alike = itertools.takewhile(lambda column: len(set(column)) == 1, zip(*parts, strict=False))
    return [column[0] for column in alike]


def _write(ax: Axes, values: np.ndarray) -> None:
    """Write each number into its cell, white on dark and black on bright."""
    most = float(np.nanmax(values)) or 1.0
    for (layer, head), nats in np.ndenumerate(values):
        if not np.isnan(nats):
            colour = ink_on(COLOURS(nats / most))
            ax.text(head, layer, f"{nats:.2f}", ha="center", va="center", fontsize=10, color=colour)
