# ruff: noqa: INP001
"""Make the pictures of the chapter on translation, from two runs on dates.

Usage: python docs/pictures_translation.py RECURRENT_RUN TRANSFORMER_RUN [FOLDER]

    sightline train translate --data dates --model recurrent --out RECURRENT_RUN
    sightline train translate --data dates --out TRANSFORMER_RUN
"""

import sys
from pathlib import Path

import torch

from sightline.cli.look_translate import layers_of
from sightline.cli.translate_run import open_run
from sightline.show.alignment import alignment, arcs, head_grid

CPU = torch.device("cpu")


def main() -> None:
    """Translate one date with each model and draw where it looked."""
    recurrent, transformer = (open_run(Path(name), CPU) for name in sys.argv[1:3])
    folder = Path(sys.argv[3] if len(sys.argv) > 3 else Path(__file__).parent / "pictures")
    (one,) = recurrent.translate(["le jeudi 3 mai 1979"], width=5, look=True)
    assert one.weights is not None  # noqa: S101
    alignment(one.weights[0], one.read, one.written).savefig(folder / "translation_alignment.png")
    (two,) = transformer.translate(["3 Μαΐου 1979"], width=5, look=True)
    layers = {layer.name: layer for layer in layers_of(transformer, two)}
    cross = layers["decoder.layers.1.multihead_attn"]
    head_grid(cross.weights, cross.queries, cross.keys).savefig(folder / "translation_heads.png")
    own = layers["encoder.layers.0.self_attn"]
    entropy = -(own.weights * own.weights.clamp_min(1e-30).log()).sum((1, 2))
    arcs(own.weights[entropy.argmin()], own.keys).savefig(folder / "translation_arcs.png")


if __name__ == "__main__":
    main()
