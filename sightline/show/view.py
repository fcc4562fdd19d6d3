"""A prediction as a page shows it: its text, its image, and the weights as data for the page's script."""

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from sightline.show.alignment import readable
from sightline.show.caption_overlay import SHARES, check_image, default_word
from sightline.show.html import data_uri, score_text
from sightline.show.overlay import colours, pixels
from sightline.show.records import (
    AlternativeRecord,
    AttentionRecord,
    GridKeys,
    PredictionRecord,
    crop_note,
    name_of,
)

__all__ = ["View", "colour_table", "view"]

_SMALL = 128  # an image with fewer pixels a side is shown with its pixels, not blurred
_SQUARES = 64  # a class's patches start out as squares on an image of up to so many pixels a side
_LEVELS = 65535  # weights are packed into two bytes
_POINT = "Point at a word, or step through them with Tab and the arrow keys: {}. A click keeps a word."


@dataclass(frozen=True, kw_only=True)
class View:
    """What a template needs of one prediction.

    Attributes:
        identity: An id that no other view of the page has.
        text: The output.
        name: The name of the image.
        source: The sentence that was read, where the keys are words.
        metrics: The scores of this prediction, as text.
        image: The model's crop as a data URI; empty where the keys are words.
        is_small: Whether the image is to be shown with its pixels.
        note: Which part of the file the image is.
        references: What people wrote.
        alternatives: Other outputs, best first, the text among them.
        data: What the page's script reads; None without attention.
    """

    identity: str
    text: str
    name: str = ""
    source: str = ""
    metrics: str = ""
    image: str = ""
    is_small: bool = False
    note: str = ""
    references: Sequence[str] = ()
    alternatives: Sequence[AlternativeRecord] = ()
    data: Mapping[str, Any] | None = None

    @property
    def hint(self) -> str:
        """How to use it, in a sentence or two; empty without attention."""
        if self.data is None:
            return ""
        if not self.image:
            return _POINT.format("its weights colour the words that were read, and a frame marks the largest")
        if len(self.data["queries"]) > 1:
            return _POINT.format("its weights glow over the image, and a ring marks the largest")
        return (
            "The weights glow over the image, and a ring marks the largest; a click on the class shows the "
            "image alone."
        )


def view(p: PredictionRecord, identity: str) -> View:
    """Make the view of a prediction.

    Args:
        p: With its attention, or without: then only the text is shown.
        identity: An id that no other view of the page has.
    """
    attention = p.attention
    metrics = " · ".join(f"{name} {score_text(value)}" for name, value in p.metrics.items())
    shared: dict[str, Any] = {
        "identity": identity,
        "text": p.text,
        "metrics": metrics,
        "references": p.references,
        "alternatives": p.alternatives,
    }
    if attention is None or not isinstance(attention.keys, GridKeys):
        data = _packed(attention) if attention is not None and attention.queries else None
        return View(**shared, source=str(p.input), data=data)
    image = attention.keys.image
    check_image(image)
    return View(
        **shared,
        name=name_of(p.input),
        image=_image_uri(image),
        is_small=_is_small(image),
        note=crop_note(p.input, image),
        data=_packed(attention) if attention.queries else None,
    )


def colour_table() -> str:
    """The colours of weights over an image, 256 of 4 bytes, in base64."""
    table = np.rint(colours()(np.arange(256)) * 255).astype(np.uint8)
    return base64.b64encode(table.tobytes()).decode()


def _packed(attention: AttentionRecord) -> dict[str, Any]:
    """The attention as JSON takes it; the script's side is ``assets/attention.js``."""
    n_layers, n_heads, _, n_keys = attention.weights.shape
    keys = attention.keys
    summary = attention.summary.detach().float().cpu()
    data: dict[str, Any] = {
        "queries": readable(attention.queries),
        "n_keys": n_keys,
        "layers": n_layers,
        "heads": n_heads,
        "weights": _pack(attention.weights),
        "summary": _pack(summary),
        "label": attention.summary_label,
        "least": 0.0,  # where the colour scale ends at least
        "first": default_word(attention.queries, summary),
    }
    if not isinstance(keys, GridKeys):
        return data | {"keys": readable(keys)}
    height, width = keys.image.shape[1:]
    percent = (100 / width, 100 / height, 100 / width, 100 / height)
    boxes = {
        query: [side * scale for side, scale in zip(box, percent, strict=True)]
        for query, box in keys.boxes.items()
    }
    return data | {
        "rows": keys.rows,
        "columns": keys.columns,
        "boxes": boxes,
        "squares": len(attention.queries) == 1 and max(height, width) <= _SQUARES,
        "least": SHARES / n_keys if len(attention.queries) > 1 else 0.0,
        "first": default_word(attention.queries, summary, keys.boxes),
    }


def _pack(weights: Tensor) -> dict[str, Any]:
    values = weights.detach().float().cpu().numpy()
    largest = float(values.max()) if values.size else 0.0
    levels = np.rint(values / (largest or 1.0) * _LEVELS).astype("<u2")
    return {"packed": base64.b64encode(levels.tobytes()).decode(), "largest": largest}


def _is_small(image: Tensor) -> bool:
    return max(image.shape) < _SMALL


def _image_uri(image: Tensor) -> str:
    """The image as a file inside the page: PNG while it is small, else JPEG."""
    from PIL import Image  # noqa: PLC0415

    kind = "png" if _is_small(image) else "jpeg"
    file = io.BytesIO()
    Image.fromarray(pixels(image)).save(file, kind, quality=88)
    return data_uri(file.getvalue(), kind)
