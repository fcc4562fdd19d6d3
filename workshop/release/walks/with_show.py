"""Figures and pages."""

from pathlib import Path

import torch

import sightline as sl

model = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True)
with sl.watch(model, keep=True) as seen:
    model(torch.randn(1, 5, 8))
sl.show.page(seen, tokens=["a", "few", "words", "of", "text"]).save("page.html")
assert "<script" in Path("page.html").read_text()
print("sl.show.page")
