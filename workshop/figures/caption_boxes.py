"""How much of a caption's word looks at its object: the mass on the object's box, for each head.

    python -m workshop.figures.caption_boxes RUN [--limit 200] [--out PICTURE] [--json FILE]

RUN is a captioner of the embedded set ``scenes`` (``sightline demo`` trains one, ``runs/demo``). It writes
its captions of the test split; "a red star left of a blue ring" names two objects whose boxes are known. For
the step that writes an object's name, "star", ``sight.mass`` gives each head's weight on the cells of its
box, and on the other objects' boxes. Chance is the share of the grid that a box takes.
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
from sightline.data.scenes import Scene
from sightline.data.scenes_layout import SIDE
from sightline.data.scenes_words import phrases_of
from sightline.evaluate.scenes import match_object
from sightline.show.style import ACCENT, LINE, MAIN, SOFT, style
from sightline.tasks.caption.attention import watch_captions
from sightline.tasks.run import Run

INK, BLUE, GREY, WARM = SOFT, MAIN, LINE, ACCENT


class Head(NamedTuple):
    """A head of the cross-attention, and where its weight is while objects are named."""

    layer: str
    head: int
    own: float  # on the box of the object that is named
    others: float  # on the boxes of the others


class Boxes(NamedTuple):
    """The masses of all heads, and what they would be by chance."""

    heads: list[Head]
    chance: float
    n_words: int


def inside(scene: Scene, thing: int, grid: tuple[int, int]) -> Tensor:
    """(P,): which cells of the grid have their centre in the box of an object, row by row."""
    down, across = ((torch.arange(n) + 0.5) * (SIDE / n) for n in grid)
    left, top, right, bottom = scene.objects[thing].box
    return (((down >= top) & (down < bottom))[:, None] & (across >= left) & (across < right)).flatten()


def groups_of(scene: Scene, thing: int, grid: tuple[int, int]) -> list[list[int]]:
    """The cells of an object's box, and those of other objects' boxes alone."""
    boxes = torch.stack([inside(scene, i, grid) for i in range(len(scene.objects))])
    return [cells.nonzero().flatten().tolist() for cells in (boxes[thing], boxes.any(0) & ~boxes[thing])]


def measure(run: Run, limit: int) -> Boxes:
    """Write captions, and sum the weights on boxes at every object word."""
    model: Any = run.model
    examples = list(run.predictor.examples(run.dataset(), "test", limit))
    options = run.task.predict_options(beam=1)
    with torch.no_grad():
        predictions: Any = run.predictor.predict(examples, options, attention=True)
    captions = [p.attention.ids for p in predictions]
    seen = watch_captions(model, torch.stack([e.value for e in examples]), captions)
    words = []  # (item, step, groups of cells)
    for item, (example, p) in enumerate(zip(examples, predictions, strict=True)):
        for phrase in phrases_of(list(p.attention.queries)):
            thing = match_object(example.truth, phrase)
            if thing is not None:
                words.append((item, phrase.at, groups_of(example.truth, thing, model.grid)))
    heads = []
    for name in seen.names():
        if name.endswith("multihead_attn"):
            (sight,) = seen.calls(name)
            mass = torch.stack([sight[item].mass(groups)[:, step] for item, step, groups in words])
            heads += [Head(name, i, *x) for i, x in enumerate(mass.mean(0).tolist())]  # (words, H, 2)
    chance = sum(len(groups[0]) for _, _, groups in words) / len(words) / (model.grid[0] * model.grid[1])
    return Boxes(heads, chance, len(words))


def draw(boxes: Boxes) -> Figure:
    """Stacked bars: the named object's box, other boxes, the rest."""
    figure = Figure(figsize=(7.2, 3.3), dpi=150, layout="constrained")
    figure.suptitle("Where a word that names an object looks", x=0.012, ha="left", fontsize=12)
    ax = figure.subplots()
    own, others = [x.own for x in boxes.heads], [x.others for x in boxes.heads]
    places = range(len(own))
    ax.bar(places, own, color=BLUE, width=0.75, label="its object's box")
    ax.bar(places, others, bottom=own, color=WARM, width=0.75, label="other boxes")
    bottom = [a + b for a, b in zip(own, others, strict=True)]
    ax.bar(places, [1 - x for x in bottom], bottom=bottom, color=GREY, width=0.75, label="background")
    ax.axhline(boxes.chance, color=INK, linewidth=1, linestyle="--", label=f"chance, {boxes.chance:.2f}")
    for i, x in enumerate(own):
        if x > 0.08:  # else there is no room in the bar
            ax.annotate(f"{x:.2f}", (i, x - 0.02), ha="center", va="top", color="white", fontsize=9)
    names = [f"{next(x for x in head.layer.split('.') if x.isdigit())}.{head.head}" for head in boxes.heads]
    ax.set_xticks(places, names)
    ax.set(xlabel="layer.head of the cross-attention", ylabel="share of the weight", ylim=(0, 1))
    ax.tick_params(colors=INK)
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=9)
    return figure


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print a table and draw it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("run", help="a captioner of the embedded scenes")
    parser.add_argument("--limit", type=int, default=200, help="images of the test split at most")
    parser.add_argument("--out", type=Path, help="the picture")
    parser.add_argument("--json", type=Path, help="the table as JSON")
    args = parser.parse_args(argv)
    boxes = measure(sl.open_run(args.run), args.limit)
    print(f"{boxes.n_words} object words, chance {boxes.chance:.3f}")
    for x in boxes.heads:
        print(f"{x.layer} {x.head}: its object's box {x.own:.3f}, other boxes {x.others:.3f}")
    if args.json:
        rows = [x._asdict() for x in boxes.heads]
        args.json.write_text(
            json.dumps({"chance": boxes.chance, "words": boxes.n_words, "heads": rows}, indent=1)
        )
    if args.out:
        with style():
            draw(boxes).savefig(args.out)


if __name__ == "__main__":
    main()
