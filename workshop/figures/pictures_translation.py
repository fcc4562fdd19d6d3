"""Make the pictures of the chapter on translation, from two runs on dates.

Usage: python -m workshop.figures.pictures_translation RECURRENT_RUN TRANSFORMER_RUN [FOLDER]

    sightline train translate --data dates --model recurrent --out RECURRENT_RUN
    sightline train translate --data dates --out TRANSFORMER_RUN
"""

import sys
from pathlib import Path

import sightline as sl
from sightline.show.alignment import arcs
from workshop import PICTURES


def main() -> None:
    """Translate one date with each model and draw where it looked."""
    recurrent, transformer = (sl.open_run(name, "cpu") for name in sys.argv[1:3])
    folder = Path(sys.argv[3] if len(sys.argv) > 3 else PICTURES)
    (one,) = recurrent.predict(["le jeudi 3 mai 1979"])
    sl.show.prediction(one, title="").savefig(folder / "translation_alignment.png")
    (two,) = transformer.predict(["3 Μαΐου 1979"])
    sl.show.prediction(two, layer=1, title="").savefig(folder / "translation_heads.png")
    own = transformer.layers(two)["encoder.layers.0.self_attn"]
    assert isinstance(own.keys, tuple)  # noqa: S101 - words
    heads = own.weights[0]  # (H, T, T)
    entropy = -heads.xlogy(heads).sum((1, 2))
    arcs(heads[entropy.argmin()], own.keys).savefig(folder / "translation_arcs.png")


if __name__ == "__main__":
    main()
