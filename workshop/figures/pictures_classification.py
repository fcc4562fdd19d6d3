"""Make the pictures of the chapter on classification, from a run on the digits.

Usage: python -m workshop.figures.pictures_classification RUN [FOLDER]
       RUN: sightline train classify --data digits
"""

import sys
from pathlib import Path

from matplotlib.figure import Figure

import sightline as sl
from sightline.show.style import COLOURS, style
from sightline.show.vit import head_overlays
from workshop import PICTURES


def draw_strokes(predictions: list[sl.tasks.Prediction]) -> Figure:
    """One image of each class, and under it its rollout, on a scale of its own up to the 95th percentile."""
    n = len(predictions)
    with style():
        figure = Figure(figsize=(0.92 * n, 2.1), dpi=150, layout="constrained")
        axes = figure.subplots(2, n)
        for i, p in enumerate(predictions):
            grid = p.attention.keys
            axes[0, i].imshow(grid.image[0], cmap="gray", vmin=0, vmax=255)
            axes[0, i].set_title(p.references[0], fontsize=10)
            shares = p.attention.summary[0].view(grid.rows, grid.columns)
            axes[1, i].imshow(shares, cmap=COLOURS, vmin=0, vmax=float(shares.flatten().quantile(0.95)))
            for ax in axes[:, i]:
                ax.axis("off")
    return figure


def main() -> None:
    """Draw them all."""
    folder = Path(sys.argv[2] if len(sys.argv) > 2 else PICTURES)
    run = sl.open_run(sys.argv[1], "cpu")
    result = run.evaluate(attention=True)
    by_class = {p.references[0]: p for p in reversed(result.predictions)}  # the first of each class
    names = sorted(by_class)
    pictures = {
        "classes_rollout": draw_strokes([by_class[name] for name in names]),
        "classes_heads": head_overlays(by_class["3"].attention),
        "classes_confusion": result.figures["Confusion"][0](),
    }
    for name, figure in pictures.items():
        figure.savefig(folder / f"{name}.png")


if __name__ == "__main__":
    main()
