"""The figure of a prediction: an overlay if it looked at an image, an alignment if it looked at words."""

import dataclasses
from collections.abc import Iterable

from matplotlib.figure import Figure

from sightline.messages import format_value
from sightline.show.alignment import alignment, head_grid
from sightline.show.caption_overlay import CaptionOverlay
from sightline.show.overlay import overlay
from sightline.show.records import AttentionRecord, GridKeys, PredictionRecord, crop_note, name_of
from sightline.show.vit import head_overlays, rollout_overlay

__all__ = ["AttentionRecord", "GridKeys", "PredictionRecord", "overlays", "prediction"]


def prediction(
    p: PredictionRecord, *, layer: int | None = None, head: int | None = None, title: str | None = None
) -> Figure:
    """Draw where the model looked, in the way that fits the keys of ``p.attention``.

    - a grid, several words: the image once per word, with the weights of that word over it;
    - a grid, one query (a class): the image beside the summary map; with a layer, all heads of that layer;
    - words: the alignment, source across and output down; with a layer, one panel per head.

    Where the image is a crop of the file, the figure says so.

    Args:
        p: A prediction with its attention.
        layer: Which layer. Default: the summary over all.
        head: Which head. Default: the summary over all.
        title: Text above. Default: the output, and which layer and head it is if one was chosen.

    Raises:
        ValueError: If there is no attention, no such layer or head, or no word to draw.

    Example:
        >>> weights = torch.full((1, 1, 2, 3), 1 / 3)
        >>> attention = sl.tasks.Attention(weights=weights, queries=("a", "b"), keys=("x", "y", "z"))
        >>> p = sl.tasks.Prediction(input="x y z", text="a b", score=-0.5, attention=attention)
        >>> len(prediction(p).axes) > 0
        True
    """
    whole = attention_of(p)
    keys = whole.keys
    chosen = layer is not None or head is not None
    part = whole.select(layer=layer, head=head) if chosen else whole
    in_words = isinstance(keys, GridKeys) and len(whole.queries) != 1
    panels = [layer] if layer is not None and head is None and not in_words else None
    if title is None:
        label = f"the heads of layer {layer}" if panels else part.summary_label
        title = f"{p.text}: {label}" if chosen else p.text
    if in_words:
        return overlay(dataclasses.replace(_overlay_of(p, part), weights=part.summary[:, None]), title=title)
    if isinstance(keys, GridKeys):
        note = crop_note(p.input, keys.image)
        if panels:
            return head_overlays(whole, layers=panels, title=title, note=note)
        return rollout_overlay(part, title=title, note=note)
    if not whole.queries:
        raise ValueError(f"the output for {p.input!r} is empty, there is nothing to draw; train longer")
    if panels:
        return head_grid(part.weights[0], part.queries, keys, title=title)
    return alignment(part.summary, keys, part.queries, title=title)


def overlays(predictions: Iterable[PredictionRecord]) -> list[CaptionOverlay]:
    """The records that :func:`sightline.show.overlay` draws, with the heads of all layers.

    Raises:
        ValueError: If a prediction has no attention, or has it over words.

    Example:
        >>> grid = sl.tasks.Grid(rows=2, columns=2, image=torch.zeros(3, 8, 8, dtype=torch.uint8))
        >>> weights = torch.full((1, 1, 2, 4), 0.25)
        >>> attention = sl.tasks.Attention(weights=weights, queries=("a", "b"), keys=grid)
        >>> p = sl.tasks.Prediction(input="x.png", text="a b", score=-0.5, attention=attention)
        >>> overlays([p])[0].words
        ('a', 'b')
    """
    return [_overlay_of(p, attention_of(p)) for p in predictions]


def attention_of(p: PredictionRecord) -> AttentionRecord:
    """The attention of a prediction, or a sentence that says how to get it."""
    if not isinstance(p, PredictionRecord):
        raise TypeError(f"a figure shows a prediction, got {format_value(p)}; run.predict gives them")
    if p.attention is None:
        raise ValueError(
            f"the prediction for {p.input!r} has no attention to draw; predict with attention=True"
        )
    return p.attention


def _overlay_of(p: PredictionRecord, attention: AttentionRecord) -> CaptionOverlay:
    keys = attention.keys
    if not isinstance(keys, GridKeys):
        raise ValueError(  # noqa: TRY004  the record is fine, only for another figure
            f"an overlay is of attention over an image, got {len(keys)} words as keys; "
            "draw it with sightline.show.prediction"
        )
    return CaptionOverlay(
        image=keys.image,
        words=attention.queries,
        weights=attention.weights.flatten(0, 1).transpose(0, 1),  # (T, L * H, P)
        grid=(keys.rows, keys.columns),
        text=p.text,
        name=name_of(p.input),
        references=p.references,
        score=" · ".join(f"{name} {value:.3f}" for name, value in p.metrics.items()),
        boxes=keys.boxes,
        note=crop_note(p.input, keys.image),
    )
