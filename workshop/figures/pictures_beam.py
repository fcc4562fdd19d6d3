"""Draw the beam search of a caption and of a translation: the tree, and where the winner looked.

Usage: python -m workshop.figures.pictures_beam [--caption RUN] [--translate RUN] [--text TEXT] [--scene 0]
           [--width 3] [--out FOLDER]

RUN is what `sightline demo` leaves, or what `sightline train translate --data dates --out RUN` does. Without
--out the pictures in docs/pictures are written anew.
"""

import argparse
from pathlib import Path

import torch
from matplotlib.figure import Figure

import sightline as sl
from sightline.data.images import normalise
from sightline.data.scenes import Scenes
from sightline.data.tokens import NEVER_GENERATED
from sightline.decode.beam import beam
from sightline.decode.trace import BeamTrace
from sightline.show.alignment import readable
from sightline.tasks.attention import Grid
from sightline.tasks.caption.predict import CaptionPredictor
from sightline.tasks.translate.generate import length_limit
from sightline.tasks.translate.predict import SentenceTranslator
from workshop import PICTURES


def of_a_caption(folder: str, scene: int, width: int) -> Figure:
    """The search for the caption of a drawn scene that no training has seen."""
    predictor = sl.open_run(folder, "cpu").predictor
    assert isinstance(predictor, CaptionPredictor)  # noqa: S101 - what this draws
    model, image, trace = predictor.model, Scenes(scene + 1, split="test").open(scene), BeamTrace()
    state = model.start(normalise(image[None]), look=True)
    beam(
        model, state, width=width, max_length=model.config.max_length, forbidden=NEVER_GENERATED, trace=trace
    )
    keys = Grid(rows=model.grid[0], columns=model.grid[1], image=image)
    return sl.show.beam_tree(trace, lambda i: predictor.tokenizer.words([i])[0], keys)


def of_a_translation(folder: str, text: str, width: int) -> Figure:
    """The search for the translation of a text."""
    predictor = sl.open_run(folder, "cpu").predictor
    assert isinstance(predictor, SentenceTranslator)  # noqa: S101 - what this draws
    model, tokens, trace = predictor.model, predictor.tokens, BeamTrace()
    ids = tokens.read(text)
    with torch.no_grad():
        state = model.start(torch.tensor([ids]), look=True)
        beam(model, state, width=width, max_length=length_limit(model, len(ids)), trace=trace)  # type: ignore[arg-type]
    keys = readable(tokens.source.words(ids))
    return sl.show.beam_tree(trace, lambda i: readable(tokens.target.words([i]))[0], keys, title=text)


def main() -> None:
    """Draw what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--caption", metavar="RUN", help="a run of captioning: draws beam_caption.png")
    parser.add_argument("--translate", metavar="RUN", help="a run of translation: draws beam_translation.png")
    parser.add_argument(
        "--text", default="le jeudi 3 mai 1979", help="what to translate; default: %(default)s"
    )
    parser.add_argument(
        "--scene", type=int, default=0, help="number of the test scene to caption; default: 0"
    )
    parser.add_argument("--width", type=int, default=3, help="beginnings that are kept; default: 3")
    parser.add_argument("--out", type=Path, default=PICTURES, help="a folder; default: docs/pictures")
    given = parser.parse_args()
    if given.caption is None and given.translate is None:
        parser.error("nothing to draw; give --caption RUN, --translate RUN or both")
    given.out.mkdir(parents=True, exist_ok=True)
    figures = {}
    if given.caption is not None:
        figures["beam_caption"] = of_a_caption(given.caption, given.scene, given.width)
    if given.translate is not None:
        figures["beam_translation"] = of_a_translation(given.translate, given.text, given.width)
    for name, figure in figures.items():
        figure.savefig(given.out / f"{name}.png", dpi=100)
        print(given.out / f"{name}.png")


if __name__ == "__main__":
    main()
