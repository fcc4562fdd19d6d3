"""Which head does the copying in dates, and which reads the month: where each digit looks, then the proof.

    python -m workshop.figures.copying_heads RUN [--limit 300] [--out PICTURE] [--json FILE]

RUN is a translator of the embedded set ``dates`` (``sightline train translate --data dates --out RUN``). To
write ``1979-05-03`` from "Donnerstag, 3. Mai 1979" the digits of year and day are copied and the month is
translated. For every head of the cross-attention and every digit: the weight on the letters that the digit
comes from, in the step that writes it. Then each head is removed, and the digits that go wrong are counted.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from matplotlib.figure import Figure
from torch import Tensor

import sightline as sl
from sightline.data.batches import pad
from sightline.data.dates import DatePair
from sightline.data.tokens import BOS
from sightline.show.style import COLOURS, SOFT, style
from sightline.tasks.prediction import Example
from sightline.tasks.run import Run

INK = SOFT
FIELD = {0: "year", 1: "year", 2: "year", 3: "year", 5: "month", 6: "month", 8: "day", 9: "day"}
PLACES = tuple(FIELD)  # of the digits in YYYY-MM-DD
COPIED = (1, 2, 3, 9)  # the first digit of a year, a month and a day is a guess among two or four
GROUPS = ("year", "month", "day")


class Head(NamedTuple):
    """A head of the cross-attention: for each digit, the weight where it comes from and what goes wrong."""

    layer: str
    head: int
    weights: list[float]
    wrong: list[float]  # share of wrong digits without the head

    @property
    def copies(self) -> float:
        """The mean weight on the right letters, over the digits that are copied."""
        return sum(self.weights[PLACES.index(at)] for at in COPIED) / len(COPIED)


def group_ids(dates: Sequence[DatePair], offsets: Sequence[Sequence[tuple[int, int]]], s: int) -> Tensor:
    """(B, S): whether a token of the source has letters of the year (0), the month (1) or the day (2)."""
    ids = torch.full((len(dates), s), -1)
    for row, date, letters in zip(ids, dates, offsets, strict=True):
        for token, (first, last) in enumerate(letters):
            for group, name in enumerate(GROUPS):
                start, end = date.spans[name]
                if first < end and last > start:
                    row[token] = group
    return ids


def weights_of(run: Run, examples: Sequence[Example]) -> dict[tuple[str, int], list[float]]:
    """Each head's weight where each digit comes from, by one pass of all dates, teacher forcing."""
    predictor: Any = run.predictor
    dates = [example.truth for example in examples]
    source = pad([example.value for example in examples])
    target = pad([[BOS, *predictor.tokens.target.encode(date.target)] for date in dates])
    with torch.no_grad(), sl.watch(run.model, layers="*multihead_attn", keep=True) as seen:
        run.model(source.to(run.device), target.to(run.device))
    offsets = [predictor.tokens.offsets(example.input) for example in examples]
    ids = group_ids(dates, offsets, source.size(1))
    fields = torch.tensor([GROUPS.index(FIELD[at]) for at in PLACES])
    found = {}
    for name in seen.names():
        mass = seen.calls(name)[0].mass(ids).mean(0).cpu()  # (H, T, 3): step t writes the letter at place t
        for head, rows in enumerate(mass):
            found[name, head] = rows[torch.tensor(PLACES), fields].tolist()
    return found


def wrong_digits(run: Run, examples: Sequence[Example]) -> list[float]:
    """The share of the dates in which each digit is wrong."""
    inputs = [example.input for example in examples]
    texts = [p.text for p in run.predict(inputs, attention=False, beam=1, unknown=True)]
    pairs = [(text, example.truth.target) for text, example in zip(texts, examples, strict=True)]
    return [sum(text[at : at + 1] != date[at] for text, date in pairs) / len(pairs) for at in PLACES]


def measure(run: Run, limit: int) -> list[Head]:
    """Every head of the cross-attention."""
    examples = list(run.predictor.examples(run.dataset(), "test", limit))
    heads = []
    for (layer, head), weights in weights_of(run, examples).items():
        with sl.edit(run.model, layers=layer, heads=[head], ablate="zero"):
            heads.append(Head(layer, head, weights, wrong_digits(run, examples)))
    return heads


def draw(heads: Sequence[Head]) -> Figure:
    """Two tables of heads and digits: where the head looks, and what goes wrong without it."""
    figure = Figure(figsize=(8.2, 0.34 * len(heads) + 1.6), dpi=150, layout="constrained")
    figure.suptitle("Which head copies which digit of a date", x=0.012, ha="left", fontsize=12)
    tables = {
        "weight on the letters it comes from": ([x.weights for x in heads], 1.0),
        "share that is wrong without the head": ([x.wrong for x in heads], None),
    }
    for ax, (title, (rows, top)) in zip(figure.subplots(1, 2, sharey=True), tables.items(), strict=True):
        most = top or max(max(row) for row in rows) or 1.0
        ax.imshow(rows, cmap=COLOURS, vmin=0, vmax=most, aspect="auto")
        for i, row in enumerate(rows):
            for j, x in enumerate(row):
                colour = "white" if x < 0.6 * most else "black"
                ax.annotate(
                    f"{x:.2f}".removeprefix("0"), (j, i), ha="center", va="center", color=colour, fontsize=8
                )
        title = title if top else f"{title}, at most {most:.2f}"  # noqa: PLW2901
        ax.set_title(title, loc="left", fontsize=10, color=INK)
        ax.set_xticks(range(len(PLACES)), list("YYYYMMDD"))
        ax.tick_params(colors=INK, length=0)
    names = [f"{next(x for x in head.layer.split('.') if x.isdigit())}.{head.head}" for head in heads]
    figure.axes[0].set_yticks(range(len(heads)), names)
    figure.axes[0].set_ylabel("layer.head")
    return figure


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print a table and draw it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("run", help="a run of `sightline train translate --data dates`")
    parser.add_argument("--limit", type=int, default=300, help="dates of the test split at most")
    parser.add_argument("--out", type=Path, help="the picture")
    parser.add_argument("--json", type=Path, help="the table as JSON")
    args = parser.parse_args(argv)
    heads = measure(sl.open_run(args.run), args.limit)
    print("digits are in the order of YYYY-MM-DD")
    for x in sorted(heads, key=lambda x: -x.copies):
        weights, wrong = (" ".join(f"{y:.2f}" for y in row) for row in (x.weights, x.wrong))
        print(f"{x.layer} {x.head}: copies {x.copies:.2f}; weights {weights}; wrong without it {wrong}")
    if args.json:
        args.json.write_text(json.dumps([x._asdict() for x in heads], indent=1))
    if args.out:
        with style():
            draw(heads).savefig(args.out)


if __name__ == "__main__":
    main()
