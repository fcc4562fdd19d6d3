"""The image that a model looked at, as a page holds it, and the patches that it is cut into."""

import base64
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sightline.data.images import read_image
from sightline.messages import format_value
from sightline.shapes import check_values, is_tensor
from sightline.show.records import AttentionRecord, GridKeys, PredictionRecord, crop_note

__all__ = ["Picture", "read_picture"]

_SMALL = 128  # pixels a side, below which an image is shown with its pixels, not blurred
_LARGEST = 1024  # pixels a side that a page holds


@dataclass(frozen=True, kw_only=True, eq=False)
class Picture:
    """An image with its patches, row by row.

    Attributes:
        url: A data URL.
        width, height: In pixels, as the model saw it.
        rows, columns: Of patches.
        boxes: For some queries, by position, the box of the object they name, in percent of the sides.
        note: Which part of a file it is.
    """

    url: str
    width: int
    height: int
    rows: int
    columns: int
    boxes: Mapping[int, list[float]] = field(default_factory=dict)
    note: str = ""

    @property
    def n_patches(self) -> int:
        """How many patches."""
        return self.rows * self.columns

    def meta(self) -> dict[str, Any]:
        """The same as JSON."""
        return {
            "url": self.url,
            "width": self.width,
            "height": self.height,
            "rows": self.rows,
            "columns": self.columns,
            "boxes": {str(query): box for query, box in self.boxes.items()},
            "small": max(self.width, self.height) < _SMALL,
            "note": self.note,
        }


def read_picture(image: Any, grid: tuple[int, int] | None, shown: Any) -> Picture | None:
    """The image that was given, or the one that a prediction looked at; None if there is none.

    Args:
        image: A path, pixels ``(C, h, w)`` or ``(h, w, C)`` in bytes, a PIL image, or a grid of patches.
        grid: Rows and columns of the patches.
        shown: Where to look for an image if none is given.
    """
    source = shown.input if isinstance(shown, PredictionRecord) else None
    found = image if image is not None else _own_image(shown)
    if found is None:
        return None
    boxes: Mapping[int, tuple[float, ...]] = {}
    note = ""
    if isinstance(found, GridKeys) or (hasattr(found, "rows") and hasattr(found, "image")):
        grid, boxes = (found.rows, found.columns), getattr(found, "boxes", {})
        note = crop_note(source, found.image) if source is not None else ""
        found = found.image
    pixels = _pixels(found)
    width, height = pixels.size
    rows, columns = grid or _square(shown)
    percent = (100 / width, 100 / height, 100 / width, 100 / height)
    return Picture(
        url=_url(pixels),
        width=width,
        height=height,
        rows=rows,
        columns=columns,
        boxes={q: [x * p for x, p in zip(box, percent, strict=True)] for q, box in boxes.items()},
        note=note,
    )


def _own_image(shown: Any) -> Any:
    attention = shown.attention if isinstance(shown, PredictionRecord) else shown
    records = list(attention.values()) if isinstance(attention, Mapping) else [attention]
    grids = (x.keys for x in records if isinstance(x, AttentionRecord))
    return next((keys for keys in grids if isinstance(keys, GridKeys)), None)


def _pixels(image: Any) -> Any:
    """A PIL image of whatever it is, no larger than a page should hold."""
    from PIL import Image  # noqa: PLC0415

    if isinstance(image, str | Path):
        image = read_image(Path(image))  # bounded, upright, in colours
    if isinstance(image, Tensor | np.ndarray):
        if isinstance(image, Tensor):
            is_tensor(image, "image")
            check_values(image, "image")
            if image.dtype != torch.uint8:
                raise ValueError(
                    f"an image is (C, h, w) in bytes, got shape {tuple(image.shape)} of {image.dtype}; "
                    "undo the normalisation, then (255 * x).round().to(torch.uint8)"
                )
        array = image.detach().cpu().numpy() if isinstance(image, Tensor) else image
        is_colour = array.ndim == 3 and array.size and (array.shape[0] in {1, 3} or array.shape[2] in {1, 3})
        if not is_colour or array.dtype != np.uint8:
            raise ValueError(
                f"an image is (C, h, w) in bytes, got shape {array.shape} of {array.dtype}; "
                "undo the normalisation, then (255 * x).round().to(torch.uint8)"
            )
        array = array.transpose(1, 2, 0) if array.shape[0] in {1, 3} else array
        image = Image.fromarray(array[..., 0] if array.shape[2] == 1 else array).convert("RGB")
    elif not isinstance(image, Image.Image):
        raise TypeError(
            "an image is a path, pixels (C, h, w), a PIL image or a grid of patches, got "
            f"{format_value(image)}"
        )
    image = image.convert("RGB")
    image.thumbnail((_LARGEST, _LARGEST))
    return image


def _square(shown: Any) -> tuple[int, int]:
    """The patches of a square image, from how many keys there are, with a class token or without."""
    sights = [shown] if hasattr(shown, "s") else list(dict(getattr(shown, "items", dict)()).values())
    flat = [x for one in sights for x in (one if isinstance(one, list) else [one])]
    for n in (m for x in flat for m in (x.s, x.s - 1) if hasattr(x, "s")):
        side = math.isqrt(max(n, 0))
        if side * side == n and side > 1:
            return side, side
    raise ValueError("nothing says how the image is cut into patches; say so with grid=(rows, columns)")


def _url(image: Any) -> str:
    """PNG while it is small, else JPEG."""
    kind = "png" if max(image.size) < _SMALL else "jpeg"
    file = io.BytesIO()
    image.save(file, kind, quality=88)
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"
