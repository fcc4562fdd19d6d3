"""What was seen shows itself in a cell, as views that ask Python."""

import torch

import sightline as sl

model = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True)
with sl.watch(model, keep=True) as seen:
    model(torch.randn(1, 5, 8))
shown = seen._repr_mimebundle_()
bundle = shown[0] if isinstance(shown, tuple) else shown
assert any("widget" in kind for kind in bundle), bundle
print("what was seen as live views in a cell")
