"""Draw the course's own pictures: the soft dictionary, scores, masks, shuffled words, two language models.

Usage: python -m workshop.figures.pictures_course [FOLDER]          half a minute on one core
"""

import runpy
import sys
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor

import sightline as sl
from sightline import show
from workshop import ROOT

BLUE, BROWN, GREY = "#3b5bab", "#b5651d", "#8a8a94"


def soft_dictionary() -> Figure:
    """Scores, weights and the mixture, for three sharpnesses of the same scores."""
    keys, scores = ["apple", "pear", "plum", "bread"], torch.tensor([2.0, 1.5, 0.5, -1.0])
    figure = Figure(figsize=(9, 2.8), layout="constrained", dpi=130)
    for panel, times in zip(figure.subplots(1, 3, sharey=True), (0.0, 1.0, 5.0), strict=True):
        weights = (times * scores).softmax(0)
        panel.bar(keys, weights.tolist(), color=BLUE)
        for n, weight in enumerate(weights.tolist()):
            panel.text(n, weight + 0.02, f"{weight:.2f}", ha="center", fontsize=9)
        panel.set(title=f"scores times {times:g}", ylim=(0, 1.12))
    figure.axes[0].set_ylabel("weight")
    return figure


def score_functions() -> Figure:
    """Where on a plane a key must lie for a high score with one query: dot, cosine, additive."""
    line = torch.linspace(-2, 2, 101)
    y, x = torch.meshgrid(line, line, indexing="ij")
    keys = torch.stack([x, y], dim=-1).reshape(-1, 2)
    query = torch.tensor([[1.2, 0.6]])
    additive = sl.scores.Additive(2, 2, d_attn=16)
    with torch.no_grad():
        torch.manual_seed(1)
        for weight in additive.parameters():
            weight.copy_(torch.randn_like(weight))
        found = {
            "dot": sl.scores.Dot()(query, keys),
            "cosine": sl.scores.Cosine()(query, keys),
            "additive, untrained": additive(query, keys),
        }
    figure = Figure(figsize=(9, 3), layout="constrained", dpi=130)
    for panel, (name, values) in zip(figure.subplots(1, 3), found.items(), strict=True):
        panel.imshow(values.reshape(101, 101), extent=(-2, 2, -2, 2), origin="lower", cmap="viridis")
        panel.annotate(
            "", xy=tuple(query[0].tolist()), xytext=(0, 0), arrowprops={"color": "white", "width": 1.5}
        )
        panel.set(title=name)
    return figure


def masks() -> Figure:
    """The masks of chapter 4."""
    gallery = {
        "causal": sl.masks.causal(),
        "padding": sl.masks.padding(torch.tensor([5])),
        "both": sl.masks.causal() & sl.masks.padding(torch.tensor([5])),
        "window": sl.masks.window(2, 0),
    }
    return show.masks(gallery, 7)


def shuffled() -> Figure:
    """Weights of one layer for words in two orders: the same numbers, moved; with positions, others."""
    torch.manual_seed(3)
    words, x = ["dog", "bites", "man"], 2 * torch.randn(3, 16)
    layer, order = sl.nn.SelfAttention(16, 16, 16), [2, 1, 0]

    def weights(x: Tensor) -> Tensor:
        q, k, v = layer.project(x)
        return sl.reference.scaled_dot_product_attention(3 * q, k, v)[1].detach()

    places = sl.positions.sinusoidal(3, 16)
    figure = Figure(figsize=(9, 2.7), layout="constrained", dpi=130)
    drawn = {
        "in order": (weights(x), words),
        "shuffled": (weights(x[order]), [words[n] for n in order]),
        "in order, with positions": (weights(x + places), words),
        "shuffled, with positions": (weights(x[order] + places), [words[n] for n in order]),
    }
    for panel, (name, (found, labels)) in zip(figure.subplots(1, 4), drawn.items(), strict=True):
        panel.imshow(found, vmin=0, vmax=1, cmap="Blues")
        for t in range(3):
            for s in range(3):
                colour = "white" if found[t, s] > 0.5 else "black"
                panel.text(s, t, f"{found[t, s]:.2f}", ha="center", va="center", color=colour, fontsize=9)
        panel.set_xticks(range(3), labels)
        panel.set_yticks(range(3), labels)
        panel.set_title(name, fontsize=10)
    return figure


def pretraining() -> Figure:
    """The losses of examples/pretraining.py, and the accuracy after eight labels over the steps before."""
    torch.set_num_threads(1)
    lesson = runpy.run_path(str(ROOT / "examples" / "pretraining.py"))
    figure = Figure(figsize=(9, 3), layout="constrained", dpi=130)
    left, right = figure.subplots(1, 2)
    for name, is_causal, colour in (("masked", False, BLUE), ("causal", True, BROWN)):
        steps = (0, 25, 50, 100, 200, 400)
        accuracy = []
        for count in steps:
            torch.manual_seed(0)
            model = lesson["LanguageModel"](is_causal=is_causal)
            losses = lesson["pretrain"](model, count)
            accuracy.append(lesson["finetune"](model))
        left.plot(losses, color=colour, lw=1, label=name)
        right.plot(range(len(steps)), accuracy, color=colour, marker="o", ms=4, label=name)
    left.set(xlabel="step", ylabel="loss", title="Learning from text without labels", ylim=(0, None))
    right.set(
        xlabel="steps of pretraining",
        ylabel="accuracy on new names",
        title="Then eight labels",
        ylim=(0, 1.05),
    )
    right.axhline(0.5, color=GREY, lw=0.8, ls=":")
    right.set_xticks(range(len(steps)), map(str, steps))
    left.legend(frameon=False)
    return figure


def main() -> None:
    """Write the pictures."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "pictures"
    for name, make in {
        "soft_dictionary": soft_dictionary,
        "score_functions": score_functions,
        "masks": masks,
        "shuffled": shuffled,
        "pretraining": pretraining,
    }.items():
        make().savefig(folder / f"course_{name}.png")
        sys.stdout.write(f"{folder / f'course_{name}.png'}\n")


if __name__ == "__main__":
    main()
