"""Bad input to ``sl.edit``."""

import torch
from torch import nn

import sightline as sl

MODEL = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
X = torch.zeros(2, 5, 8)


def run(**options):
    """Run the model while it is edited."""
    with sl.edit(MODEL, **options):
        MODEL(X)


BAD = {
    "sl.edit(model): a text": (lambda: sl.edit("model", scale=2.0), TypeError, "nn.Module", "str"),
    "sl.edit(model): nothing to change": (lambda: sl.edit(MODEL), ValueError, "ablate"),
    "sl.edit(layers): a number": (lambda: sl.edit(MODEL, layers=3, scale=2.0), TypeError, "layers", "int"),
    "sl.edit(heads): a text": (lambda: sl.edit(MODEL, heads="0", scale=2.0), TypeError, "'0'"),
    "sl.edit(heads): too far": (lambda: run(heads=[2], scale=2.0), ValueError, "2"),
    "sl.edit(ablate): unknown": (lambda: sl.edit(MODEL, ablate="zeros"), ValueError, "'zeros'", "'zero'"),
    "sl.edit(forbid): no pairs": (lambda: sl.edit(MODEL, forbid=[1]), (TypeError, ValueError), "pairs", "1"),
    "sl.edit(forbid): too far": (lambda: run(forbid=[([9], None)]), ValueError, "9"),
    "sl.edit(temperature): zero": (lambda: sl.edit(MODEL, temperature=0), ValueError, "temperature", "0"),
    "sl.edit(temperature): a text": (lambda: sl.edit(MODEL, temperature="1"), ValueError, "'1'"),
    "sl.edit(scale): infinite": (lambda: sl.edit(MODEL, scale=torch.inf), ValueError, "scale", "inf"),
    "Edit.__enter__(): twice": (lambda: twice(sl.edit(MODEL, scale=2.0)), RuntimeError, "entered already"),
}


def twice(edit):
    """Enter a block inside itself."""
    with edit, edit:
        pass
