# ruff: noqa: INP001
"""Make the pictures of the chapter on classification, from a run on the digits.

Usage: python docs/pictures_classification.py RUN [FOLDER]      RUN: sightline train classify --data digits
"""

import sys
from pathlib import Path

import torch
from matplotlib.figure import Figure
from sightline.cli.classify_run import open_run
from torch import Tensor

from sightline.evaluate.classes import confusion
from sightline.show.style import COLOURS, style
from sightline.show.vit import class_heads, confused
from sightline.tasks.classify.attention import Glance, glance


def strokes(images: Tensor, seen: Glance, names: list[str]) -> Figure:
    """One image of each class, and under it its rollout, on a scale of its own up to the 95th percentile."""
    n = len(images)
    with style():
        figure = Figure(figsize=(0.92 * n, 2.1), dpi=150, layout="constrained")
        axes = figure.subplots(2, n)
        for i in range(n):
            axes[0, i].imshow(images[i, 0], cmap="gray", vmin=0, vmax=255)
            axes[0, i].set_title(names[i], fontsize=10)
            shares = seen.rollout[i].view(seen.grid).cpu()
            axes[1, i].imshow(shares, cmap=COLOURS, vmin=0, vmax=float(shares.flatten().quantile(0.95)))
            for ax in axes[:, i]:
                ax.axis("off")
    return figure


def main() -> None:
    """Draw them all."""
    folder = Path(sys.argv[2] if len(sys.argv) > 2 else Path(__file__).parent / "pictures")
    run = open_run(Path(sys.argv[1]), torch.device("cpu"))
    test = run.images().split("test")
    first = torch.tensor([int((test.labels == i).nonzero()[0]) for i in range(len(run.names))])
    seen = glance(run.model, test.images[first])
    logits = run.model.predict(test.images)
    pictures = {
        "classes_rollout": strokes(test.images[first], seen, list(run.names)),
        "classes_heads": class_heads(test.images[first[3]], seen, item=3),
        "classes_confusion": confused(confusion(logits, test.labels), run.names),
    }
    for name, figure in pictures.items():
        figure.savefig(folder / f"{name}.png")


if __name__ == "__main__":
    main()
