"""Sinusoidal positions: the values of an assignment (ECE 57000), the heatmap, and moving by a matrix.

Usage: python examples/02_positions.py [FOLDER]         the picture goes to FOLDER, else to runs/examples
"""

import sys
from pathlib import Path

import torch

from sightline import positions, show

PRINTED = [1.4000, 1.0479, 0.2396, -0.4558, -0.5485, 0.0267, 0.8648, 1.3756, 1.1994, 0.4603]

# Three copies of ten tokens whose vectors all are 0.1, 0.2, ..., 12.8; positions are added, column 3 is read.
embeddings = 0.1 * torch.arange(1, 129).repeat(3, 10, 1).float()
encoded = positions.SinusoidalPositions(128)(embeddings)
print("position  ours     the document's")
for pos, printed in enumerate(PRINTED):
    print(f"{pos:8d}  {encoded[0, pos, 3]:7.4f}  {printed:7.4f}")
torch.testing.assert_close(encoded[:, :, 3], torch.tensor(PRINTED).expand(3, 10), rtol=0, atol=6e-5)

# Moving on by k positions is one linear map for all positions: PE[pos + k] = M @ PE[pos].
table = positions.sinusoidal(64, 32, dtype=torch.float64)
print("\n  k  largest difference between M @ PE[pos] and PE[pos + k]")
for k in (1, 3, 17):
    matrix = positions.shift_matrix(k, 32, dtype=torch.float64)
    apart = (table[:-k] @ matrix.T - table[k:]).abs().max().item()
    print(f"{k:3d}  {apart:.1e}")
    assert apart < 1e-13

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/examples")
folder.mkdir(parents=True, exist_ok=True)
show.positions(table).savefig(folder / "02_positions.png")
print(f"\nthe heatmap: {folder / '02_positions.png'}")
