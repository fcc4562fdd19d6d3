"""Overlays on a page: a picture whose words can be pointed at, with everything it needs inside the page."""
# until cli/ is rebuilt

import base64
import io
from typing import Any

import numpy as np

from sightline.show.caption_overlay import SHARES, Told
from sightline.show.document import asset, escaped, json_tag
from sightline.show.overlay import colours

__all__ = ["page_parts", "told_tag"]

_SMALL = 128  # a picture of fewer pixels is shown with its pixels, not blurred
_FINE = 65535  # weights are kept in two bytes

_FIGURE = """<figure class="told{small}" data-told="{identity}" style="--wide: {wide}px">
<div class="name">{name}</div>
<div class="seen"><img alt="{alt}" src="data:image/{kind};base64,{data}"></div>
<div class="telling">
<p class="words">{words}</p>
{references}</div>
</figure>
{json}"""


def told_tag(told: Told, identity: str, *, first: int | None = None, wide: int = 320) -> str:
    """A picture with its words, for a page that carries :func:`page_parts`.

    Args:
        told: The picture with its words.
        identity: A name that no other figure of the page has.
        first: The word whose weights are shown before any is pointed at, by its place in the sentence.
        wide: Pixels that the picture takes, where there is room.
    """
    kind, data = _picture(told)
    name = " · ".join(part for part in (told.name, told.score) if part)
    items = "".join(f"<li>{escaped(text)}</li>" for text in told.references)
    return _FIGURE.format(
        small=" small" if max(told.image.shape) < _SMALL else "",
        identity=escaped(identity),
        wide=wide,
        name=escaped(name),
        alt=escaped(told.caption),
        kind=kind,
        data=base64.b64encode(data).decode(),
        words=escaped(told.caption),  # until the script runs, and where none does
        references=f'<div class="soft">references</div>\n<ul>{items}</ul>\n' if items else "",
        json=json_tag(_as_object(told, first), identity),
    )


def page_parts() -> dict[str, str]:
    """What a page with such figures carries: ``document(title, body, **page_parts())``."""
    table = np.rint(colours()(np.arange(256)) * 255).astype(np.uint8)
    scale = base64.b64encode(table.tobytes()).decode()
    return {"style": asset("overlay.css"), "script": f'const COLOURS = "{scale}";\n{asset("overlay.js")}'}


def _as_object(told: Told, first: int | None) -> dict[str, Any]:
    weights = told.weights.detach().float().cpu().numpy()
    largest = float(weights.max()) if weights.size else 0.0
    packed = np.rint(weights / (largest or 1.0) * _FINE).astype("<u2")
    height, width = told.image.shape[1:]
    shares = {
        word: [100 * left / width, 100 * top / height, 100 * right / width, 100 * bottom / height]
        for word, (left, top, right, bottom) in told.boxes.items()
    }
    return {
        "words": list(told.words),
        "heads": told.weights.size(1),
        "rows": told.grid[0],
        "columns": told.grid[1],
        "largest": largest,
        "weights": base64.b64encode(packed.tobytes()).decode(),
        "least": SHARES / (told.grid[0] * told.grid[1]),  # where the scale ends at least
        "boxes": shares,
        "first": first if first is not None and first < len(told.words) else None,
    }


def _picture(told: Told) -> tuple[str, bytes]:
    """The picture as a file: PNG while it is small, else JPEG."""
    from PIL import Image  # noqa: PLC0415

    kind = "png" if max(told.image.shape) < _SMALL else "jpeg"
    file = io.BytesIO()
    Image.fromarray(told.image.permute(1, 2, 0).cpu().numpy()).save(file, kind, quality=88)
    return kind, file.getvalue()
