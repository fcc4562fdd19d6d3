# ruff: noqa: INP001
"""Make the pictures of the chapter on captioning.

Usage: python docs/pictures_captioning.py RUN [PHOTO_RUN IMAGE]

RUN is what `sightline demo` leaves, PHOTO_RUN a run on photos and IMAGE a photo that it has not seen.
"""

import sys
from pathlib import Path

import torch

from sightline import show
from sightline.cli.caption_run import CaptionRun, open_run, read_pictures, told
from sightline.cli.evaluate_caption import tell, tellings
from sightline.cli.runs import Asked
from sightline.evaluate.captions import scored
from sightline.tasks.caption.generate import say
from sightline.show.curves import read_metrics
from sightline.show.told import Told

FOLDER = Path(__file__).parent / "pictures"
CPU = torch.device("cpu")


def scene(run: CaptionRun, number: int = 0) -> Told:
    """A scene of the test split, told."""
    captions = run.captions()
    asked = Asked(run=run.folder, wants_pictures=True)
    tested = tell(run, captions, captions.split("test")[: number + 1], asked)
    found = scored([said.text for said in tested.said], [record.captions for record in tested.records])
    return tellings(run, tested, found, [number])[0]


def photo(run: CaptionRun, path: Path) -> Told:
    """A photo, told."""
    picture = read_pictures([path], run.size)
    return told(run, picture[0], next(say(run.model, run.tokenizer, picture, look=True))[0])


def main() -> None:
    """Write them."""
    folder = Path(sys.argv[1])
    figures = {
        "captioning_scene": show.overlay(scene(open_run(folder, CPU))),
        "captioning_curves": show.curves(read_metrics(folder / "metrics.csv")),
    }
    if len(sys.argv) > 3:
        figures["captioning_photo"] = show.overlay(photo(open_run(Path(sys.argv[2]), CPU), Path(sys.argv[3])))
    for name, figure in figures.items():
        figure.savefig(FOLDER / f"{name}.png", dpi=100)
        print(FOLDER / f"{name}.png")  # noqa: T201


if __name__ == "__main__":
    main()
