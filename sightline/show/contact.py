"""The contact sheet of a dataset: some of its images, each with its split and a caption."""

import math
import textwrap
from collections.abc import Sequence

from matplotlib.figure import Figure
from torch import Tensor

from sightline.shapes import Shaped
from sightline.show.fonts import FallbackFontFigure
from sightline.show.style import MAY_NOT, style

__all__ = ["contact_sheet"]

_TILE = 1.9  # inches
_LINE = 0.135  # inches of a line of a caption
_LETTERS = 30  # of a line
_LINES = 3  # of a caption


def contact_sheet(
    images: Sequence[Shaped[Tensor, "3 h w"] | None],
    captions: Sequence[str],
    *,
    labels: Sequence[str] | None = None,
    columns: int = 6,
    title: str | None = None,
) -> Figure:
    """Draw images in rows, with a caption under each.

    Args:
        images: uint8; None for one that can't be read, drawn as an empty tile.
        captions: One per image; the first three lines are shown.
        labels: Text above each image, such as its split.
        columns: Images in a row.
        title: Text above.

    Example:
        >>> figure = contact_sheet([torch.zeros(3, 8, 8, dtype=torch.uint8)], ["nothing"], labels=["train"])
        >>> figure.axes[0].get_title(loc="left")
        'train'
    """
    if not images or len(images) != len(captions):
        raise ValueError(
            f"a contact sheet takes a caption for each of its images and at least one, got {len(images)} "
            f"images and {len(captions)} captions"
        )
    if columns < 1:
        raise ValueError(f"a contact sheet has at least 1 column, got {columns}")
    columns = min(columns, len(images))
    rows = math.ceil(len(images) / columns)
    below, above = _LINES * _LINE + 0.12, 0.24 if labels else 0.06
    head = 0.42 if title else 0.1
    width, height = columns * (_TILE + 0.14) + 0.14, head + rows * (_TILE + above + below) + 0.06
    with style():
        figure = FallbackFontFigure(figsize=(width, height), dpi=120)
        if title:
            figure.text(0.14 / width, 1 - 0.12 / height, title, va="top", fontsize=11)
        for i, (image, caption) in enumerate(zip(images, captions, strict=True)):
            row, column = divmod(i, columns)
            left = 0.14 + column * (_TILE + 0.14)
            top = height - head - row * (_TILE + above + below) - above
            box = (left / width, (top - _TILE) / height, _TILE / width, _TILE / height)
            ax = figure.add_axes(box, xticks=[], yticks=[], facecolor=MAY_NOT)
            if image is not None:
                ax.imshow(image.permute(1, 2, 0).cpu().numpy())
                ax.set_anchor("S")
            if labels:
                ax.set_title(labels[i], loc="left", fontsize=8, pad=3, color="0.35")
            lines = textwrap.wrap(caption, _LETTERS, max_lines=_LINES, placeholder=" …")
            ax.text(
                0, -0.03, "\n".join(lines), transform=ax.transAxes, va="top", fontsize=7.5, linespacing=1.25
            )
    return figure
