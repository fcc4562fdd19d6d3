"""Pages: HTML files that hold all they show. Every function returns the text of one.

Path("page.html").write_text(pages.prediction_page(p, title=p.text), encoding="utf-8")
"""

import itertools
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from matplotlib.figure import Figure

from sightline.look.seen import Seen
from sightline.look.sight import Sight
from sightline.show.alignment import alignment, head_grid
from sightline.show.curves import Curve, curves
from sightline.show.heads_page import HEADS_LEGEND, Figures, head_cells, heads_page, listed
from sightline.show.html import render
from sightline.show.prediction import prediction
from sightline.show.records import GridKeys, PredictionRecord
from sightline.show.score_meanings import score_meanings
from sightline.show.seen_figures import LayerTokens, seen_figures
from sightline.show.view import View, colour_table, view
from sightline.show.vit import head_overlays

__all__ = [
    "HEADS_LEGEND",
    "DemoReport",
    "Figures",
    "figures_page",
    "head_cells",
    "heads_page",
    "prediction_page",
    "report_page",
    "results_page",
]


def prediction_page(
    p: PredictionRecord,
    *,
    title: str,
    about: str = "",
    seen: Seen | Mapping[str, Sight] | None = None,
    tokens: Mapping[str, LayerTokens] | None = None,
    figures: Figures | None = None,
) -> str:
    """The page of one prediction: its words to be pointed at, and what fits its keys.

    Over a grid, the words glow over the image; a class also gets the heads of all layers in one figure. Over
    words, the alignment and the heads of each layer follow.

    Args:
        p: With its attention, or without: then only the text is shown.
        title: The heading.
        about: A line about the model, under the prediction.
        seen: What :func:`sightline.watch` recorded: the heads of every layer follow, q and k kept.
        tokens: For each layer of ``seen``, names of its queries and of its keys; None for a side without.
        figures: Further figures: heading, then figure and caption.
    """
    shown = view(p, "attention0")
    drawn = list(_prediction_figures(p, by_layers=seen is None))
    if seen is not None:
        drawn += [("", figure, caption) for figure, caption in seen_figures(seen, tokens or {})]
    drawn += listed(figures)
    return render(
        "prediction.html",
        title=title,
        about=about,
        view=shown,
        figures=drawn,
        colours=colour_table(),
    )


def results_page(
    title: str,
    *,
    about: str = "",
    scores: Mapping[str, float],
    signatures: Mapping[str, str] | None = None,
    curves: Figure | None = None,
    sections: Mapping[str, Sequence[PredictionRecord]] | None = None,
    figures: Figures | None = None,
) -> str:
    """The page of an evaluation, of any task: scores, how the model learned, predictions, figures.

    Args:
        title: The heading.
        about: What was scored.
        scores: By name.
        signatures: How each score was computed.
        curves: How the model learned, from :func:`sightline.show.curves`.
        sections: Predictions under headings, such as the best and the worst.
        figures: Further figures: heading, then figure and caption.
    """
    views = _views(sections or {})
    return render(
        "results.html",
        title=title,
        about=about,
        scores=score_meanings(scores),
        signatures=_grouped(signatures or {}),
        curves=curves,
        hint=" ".join(dict.fromkeys(one.hint for _, group in views for one in group if one.hint)),
        sections=views,
        figures=listed(figures),
        colours=colour_table(),
    )


def figures_page(title: str, introduction: str, figures: Figures) -> str:
    """A page of figures.

    Args:
        title: The heading.
        introduction: A paragraph under it.
        figures: Heading, then figure and caption.
    """
    return render("figures.html", title=title, introduction=introduction, figures=listed(figures))


@dataclass(frozen=True, kw_only=True)
class DemoReport:
    """The results of the demo.

    Attributes:
        run: The run folder.
        facts: What was trained and how long it took.
        metrics: The curves of the training.
        scores: On scenes that the model was not trained on.
        about: What was scored.
        signatures: How each score was computed.
        shown: Predictions in the order of the test split, at least one.
        worst: The predictions with the lowest scores.
        examples: Images that were written beside the report, at least one, to try commands on.
        command: How to call the program.
    """

    run: Path
    facts: str
    metrics: Mapping[str, Curve]
    scores: Mapping[str, float]
    about: str
    signatures: Mapping[str, str]
    shown: Sequence[PredictionRecord]
    worst: Sequence[PredictionRecord]
    examples: Sequence[Path]
    command: str = "sightline"


def report_page(report: DemoReport, *, title: str = "A captioner, trained on this machine") -> str:
    """The page of the demo: scores, curves, overlays, captions to point at, and what to try next."""
    example = report.examples[0]
    views = _views({"Scenes it has not seen": report.shown, "The worst of them, by CIDEr": report.worst})
    return render(
        "report.html",
        title=title,
        report=report,
        scores=score_meanings(report.scores),
        signatures=_grouped(report.signatures),
        curves=curves(report.metrics),
        overlay=prediction(report.shown[0]),
        first=report.shown[0].text,
        hint=views[0][1][0].hint,
        sections=views,
        command=report.command,
        run=shlex.quote(str(report.run)),
        example=shlex.quote(str(example)),
        examples=shlex.quote(str(example.parent)),
        photos="photos" if torch.cuda.is_available() else "photos-cpu",
        colours=colour_table(),
    )


def _prediction_figures(p: PredictionRecord, *, by_layers: bool) -> Iterator[tuple[str, Figure, str]]:
    """The figures that fit the keys of a prediction, beside the words to point at."""
    attention = p.attention
    if attention is None or not attention.queries:
        return
    n_heads = attention.weights.size(1)
    keys = attention.keys
    if isinstance(keys, GridKeys):
        if len(attention.queries) == 1 and attention.weights[:, :, 0, 0].numel() > 1:
            yield "Heads", head_overlays(attention), "The weights of every head, by layer, on one scale."
        return
    label = f": {attention.summary_label}" if attention.summary_label else ""
    caption = f"What each written word (down) looked at in the source (across){label}."
    yield "Alignment", alignment(attention.summary, keys, attention.queries), caption
    if by_layers and n_heads > 1:
        for layer, weights in enumerate(attention.weights):
            yield f"Layer {layer}", head_grid(weights, attention.queries, keys), "Head by head."


def _views(sections: Mapping[str, Sequence[PredictionRecord]]) -> list[tuple[str, list[View]]]:
    ids = (f"attention{i}" for i in itertools.count())
    return [(heading, [view(p, next(ids)) for p in group]) for heading, group in sections.items()]


def _grouped(signatures: Mapping[str, str]) -> list[tuple[str, str]]:
    """Each signature once, with the names of the scores that share it."""
    names: dict[str, list[str]] = {}
    for name, signature in signatures.items():
        names.setdefault(signature, []).append(name)
    return [(", ".join(group), signature) for signature, group in names.items()]
