"""A prediction as a card of a page: its text, what people wrote, and a small explorer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from sightline.show.caption_overlay import check_image
from sightline.show.explorer.answers import Answers
from sightline.show.explorer.page import embed
from sightline.show.html import score_text
from sightline.show.records import AlternativeRecord, GridKeys, PredictionRecord, name_of

__all__ = ["View", "view"]

_POINT = "Point at a word, or step through them with the arrow keys: {}. A click keeps a word."


@dataclass(frozen=True, kw_only=True)
class View:
    """What a template needs of one prediction.

    Attributes:
        text: The output.
        name: The name of the image.
        source: The sentence that was read, where nothing shows it else.
        metrics: The scores of this prediction, as text.
        references: What people wrote.
        alternatives: Other outputs, best first, the text among them.
        explorer: What it looked at; None without attention.
        hint: How to use it, in a sentence or two; empty without attention.
    """

    text: str
    name: str = ""
    source: str = ""
    metrics: str = ""
    references: Sequence[str] = ()
    alternatives: Sequence[AlternativeRecord] = ()
    explorer: Markup | None = None
    hint: str = ""


def view(p: PredictionRecord) -> View:
    """Make the view of a prediction; without attention only its text is shown."""
    attention = p.attention
    shared: dict[str, Any] = {
        "text": p.text,
        "metrics": " · ".join(f"{name} {score_text(value)}" for name, value in p.metrics.items()),
        "references": p.references,
        "alternatives": p.alternatives,
    }
    if attention is None or not attention.queries:
        return View(**shared, source=str(p.input))
    is_image = isinstance(attention.keys, GridKeys)
    if isinstance(attention.keys, GridKeys):
        check_image(attention.keys.image)
    options = {"compact": True, "views": ["image" if is_image else "word"]}
    return View(
        **shared,
        name=name_of(p.input) if is_image else "",
        explorer=embed(Answers(p), options=options),
        hint=_hint(is_image=is_image, is_one=len(attention.queries) == 1),
    )


def _hint(*, is_image: bool, is_one: bool) -> str:
    if not is_image:
        return _POINT.format("its weights colour the words that were read")
    if is_one:
        return "Point at the class: the picture is lit where the model looked, and a ring marks the largest."
    return _POINT.format("the picture is lit where the model looked, and a ring marks the largest weight")
