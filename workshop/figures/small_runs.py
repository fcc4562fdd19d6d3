"""Train the two small runs of the how-to pages, overfitting and a task of one's own, and draw them.

Usage: python -m workshop.figures.small_runs train [--json FILE]  about two minutes on one core
       python -m workshop.figures.small_runs draw [--json FILE] [FOLDER]
"""

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

import sightline as sl
from sightline.look.palette import LINES
from workshop import PICTURES

HERE = Path(__file__).parent
SCORED = 5  # epochs between two looks at unseen scenes
OVERFIT = (
    "train caption --data scenes --preset tiny --n-train 50 --n-val 16 --epochs 150 --batch-size 25 "
    f"--ema none --label-smoothing 0 --keep last --evaluate-every {SCORED} --log-every 1"
)
NUMBERS = "31 4 15 42 26 35 8"


def overfit(out: Path) -> dict[str, list[list[float]]]:
    """The training loss of each epoch and the validation loss where it was taken: (step, loss)."""
    command = [sys.executable, "-m", "sightline", *OVERFIT.split(), "--out", str(out)]
    subprocess.run(command, check=True)
    with (out / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    curves = {"on the fifty": "loss", "on unseen scenes": "val_loss"}
    return {
        name: [[int(row["step"]), round(float(row[key]), 4)] for row in rows if row[key]]
        for name, key in curves.items()
    }


def sort(out: Path) -> dict[str, Any]:
    """What each head of the trained sorter looks at, and in which order it wrote the numbers."""
    import examples.task_of_your_own  # noqa: F401, PLC0415  registers the task

    run = sl.tasks.train("sort", out=out, shown=False, tensorboard=False)
    prediction = next(run.predict([NUMBERS]))
    weights = (prediction.attention.weights * 1000).round().int().tolist()
    return {"read": NUMBERS.split(), "written": prediction.text.split(), "weights": weights}


def draw_overfit(curves: dict[str, list[list[float]]]) -> Figure:
    """Both losses over the steps."""
    figure = Figure(figsize=(6.4, 3.0), dpi=150, layout="constrained")
    ax = figure.subplots()
    for (name, points), colour in zip(curves.items(), LINES, strict=False):
        ax.plot(*zip(*points, strict=True), color=colour, label=name)
    ax.set(
        xlabel="step", ylabel="loss", ylim=(0, None), title="The same model, by heart and on unseen scenes"
    )
    ax.legend(frameon=False)
    return figure


def draw_sort(seen: dict[str, Any]) -> Figure:
    """Every head of both layers: rows are what is written, in order; columns what was read, put in order."""
    order = sorted(range(len(seen["read"])), key=lambda at: int(seen["read"][at]))
    figure = Figure(figsize=(8.0, 4.4), dpi=150, layout="constrained")
    layers = seen["weights"]
    grid = figure.subplots(len(layers), len(layers[0]), squeeze=False)
    for layer, heads in enumerate(layers):
        for head, rows in enumerate(heads):
            ax = grid[layer][head]
            ax.imshow([[row[at] / 1000 for at in order] for row in rows], cmap="magma", vmin=0, vmax=1)
            ax.set_title(f"layer {layer}, head {head}", fontsize=9)
            ax.set_xticks(range(len(order)), [seen["read"][at] for at in order], fontsize=7)
            ax.set_yticks(range(len(rows)), seen["written"], fontsize=7)
    grid[-1][0].set(xlabel="reads", ylabel="writes")
    return figure


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["train", "draw"])
    parser.add_argument("folder", nargs="?", type=Path, default=PICTURES)
    parser.add_argument("--json", type=Path, default=HERE / "small_runs.json")
    given = parser.parse_args()
    if given.what == "train":
        with tempfile.TemporaryDirectory() as place:
            found = {"overfit": overfit(Path(place) / "overfit"), "sort": sort(Path(place) / "sort")}
        given.json.write_text(json.dumps(found) + "\n")
    found = json.loads(given.json.read_text())
    for name, figure in (("overfit", draw_overfit(found["overfit"])), ("task", draw_sort(found["sort"]))):
        figure.savefig(given.folder / f"do_{name}.png", metadata={"Software": None})
        print(given.folder / f"do_{name}.png")
