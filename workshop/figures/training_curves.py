"""Train small Transformers with and without warm-up and label smoothing, and draw their curves.

Usage: python -m workshop.figures.training_curves train [--json FILE]     about two minutes on one core
       python -m workshop.figures.training_curves draw [--json FILE] [--out PICTURE]

The task is to write twelve letters backwards. For label smoothing the set is small and one letter in ten of
its targets is wrong, as in data that people wrote down; the letters that are held out are right.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor, nn

import sightline as sl
from workshop import PICTURES

HERE = Path(__file__).parent
T, V, E, LAYERS, BATCH = 12, 20, 64, 6, 32
SEEDS = (0, 1, 2)
WARMUP, RATE = 100, 3e-3


class Reverser(nn.Module):
    """Reads letters, writes the letter of the mirrored place at every place."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(V, E)
        layer = sl.nn.TransformerEncoderLayer(E, 4, 2 * E, dropout=0.0, batch_first=True)
        self.layers = sl.nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        for each in self.layers.layers:  # each its own random numbers
            for weight in each.parameters():
                if weight.dim() > 1:
                    nn.init.xavier_uniform_(weight)
        self.output = nn.Linear(E, V)
        self.register_buffer("places", sl.positions.sinusoidal(T, E))

    def forward(self, letters: Tensor) -> Tensor:
        """(B, T) to (B, T, V)."""
        return self.output(self.layers(self.letters(letters) + self.places))


def warm_up(seed: int, warmup: int, steps: int = 300) -> list[float]:
    """The loss over the steps, with new letters at every one; the rate is the same after the warm-up."""
    torch.manual_seed(seed)
    model = Reverser()
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE, betas=(0.9, 0.98))
    losses = []
    for step in range(1, steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1.0, step / warmup) if warmup else RATE
        letters = torch.randint(V, (BATCH, T))
        loss = F.cross_entropy(model(letters).flatten(0, 1), letters.flip(1).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(round(loss.item(), 4))
    return losses


def smoothing(seed: int, share: float, steps: int = 700, every: int = 25) -> dict[str, list[float]]:
    """Loss, accuracy and confidence on letters that were held out, over the steps."""
    torch.manual_seed(seed)
    letters, held = torch.randint(V, (600, T)), torch.randint(V, (500, T))
    noise = torch.rand(600, T) < 0.1
    targets = torch.where(noise, torch.randint(V, (600, T)), letters.flip(1))
    model = Reverser()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.98))
    found: dict[str, list[float]] = {"step": [], "loss": [], "accuracy": [], "confidence": []}
    for step in range(1, steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * min(1.0, step / WARMUP)
        chosen = torch.randint(600, (BATCH,))
        logits = model(letters[chosen]).flatten(0, 1)
        loss = F.cross_entropy(logits, targets[chosen].flatten(), label_smoothing=share)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % every == 0:
            with torch.no_grad():
                logits = model(held).flatten(0, 1)
            best = logits.softmax(-1).max(-1)
            right = held.flip(1).flatten()
            found["step"].append(step)
            found["loss"].append(round(F.cross_entropy(logits, right).item(), 4))
            found["accuracy"].append(round((best.indices == right).float().mean().item(), 4))
            found["confidence"].append(round(best.values.mean().item(), 4))
    return found


def train() -> dict[str, Any]:
    """All runs."""
    torch.set_num_threads(1)
    found: dict[str, Any] = {"warm-up": {}, "smoothing": {}}
    for name, steps in (("without", 0), ("with", WARMUP)):
        found["warm-up"][name] = [warm_up(seed, steps) for seed in SEEDS]
        print("warm-up", name, [run[-1] for run in found["warm-up"][name]], flush=True)
    for share in (0.0, 0.1):
        found["smoothing"][str(share)] = runs = [smoothing(seed, share) for seed in SEEDS]
        print("smoothing", share, [{key: run[key][-1] for key in run} for run in runs], flush=True)
    return found


def draw(found: dict[str, Any]) -> Figure:
    """Three panels: the loss with and without warm-up; held-out loss; held-out confidence and accuracy."""
    figure = Figure(figsize=(10, 3.2), layout="constrained", dpi=130)
    left, middle, right = figure.subplots(1, 3)
    for name, colour in (("without", "#b5651d"), ("with", "#3b5bab")):
        for n, run in enumerate(found["warm-up"][name]):
            smooth = [sum(run[max(0, i - 9) : i + 1]) / min(10, i + 1) for i in range(len(run))]
            left.plot(smooth, color=colour, lw=1, label=f"{name} warm-up" if n == 0 else None)
    left.set(xlabel="step", ylabel="loss", title="The same rate, 0.003", ylim=(0, None))
    left.legend(frameon=False)
    for share, colour in (("0.0", "#b5651d"), ("0.1", "#3b5bab")):
        for n, run in enumerate(found["smoothing"][share]):
            name = ("without smoothing" if share == "0.0" else "with smoothing 0.1") if n == 0 else None
            middle.plot(run["step"], run["loss"], color=colour, lw=1, label=name)
            right.plot(run["step"], run["confidence"], color=colour, lw=1)
            right.plot(run["step"], run["accuracy"], color=colour, lw=1, ls="--")
    middle.set(
        xlabel="step", ylabel="loss on held-out letters", title="One target in ten is wrong", ylim=(0, None)
    )
    middle.legend(frameon=False)
    right.set(xlabel="step", title="How sure (—), how often right (--)", ylim=(0, 1.02))
    return figure


def main() -> None:
    """Train or draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["train", "draw"])
    parser.add_argument("--json", type=Path, default=HERE / "training_curves.json")
    parser.add_argument("--out", type=Path, default=PICTURES / "training_curves.png")
    given = parser.parse_args()
    if given.what == "train":
        given.json.write_text(json.dumps(train()) + "\n")
    else:
        draw(json.loads(given.json.read_text())).savefig(given.out)


if __name__ == "__main__":
    main()
