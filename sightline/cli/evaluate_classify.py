"""``sightline evaluate`` of a classifier: accuracy, top-5, calibration; who is taken for whom."""

import csv
import io

import torch

from sightline.cli.classify_run import ClassRun, open_run
from sightline.cli.runs import Asked, Evaluated
from sightline.evaluate.classes import confusion, score, signature
from sightline.evaluate.glance import INKED, ink
from sightline.show.document import document, drawn, escaped, figure_tag
from sightline.show.vit import confused

__all__ = ["evaluate"]

_INK = f"rollout mass on patches of at least {INKED:g} of full ink; chance is their share of the area"


def evaluate(asked: Asked) -> Evaluated:
    """Classify a split and score it; on the digits, also whether the rollout lies on the stroke."""
    if asked.extras:
        raise ValueError(f"a classifier has no captions to score, got --{min(asked.extras)}; leave it out")
    if asked.beam != Asked.beam:
        raise ValueError(f"a classifier searches nothing, got --beam {asked.beam}; leave it out")
    run = open_run(asked.run, asked.device)
    images = run.images(asked.data)
    split = images.split(asked.split)[: asked.most]
    views = run.data.views
    logits = run.model.predict(split.images, views=views, batch_size=asked.batch_size).cpu()
    found = score(logits, split.labels)
    scores = {name: found[name] for name in ("accuracy", "top5", "ece")}
    signatures = {name: signature(name, n=len(split), views=views) for name in scores}
    if (asked.data or run.data.source) == "digits":
        scores |= ink(run.model, split.images)
        signatures |= dict.fromkeys(("ink", "ink_chance", "ink_ratio"), _INK)
    about = f"{len(split)} images of split {asked.split!r} of {asked.data or run.data.source}"
    files = _files(run, logits, split.labels, about) if asked.wants_pictures else {}
    return Evaluated(scores=scores, signatures=signatures, about=about, files=files)


def _files(run: ClassRun, logits: torch.Tensor, labels: torch.Tensor, about: str) -> dict[str, str]:
    """The confusion matrix, as a table and as a page."""
    counts = confusion(logits, labels)
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["is, was taken for", *run.names])
    writer.writerows([name, *row] for name, row in zip(run.names, counts.tolist(), strict=True))
    figure = confused(counts, run.names)
    title = f"What {run.folder.name} took for what"
    body = [
        f"<h1>{escaped(title)}</h1>",
        f"<p>{escaped(about)}</p>",
        figure_tag(drawn(figure), alt="Confusion matrix", inches=float(figure.get_figwidth())),
    ]
    return {"confusion.csv": table.getvalue(), "confusion.html": document(title, "\n".join(body))}
