"""Train small translators to copy letters, and draw how well they do over the length.

- does one vector hold a long sequence? A recurrent translator with attention, and one without, which gets the
  mean of the encoder's states at every step of the decoder;
- how far beyond the lengths of the training do positions reach? Transformers with each kind of them.

Usage: python -m workshop.figures.copying train [--json FILE] [--device cuda] about twenty minutes on one core
       python -m workshop.figures.copying draw [--json FILE] [FOLDER]
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor

import sightline as sl
from sightline.data.tokens import BOS, EOS, PAD
from sightline.decode.search import greedy
from sightline.look.palette import LINES
from sightline.show.style import SOFT
from workshop import PICTURES

HERE = Path(__file__).parent
LETTERS, FIRST = 20, 4  # ids below are the special ones
VOCABULARY = {"source_vocab_size": FIRST + LETTERS, "vocab_size": FIRST + LETTERS, "dropout": 0.0}
LONGEST, BATCH = 24, 64
GREEN, RED, BLUE, GREY = *LINES[:3], SOFT
NAMES = {
    "additive": ("with attention (additive)", GREEN),
    "none": ("without: one vector", RED),
    "sinusoidal": ("sinusoidal", GREEN),
    "learned": ("learned", BLUE),
    "rotary": ("rotary", RED),
}
Curves = dict[str, dict[str, float]]  # name -> length -> share of letters


def recurrent(score: str) -> Any:
    """A GRU on either side, and what joins them."""
    return sl.models.RecurrentTranslator(
        sl.models.RecurrentConfig(d_model=96, d_attn=64, score=score, **VOCABULARY)
    )


def transformer(positions: str) -> Any:
    """Two layers on either side, with positions for twice the lengths of the training."""
    return sl.models.Translator(
        sl.models.TranslatorConfig(
            d_model=64, n_heads=4, n_layers=2, d_ff=128, positions=positions, max_length=64, **VOCABULARY
        )
    )


def batch(lengths: Tensor, generator: torch.Generator, model: Any) -> tuple[Tensor, Tensor]:
    """Random letters and their end, padded: the source, and the same as target with its beginning.

    They are drawn on the CPU, the same for every device, and handed over on the model's.
    """
    ids = torch.randint(FIRST, FIRST + LETTERS, (len(lengths), int(lengths.max())), generator=generator)
    place = torch.arange(ids.size(1) + 1)
    source = F.pad(ids, (0, 1)).masked_fill(place >= lengths[:, None], PAD)
    source[torch.arange(len(lengths)), lengths] = EOS
    source = source.to(next(model.parameters()).device)
    return source, F.pad(source, (1, 0), value=BOS)


def train(model: Any, steps: int, lr: float, generator: torch.Generator) -> None:
    """Learn to copy 1 to ``LONGEST`` letters."""
    optimizer = torch.optim.AdamW(model.parameters(), lr)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, steps)
    for step in range(steps):
        lengths = torch.randint(1, LONGEST + 1, (BATCH,), generator=generator)
        source, target = batch(lengths, generator, model)
        logits = model(source, target[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 300 == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)


@torch.no_grad()
def accuracy(model: Any, length: int, generator: torch.Generator) -> float:
    """Of 100 sequences of a length, written greedily: the share of letters in their right places."""
    source, target = batch(torch.full((100,), length), generator, model)
    written = greedy(model, model.start(source), max_length=length + 1).ids[:, 0]
    written = F.pad(written, (0, max(0, length - written.size(1))))[:, :length]
    return (written == target[:, 1 : length + 1]).float().mean().item()


def measured(
    make: Any, names: list[str], steps: int, lr: float, lengths: range, device: str = "cpu"
) -> Curves:
    """Train a model for each name, and say how well each copies each length."""
    found: Curves = {}
    for name in names:
        print(name)
        torch.manual_seed(0)
        generator = torch.Generator().manual_seed(0)
        model = make(name).to(device)
        train(model, steps, lr, generator)
        model.eval()
        found[name] = {str(n): round(accuracy(model, n, generator), 4) for n in lengths}
    return found


def draw(curves: Curves, trained: bool) -> Figure:
    """Accuracy over the length; a line where the training ended, if it did before."""
    figure = Figure(figsize=(6.4, 3.6), dpi=150, layout="constrained")
    axes = figure.subplots()
    for key, curve in curves.items():
        name, colour = NAMES[key]
        axes.plot([int(n) for n in curve], list(curve.values()), "o-", color=colour, markersize=4, label=name)
    if trained:
        axes.axvline(LONGEST, color=GREY, linestyle="--", linewidth=1)
        axes.text(LONGEST - 0.6, 0.45, "trained up to here", rotation=90, ha="right", fontsize=8, color=SOFT)
    axes.axhline(1 / LETTERS, color=GREY, linestyle=":", linewidth=1)
    axes.text(1, 1 / LETTERS + 0.02, "chance", fontsize=8, color=SOFT)
    axes.set(xlabel="length of the sequence", ylabel="letters copied rightly", ylim=(0, 1.03))
    axes.legend(frameon=False, fontsize=9, loc="lower left", bbox_to_anchor=(0.02, 0.12))
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure


def main() -> None:
    """Train or draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["train", "draw"])
    parser.add_argument("folder", nargs="?", type=Path, default=PICTURES)
    parser.add_argument("--json", type=Path, default=HERE / "copying.json")
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    if given.what == "train":
        found = {
            "one_vector": measured(
                recurrent, ["additive", "none"], 2400, 3e-3, range(1, LONGEST + 1), given.device
            ),
            "longer_than_trained": measured(
                transformer,
                ["sinusoidal", "learned", "rotary"],
                3000,
                2e-3,
                range(2, 2 * LONGEST + 1, 2),
                given.device,
            ),
        }
        given.json.write_text(json.dumps(found, indent=1) + "\n")
        return
    for name, curves in json.loads(given.json.read_text()).items():
        draw(curves, trained=name == "longer_than_trained").savefig(given.folder / f"{name}.png", dpi=100)
        print(given.folder / f"{name}.png")


if __name__ == "__main__":
    main()
