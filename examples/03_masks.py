"""Scaled dot product and masks beside torch's F.scaled_dot_product_attention.

The exercise (ECE 57000, exercise 2) has 20 sequences of 5 tokens, d_k = 512 and d_v = 64, first without
and then with a lower-triangular mask. Here every mask is tried, and a row that may look nowhere.

Usage: python examples/03_masks.py [FOLDER]
"""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F

import sightline as sl
from sightline import show

torch.manual_seed(0)
q, k, v = torch.rand(20, 5, 512), torch.rand(20, 5, 512), torch.rand(20, 5, 64)
output, weights = sl.reference.scaled_dot_product_attention(q, k, v)
print(f"output {tuple(output.shape)}, weights {tuple(weights.shape)}")

lengths = torch.randint(1, 6, (20,))
real = torch.arange(5) < lengths[:, None, None]  # (20, 1, 5)
past = torch.ones(5, 5, dtype=torch.bool).tril()
near = torch.ones(5, 5, dtype=torch.bool).tril(1).triu(-1)
masks = {
    "none": (None, None),
    "causal": (sl.masks.causal(), past),
    "window(1, 1)": (sl.masks.window(1, 1), near),
    "padding": (sl.masks.padding(lengths), real),
    "causal & padding": (sl.masks.causal() & sl.masks.padding(lengths), past & real),
    "your own": (sl.masks.from_ones(past.int()), past),
}
print("\nlargest difference   sl.attention to torch   reference to torch")
for name, (ours, dense) in masks.items():
    theirs = F.scaled_dot_product_attention(q, k, v, attn_mask=dense)
    fused = (sl.attention(q, k, v, ours) - theirs).abs().max().item()
    plain = (sl.reference.scaled_dot_product_attention(q, k, v, dense)[0] - theirs).abs().max().item()
    print(f"{name:20s} {fused:21.1e} {plain:20.1e}")
    assert max(fused, plain) < 1e-5

nothing = sl.attention(q, k, v, sl.masks.padding([0] * 20))
print(f"\na query that may look at nothing gets zeros: {bool((nothing == 0).all())}")

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/examples")
folder.mkdir(parents=True, exist_ok=True)
gallery = {name: ours for name, (ours, _) in masks.items() if "padding" not in name and ours is not None}
show.masks(gallery, 5).savefig(folder / "03_masks.png")
print(f"the masks: {folder / '03_masks.png'}")
