"""What a trained model loses without each of its heads, beside the order that ``importance`` gives them.

    python -m workshop.figures.heads_removed RUN [--limit 500] [--out PICTURE] [--json FILE]

RUN is a folder that ``sightline train`` wrote: a translator, a captioner or a classifier. Importance is the
mean over examples of |output . gradient| (Michel et al., 2019), from one backward pass of the loss on the
validation split, teacher forcing; the score without a head is ``run.evaluate`` on the test split with that
head's output at zero. The rank correlation (Spearman) says how well the first foretells the second.
"""

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor

import sightline as sl
from sightline.data.batches import pad
from sightline.data.images import normalise
from sightline.data.tokens import BOS, EOS, PAD
from sightline.show.style import ACCENT, MAIN, SOFT, style
from sightline.tasks.prediction import Example
from sightline.tasks.run import Run

SCORES = {"translate": "bleu", "caption": "bleu4", "classify": "accuracy"}
OPTIONS: dict[str, dict[str, Any]] = {"translate": {"beam": 1}, "caption": {"beam": 1}, "classify": {}}
INK, BLUE, WARM = SOFT, MAIN, ACCENT


class Head(NamedTuple):
    """One head, what the gradient says of it and what is lost without it."""

    layer: str
    head: int
    importance: float
    score: float  # of the model without it


def loss_of(run: Run, examples: Sequence[Example]) -> Tensor:
    """The sum of the losses of some examples, teacher forcing."""
    predictor: Any = run.predictor
    if run.kind == "classify":
        labels = torch.tensor([example.truth[0] for example in examples], device=run.device)
        return F.cross_entropy(run.model(predictor.batch(examples)), labels, reduction="sum")
    tokenizer = predictor.tokens.target if run.kind == "translate" else predictor.tokenizer
    rows = [[BOS, *tokenizer.encode(example.references[0]), EOS] for example in examples]
    target = pad(rows).to(run.device)
    if run.kind == "translate":
        source = pad([example.value for example in examples]).to(run.device)
    else:
        source = normalise(torch.stack([example.value for example in examples]).to(run.device))
    logits = run.model(source, target[:, :-1]).flatten(0, 1)
    return F.cross_entropy(logits, target[:, 1:].flatten(), ignore_index=PAD, reduction="sum")


def importances(run: Run, limit: int, batch_size: int = 50) -> dict[tuple[str, int], float]:
    """The importance of every head, a mean over examples of the validation split."""
    examples = list(run.predictor.examples(run.dataset(), "val", limit))
    sums: dict[tuple[str, int], float] = {}
    nothing = sl.Look(received=False, entropy=False, peak=False)
    for first in range(0, len(examples), batch_size):
        some = examples[first : first + batch_size]
        with sl.watch(run.model, grad=True, measure=nothing) as seen:
            loss = loss_of(run, some)
        loss.backward()
        for name in seen.names():
            for head, x in enumerate(seen.calls(name)[0].importance.sum(0).tolist()):
                sums[name, head] = sums.get((name, head), 0.0) + x / len(examples)
    run.model.zero_grad()
    return sums


def remove_each(run: Run, limit: int) -> tuple[float, list[Head]]:
    """The score with all heads, and every head, the most important first."""

    def score() -> float:
        return run.evaluate("test", limit=limit, **OPTIONS[run.kind]).scores[SCORES[run.kind]]

    whole, heads = score(), []
    for (layer, head), importance in importances(run, limit).items():
        with sl.edit(run.model, layers=lambda name, layer=layer: name == layer, heads=[head], ablate="zero"):
            heads.append(Head(layer, head, importance, score()))
    return whole, sorted(heads, key=lambda x: -x.importance)


def rank_correlation(heads: Sequence[Head], whole: float) -> float:
    """Spearman's: between importance and what is lost; ties share their mean rank. NaN where all is equal."""
    a = _ranks([x.importance for x in heads])
    b = _ranks([whole - x.score for x in heads])
    return float(torch.corrcoef(torch.stack([a, b]))[0, 1])


def _ranks(values: Sequence[float]) -> Tensor:
    x = torch.tensor(values, dtype=torch.float64)
    below, equal = (x[:, None] > x).sum(1), (x[:, None] == x).sum(1)
    return below + (equal - 1) / 2


def label(head: Head) -> str:
    """A short name: layer.head, behind ``enc``, ``self`` or ``cross`` where a model reads and writes."""
    number = next((part for part in head.layer.split(".") if part.isdigit()), "0")
    kinds = {"encoder": "enc ", "decoder": "cross " if "multihead" in head.layer else "self "}
    return f"{kinds.get(head.layer.split('.')[0], '')}{number}.{head.head}"


def draw(heads: Sequence[Head], whole: float, correlation: float, *, kind: str, name: str) -> Figure:
    """Bars of the score without each head, over bars of importance, in the order of importance."""
    figure = Figure(figsize=(max(6.4, 0.36 * len(heads) + 1.2), 4.2), dpi=150, layout="constrained")
    figure.suptitle(
        f"{name} without each head; rank correlation with importance {correlation:.2f}",
        x=0.012, ha="left", fontsize=12,
    )  # fmt: skip
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    places = range(len(heads))
    above.bar(places, [x.score for x in heads], color=BLUE, width=0.75)
    above.axhline(whole, color=INK, linewidth=1, linestyle="--")
    above.annotate(f"all heads {whole:.3g}", (len(heads) - 0.5, whole), ha="right", va="bottom", color=INK)
    above.set(ylabel=SCORES[kind], ylim=(0, 1.12 * max([whole, *(x.score for x in heads)]) or 1.0))
    below.bar(places, [x.importance for x in heads], color=WARM, width=0.75)
    below.set(ylabel="importance")
    below.set_xticks(places, [label(x) for x in heads], rotation=90, fontsize=8)
    for ax in (above, below):
        ax.tick_params(colors=INK)
    figure.align_ylabels((above, below))
    return figure


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print a table and draw it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("run", help="a folder that `sightline train` wrote")
    parser.add_argument("--limit", type=int, default=500, help="examples of each split at most")
    parser.add_argument("--out", type=Path, help="the picture")
    parser.add_argument("--json", type=Path, help="the table as JSON")
    args = parser.parse_args(argv)
    run = sl.open_run(args.run)
    whole, heads = remove_each(run, args.limit)
    correlation = rank_correlation(heads, whole)
    score = SCORES[run.kind]
    print(f"{'layer':34}{'head':>5}{'importance':>12}{score:>10}{'lost':>9}")
    for x in heads:
        print(f"{x.layer:34}{x.head:>5}{x.importance:>12.4g}{x.score:>10.4g}{whole - x.score:>9.3g}")
    print(f"all heads {whole:.4g}; rank correlation of importance and loss {correlation:.2f}")
    if args.json:
        rows = [x._asdict() for x in heads]
        found = {
            "score": score,
            "whole": whole,
            "rank_correlation": None if math.isnan(correlation) else correlation,
            "heads": rows,
        }
        args.json.write_text(json.dumps(found, indent=1))
    if args.out:
        name = {"translate": "BLEU", "caption": "BLEU-4", "classify": "Accuracy"}[run.kind]
        with style():
            draw(heads, whole, correlation, kind=run.kind, name=name).savefig(args.out)


if __name__ == "__main__":
    main()
