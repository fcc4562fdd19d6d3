"""Pages of text: HTML files that hold all they show. Every function returns the text of one.

Path("page.html").write_text(pages.results_page("Results", scores=scores), encoding="utf-8")

What a model looked at, in views to walk through, is :func:`sightline.show.page`.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from matplotlib.figure import Figure

from sightline.show.curves import Curve, curves
from sightline.show.explorer.page import Figures
from sightline.show.html import render
from sightline.show.records import PredictionRecord
from sightline.show.score_meanings import score_meanings
from sightline.show.view import View, view
from sightline.show.walk import AttentionTrace, walk_values

__all__ = ["DemoReport", "Figures", "figures_page", "report_page", "results_page"]


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
        hint=_hints(views),
        has_explorer=_has_explorer(views),
        sections=views,
        figures=_listed(figures),
    )


def figures_page(title: str, introduction: str, figures: Figures) -> str:
    """A page of figures.

    Args:
        title: The heading.
        introduction: A paragraph under it.
        figures: Heading, then figure and caption.
    """
    return render("figures.html", title=title, introduction=introduction, figures=_listed(figures))


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
        walk: How the model came to one word; None leaves it out.
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
    walk: AttentionTrace | None = None


def report_page(report: DemoReport, *, title: str = "A captioner, trained on this machine") -> str:
    """The page of the demo: pictures, how it came to a word, what to try next; scores and curves last."""
    example = report.examples[0]
    views = _views({"Scenes it has not seen": report.shown, "The worst of them, by CIDEr": report.worst})
    return render(
        "report.html",
        title=title,
        report=report,
        has_explorer=_has_explorer(views),
        hint=_hints(views),
        sections=views,
        walk=None if report.walk is None else walk_values(report.walk),
        scores=score_meanings(report.scores),
        signatures=_grouped(report.signatures),
        curves=curves(report.metrics, stacked=True),
        command=report.command,
        run=shlex.quote(str(report.run)),
        example=shlex.quote(str(example)),
        examples=shlex.quote(str(example.parent)),
        photos="photos" if torch.cuda.is_available() else "photos-cpu",
    )


def _views(sections: Mapping[str, Sequence[PredictionRecord]]) -> list[tuple[str, list[View]]]:
    return [(heading, list(map(view, group))) for heading, group in sections.items()]


def _hints(views: Sequence[tuple[str, Sequence[View]]]) -> str:
    """How to use what is on the page, each hint once."""
    return " ".join(dict.fromkeys(one.hint for _, group in views for one in group if one.hint))


def _has_explorer(views: Sequence[tuple[str, Sequence[View]]]) -> bool:
    return any(one.explorer is not None for _, group in views for one in group)


def _listed(figures: Figures | None) -> list[tuple[str, Figure, str]]:
    """Heading, figure and caption of each, as templates take them."""
    return [(heading, figure, caption) for heading, (figure, caption) in (figures or {}).items()]


def _grouped(signatures: Mapping[str, str]) -> list[tuple[str, str]]:
    """Each signature once, with the names of the scores that share it."""
    names: dict[str, list[str]] = {}
    for name, signature in signatures.items():
        names.setdefault(signature, []).append(name)
    return [(", ".join(group), signature) for signature, group in names.items()]
