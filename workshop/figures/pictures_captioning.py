"""Make the pictures of the chapter on captioning.

Usage: python -m workshop.figures.pictures_captioning RUN [PHOTO_RUN IMAGE]

RUN is what `sightline demo` leaves, PHOTO_RUN a run on photos and IMAGE a photo that it has not seen.
"""

import sys

import sightline as sl
from sightline.show.curves import read_metrics
from workshop import PICTURES


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
        figure.savefig(PICTURES / f"{name}.png", dpi=100)
        print(PICTURES / f"{name}.png")


if __name__ == "__main__":
    main()
