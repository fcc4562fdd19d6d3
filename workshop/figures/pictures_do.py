"""The pictures of the how-to pages: a loss, a score, a mask, a statistic of one's own; sharded models.

Usage: python -m workshop.figures.pictures_do [FOLDER]
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from torch import Tensor, nn

import sightline as sl
from sightline.look.palette import LINES
from workshop import PICTURES

DPI = 110
RANKS = ListedColormap(LINES[:2])


def panels(count: int) -> tuple[Figure, list[Any]]:
    """A row of square panels."""
    figure = Figure(figsize=(2.9 * count, 3.1), layout="constrained")
    return figure, list(figure.subplots(1, count))


def matrix(ax: Any, weights: Tensor, title: str, **how: Any) -> None:
    """One matrix, queries down, keys across."""
    ax.imshow(weights.detach().numpy(), cmap="magma", interpolation="nearest", **how)
    ax.set(title=title, xlabel="key", ylabel="query")
    ax.locator_params(integer=True, nbins=5)


def trained(loss: Callable[[sl.Sight], Tensor] | None) -> Tensor:
    """The weights of one head after sixty steps of a loss on what it looks at."""
    torch.manual_seed(0)
    model = nn.MultiheadAttention(16, 1, batch_first=True)
    x = torch.randn(1, 24, 16)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(60 if loss else 0):
        with sl.watch(model, grad=True) as seen:
            model(x, x, x, need_weights=False)
        optimizer.zero_grad()
        loss(seen[""]).backward()
        optimizer.step()
    with torch.no_grad(), sl.watch(model, keep=True) as seen:
        model(x, x, x, need_weights=False)
    return seen[""].rows(range(24))[0, 0]


def draw_loss() -> Figure:
    """Before, sharp, covering."""
    figure, axes = panels(3)
    matrix(axes[0], trained(None), "before", vmin=0, vmax=0.5)
    matrix(axes[1], trained(lambda sight: sight.entropy.mean()), "entropy.mean()", vmin=0, vmax=0.5)
    both = trained(lambda sight: sight.entropy.mean() + 5 * (1 - sight.received).square().mean())
    matrix(axes[2], both, "... + (1 - received)²", vmin=0, vmax=0.5)
    return figure


def draw_score() -> Figure:
    """Keys along a line, some longer: what a dot product and a distance make of them."""
    angle = torch.linspace(0, torch.pi / 2, 30)
    unit = torch.stack([angle.cos(), angle.sin()], -1)
    k = unit * (1 + 2.0 * (torch.arange(30) % 7 == 3)[:, None])
    figure, axes = panels(2)
    matrix(axes[0], (8 * unit @ k.T).softmax(-1), "dot product: long keys win")
    matrix(axes[1], (-8 * torch.cdist(unit, k).square()).softmax(-1), "distance: near keys win")
    return figure


def draw_mask() -> Figure:
    """Four masks over sixteen tokens."""
    t = torch.arange(16)
    text = torch.tensor([0] * 5 + [1] * 7 + [2] * 4)
    packed = sl.masks.causal() & sl.masks.dense(text[:, None] == text)
    figure, axes = panels(4)
    matrix(axes[0], sl.masks.causal().dense(16, 16).float(), "causal()")
    window = sl.masks.causal() & sl.masks.window(3, 0)
    matrix(axes[1], window.dense(16, 16).float(), "causal() & window(3, 0)")
    matrix(axes[2], packed.dense(16, 16).float(), "causal() & dense(same text)")
    slope = -0.5 * (t[:, None] - t).abs().float()
    matrix(axes[3], slope.masked_fill(t > t[:, None], -torch.inf).softmax(-1), "softmax of ALiBi's bias")
    return figure


def draw_statistic() -> Figure:
    """Mean place and spread of two heads that look back by a distance of their own."""
    torch.manual_seed(0)
    t = torch.arange(300.0)
    figure, axes = panels(2)
    for ax, (back, sharp) in zip(axes, [(20.0, 0.2), (80.0, 0.01)], strict=True):
        away = -sharp * ((t[:, None] - back - t) / 5).square()
        mask = sl.masks.causal() & sl.masks.bias(away)
        q = k = 0.3 * torch.randn(1, 1, 300, 16)
        moments = torch.stack([t, t**2], -1)[None, None]
        mean, square = sl.attention(q, k, moments, mask)[0, 0].unbind(-1)
        spread = (square - mean**2).clamp_min(0).sqrt()
        ax.fill_between(t, mean - spread, mean + spread, alpha=0.3)
        ax.plot(t, mean)
        ax.plot(t, t, color="grey", linewidth=0.7)
        ax.set(title=f"looks {back:.0f} back", xlabel="query", ylabel="key: mean and spread")
    return figure


def draw_sharded() -> Figure:
    """The weights of two items with two heads each: which of two ranks sees them."""
    item, head, query = torch.meshgrid(torch.arange(2), torch.arange(2), torch.arange(8), indexing="ij")
    spread = {
        "DDP, FSDP: by items": item,
        "tensor parallel: by heads": head,
        "context parallel: by queries": query // 4,
    }
    figure, axes = panels(3)
    for ax, (title, rank) in zip(axes, spread.items(), strict=True):
        matrix = torch.full((19, 19), torch.nan)
        for i in range(2):
            for h in range(2):
                matrix[11 * i : 11 * i + 8, 11 * h : 11 * h + 8] = rank[i, h, :, None].float()
        ax.imshow(matrix, cmap=RANKS, vmin=0, vmax=1, interpolation="nearest")
        ax.set_title(title, fontsize=10)
        ax.set_xticks([3.5, 14.5], ["head 0", "head 1"])
        ax.set_yticks([3.5, 14.5], ["item 0", "item 1"], rotation=90, va="center")
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
    handles = [Patch(color=colour, label=f"rank {rank}") for rank, colour in enumerate(LINES[:2])]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    return figure


DRAW = {
    "do_sharded": draw_sharded,
    "do_loss": draw_loss,
    "do_score": draw_score,
    "do_mask": draw_mask,
    "do_statistic": draw_statistic,
}

if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURES
    torch.set_num_threads(1)
    for name, draw in DRAW.items():
        draw().savefig(folder / f"{name}.png", dpi=DPI, metadata={"Software": None})
        sys.stdout.write(f"{folder / name}.png\n")
