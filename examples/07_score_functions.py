"""The six score functions on one task: align each word of a sentence with the word it translates.

A source sentence has six of twelve words, its translation has their counterparts in another order, and a
query must find its key. Dot, scaled dot and cosine have nothing to learn, so a dictionary is beyond them;
general, low rank and additive learn it.

Usage: python examples/07_score_functions.py [FOLDER]
"""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

import sightline as sl
from sightline import show

V, D, T, STEPS = 12, 16, 6, 150
torch.set_num_threads(1)  # on vectors this small threads only wait for each other
torch.manual_seed(0)
source, target = torch.randn(V, D), torch.randn(V, D)  # word w of the source is word w of the target


def batch(size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries and keys, each (size, T, D), and the key that belongs to each query."""
    words = torch.rand(size, V).argsort(dim=-1)[:, :T]
    order = torch.rand(size, T).argsort(dim=-1)
    return target[words.gather(1, order)], source[words], order


def loss(score: sl.scores.Score, q: Tensor, k: Tensor, order: Tensor) -> Tensor:
    return F.cross_entropy(score(q, k).flatten(0, 1), order.flatten())


scores = {
    "dot": sl.scores.Dot(),
    "scaled dot": sl.scores.ScaledDot(),
    "cosine": sl.scores.Cosine(),
    "general": sl.scores.General(D, D),
    "low rank": sl.scores.LowRank(D, D, rank=5),
    "additive": sl.scores.Additive(D, D, d_attn=32),
}
test = batch(64)
print(f"loss on unseen sentences; by chance {torch.tensor(T).log():.2f}")
print("score         before    after    parameters")
for name, score in scores.items():
    before = loss(score, *test).item()
    parameters = list(score.parameters())
    if parameters:
        optimizer = torch.optim.Adam(parameters, lr=0.02)
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss(score, *batch(16)).backward()
            optimizer.step()
    after = loss(score, *test).item()
    print(f"{name:11s} {before:8.3f} {after:8.3f} {sum(p.numel() for p in parameters):10d}")
    assert after < before / 2 if parameters else after == before

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/examples")
folder.mkdir(parents=True, exist_ok=True)
show.scores(test[0][0], test[1][0], scores).savefig(folder / "07_score_functions.png")
print(f"\none sentence, the right keys are {test[2][0].tolist()}: {folder / '07_score_functions.png'}")
