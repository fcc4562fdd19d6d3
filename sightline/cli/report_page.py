"""The report of the demo: a page with the curve, the scores, captions with overlays, and what to try next."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from matplotlib.figure import Figure

from sightline import show
from sightline.show.document import document, drawn, escaped, figure_tag
from sightline.show.gallery import HOW, sections_of
from sightline.show.overlay_page import page_parts
from sightline.show.told import Told

__all__ = ["Report", "report_page"]

# What each score says, for a reader who has not met it.
_MEANING = {
    "bleu1": "share of its words that a reference has too",
    "bleu2": "... of its pairs of words",
    "bleu3": "... of its triples",
    "bleu4": "... of its runs of four words: what people mean by BLEU",
    "rouge_l": "the longest sequence of words, gaps allowed, shared with a reference",
    "cider": "likeness to all references, rare words counting more; 10 is the most",
    "attribute_accuracy": "share of captions whose every colour, shape and relation is true of the picture",
    "grounding": "share of words for a thing that were said while looking at that thing",
    "grounding_chance": "what grounding would be for a model that looks just anywhere",
}
_OVERLAYS = (
    "The picture, and for each word of its caption where the model looked while it wrote it, the mean of all "
    "heads. The cross is at the largest weight; a blue box is around the thing that the word names."
)


@dataclass(frozen=True, kw_only=True)
class Report:
    """What the demo found.

    Attributes:
        run: The run folder.
        facts: What was trained and how long it took.
        metrics: The curve of the training.
        scores: On scenes that the model has not seen.
        about: What was scored.
        signatures: How.
        shown: Examples in the order of the test split, not chosen.
        worst: The examples with the lowest scores.
        examples: Pictures that were written beside the report, to try commands on.
    """

    run: Path
    facts: str
    metrics: Mapping[str, Sequence[tuple[float, float]]]
    scores: Mapping[str, float]
    about: str
    signatures: Mapping[str, str]
    shown: Sequence[Told]
    worst: Sequence[Told]
    examples: Sequence[Path]


def report_page(report: Report) -> str:
    """Write the page, everything inside it."""
    first = report.shown[0]
    body = [
        "<h1>A captioner, trained on this machine</h1>",
        f"<p>{escaped(report.facts)}</p>",
        "<h2>How good it is</h2>",
        f"<p>On {escaped(report.about)}: none of them was seen in training.</p>",
        _scores(report.scores),
        _signature(report.signatures),
        "<h2>How it learned</h2>",
        _figure(show.curves(report.metrics), "The loss and the scores by training step"),
        "<h2>Where it looks</h2>",
        f"<p>{escaped(_OVERLAYS)}</p>",
        _figure(show.overlay(first), f"Where the model looked for each word of: {first.caption}"),
        f"<p>{escaped(HOW)}</p>",
        sections_of({"Scenes it has not seen": report.shown, "The worst of them, by CIDEr": report.worst}),
        "<h2>What to try next</h2>",
        _next(report),
    ]
    return document("A captioner, trained on this machine", "\n".join(body), **page_parts())


def _figure(figure: Figure, alt: str) -> str:
    return figure_tag(drawn(figure), alt=alt, inches=float(figure.get_figwidth()))


def _scores(scores: Mapping[str, float]) -> str:
    rows = "\n".join(
        f"<tr><td>{escaped(name)}</td><td>{value:.3f}</td>"
        f'<td class="text">{escaped(_MEANING.get(name, ""))}</td></tr>'
        for name, value in scores.items()
    )
    head = '<tr><th>score</th><th>value</th><th class="text">what it is</th></tr>'
    return f'<div class="wide"><table>\n{head}\n{rows}\n</table></div>'


def _signature(signatures: Mapping[str, str]) -> str:
    if "bleu4" not in signatures:
        return ""
    return f'<p class="soft">How it was computed: <code>{escaped(signatures["bleu4"])}</code></p>'


def _next(report: Report) -> str:
    run, example = report.run, report.examples[0]
    photos = "photos" if torch.cuda.is_available() else "photos-cpu"
    tries = {
        "Captions of single pictures; these were written beside this page:": (
            f"sightline caption {run} {example.parent}/*.png"
        ),
        "One picture to point at, one head at a time:": f"sightline look {run} {example} --out look.html",
        "The scores again, greedy, with a gallery of the best and the worst:": (
            f"sightline evaluate {run} --beam 1 --out {run}/greedy"
        ),
        "The classic alternative, a recurrent decoder with additive attention:": (
            "sightline train caption --data scenes --model recurrent --preset tiny --out runs/recurrent"
        ),
        "Your own photos: a folder or a zip with captions, seen through a pretrained encoder:": (
            "sightline data check PHOTOS\n"
            f"sightline train caption --data PHOTOS --preset {photos} --out runs/photos"
        ),
        "The mechanism behind it, in four pictures:": "sightline demo --mechanism",
    }
    return "\n".join(f"<p>{escaped(why)}</p>\n<pre>{escaped(how)}</pre>" for why, how in tries.items())
