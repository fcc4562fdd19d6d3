"""Train the recurrent translator on dates with each score of ``sl.scores``, and with none; print a table.

    python -m workshop.figures.translation_scores      # all of them, about seven minutes on one core
    python -m workshop.figures.translation_scores --scores dot additive --epochs 4

Time is that of this process on the CPU, so that a busy machine tells the same as an idle one. Curves go to
``docs/pictures/translation_scores.png`` and the numbers to ``workshop/figures/translation_scores.json``.
"""

import argparse
import csv
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

from sightline.models.rnn import SCORES
from sightline.show.style import style
from sightline.tasks import train
from workshop import PICTURES

HERE = Path(__file__).parent


def trained(score: str, folder: Path, epochs: int) -> dict[str, Any]:
    """Train with one score, evaluate on the test split, and say how long a step took."""
    settings: dict[str, Any] = {
        "epochs": epochs,
        "evaluate_every": epochs,
        "save_every": epochs,
        "log_every": 10,
    }
    settings |= {"score": score, "tensorboard": False, "device": "cpu"}
    start = time.process_time()
    run = train("translate", data="dates", model="recurrent", out=folder, shown=False, **settings)
    seconds = time.process_time() - start
    rows = list(csv.DictReader((folder / "metrics.csv").open()))
    steps = int(rows[-1]["step"])
    scores = run.evaluate(beam=1, batch_size=250).scores
    return {
        "score": score,
        "exact_match": scores["exact_match"],
        "alignment_accuracy": scores["alignment_accuracy"],
        "milliseconds_a_step": 1000 * seconds / steps,
        "curve": [(int(row["step"]), float(row["loss"])) for row in rows if row["loss"]],
    }


def drawn(rows: list[dict[str, Any]]) -> Figure:
    """The curve of each score."""
    with style():
        figure = Figure(figsize=(6.4, 3.6), dpi=150)
        ax = figure.add_axes((0.12, 0.15, 0.62, 0.8), xlabel="step", ylabel="loss of a letter", yscale="log")
        for row in rows:
            ax.plot(*zip(*row["curve"], strict=True), label=row["score"])
        figure.legend(loc="center right")
    return figure


def main() -> None:
    """Train, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scores", nargs="*", default=list(SCORES))
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--out", type=Path, help="a folder for both; default: where they are kept")
    wishes = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for score in wishes.scores:
            rows.append(trained(score, Path(folder) / score, wishes.epochs))
            shown = {key: value for key, value in rows[-1].items() if key != "curve"}
            sys.stderr.write(f"{shown}\n")
    lines = ["| score | exact match | alignment accuracy | ms a step |", "|---|---:|---:|---:|"]
    lines += [
        f"| `{row['score']}` | {row['exact_match']:.3f} | {row['alignment_accuracy']:.3f} | "
        f"{row['milliseconds_a_step']:.0f} |"
        for row in rows
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    ((wishes.out or HERE) / "translation_scores.json").write_text(json.dumps(rows, indent=1) + "\n")
    pictures = wishes.out or PICTURES
    pictures.mkdir(exist_ok=True)
    drawn(rows).savefig(pictures / "translation_scores.png")


if __name__ == "__main__":
    main()
