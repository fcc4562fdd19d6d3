# ruff: noqa: INP001
"""Make the pictures of the chapter on captioning.

Usage: python docs/figures/pictures_captioning.py RUN [PHOTO_RUN IMAGE]

RUN is what `sightline demo` leaves, PHOTO_RUN a run on photos and IMAGE a photo that it has not seen.
"""

import sys
from pathlib import Path

import sightline as sl
from sightline.show.curves import read_metrics

FOLDER = Path(__file__).parents[1] / "pictures"


def main() -> None:
    """Write them."""
    run = sl.open_run(sys.argv[1], "cpu")
    scene = run.evaluate("test", limit=1, attention=True).predictions[0]
    figures = {
        "captioning_scene": sl.show.prediction(scene),
        "captioning_curves": sl.show.curves(read_metrics(run.folder / "metrics.csv")),
    }
    if len(sys.argv) > 3:
        photo = next(sl.open_run(sys.argv[2], "cpu").predict([sys.argv[3]]))
        figures["captioning_photo"] = sl.show.prediction(photo)
    for name, figure in figures.items():
        figure.savefig(FOLDER / f"{name}.png", dpi=100)
        print(FOLDER / f"{name}.png")  # noqa: T201


if __name__ == "__main__":
    main()
