# ruff: noqa: INP001, T201
"""Train a Vision Transformer and a CNN with as many weights on few and on many images, and draw how they do.

A CNN knows from the start that near pixels belong together and that a thing is the same wherever it stands;
a Vision Transformer has to learn that from images. Both tell the shape of what stands in the middle of a
piece of a drawn scene, six classes, among clutter and in uneven light. Both take the same number of steps,
without augmentation.

Usage: python docs/claim_vit_and_cnn.py train [--device cuda] [--json FILE]       minutes on a GPU
       python docs/claim_vit_and_cnn.py train --steps 20 --images 50 100 --test 50 --json FILE        a try
       python docs/claim_vit_and_cnn.py draw [--json FILE] [FOLDER]
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor, nn

from sightline.data.augment import as_floats
from sightline.data.scenes import Scenes
from sightline.data.scenes_layout import SIDE
from sightline.data.scenes_words import SHAPES
from sightline.models.vit import VisionTransformer, VisionTransformerConfig
from sightline.show.style import style

HERE = Path(__file__).parent
PIECE, BATCH = 32, 128
IMAGES = (100, 300, 1000, 3000, 10000, 30000)
Curves = dict[str, dict[str, list[float]]]  # model -> number of images -> accuracy of each seed


class ConvNet(nn.Sequential):
    """Three stages of residual 3 x 3 convolutions, each of half the side and twice the width; then a mean."""

    def __init__(self, width: int, n_classes: int) -> None:
        layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1)]
        for stage in range(3):
            wide = width << stage
            if stage:
                layers.append(nn.Conv2d(wide // 2, wide, 3, stride=2, padding=1))
            layers.append(_Residual(wide))
        last = width << 2
        super().__init__(
            *layers, nn.GroupNorm(1, last), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(last, n_classes)
        )


class _Residual(nn.Module):
    """x + conv(gelu(norm(x)))."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(1, channels)
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(F.gelu(self.norm(x)))


def vit() -> nn.Module:
    """Patches of 4 x 4, six layers."""
    size = {"d_model": 96, "n_heads": 4, "n_layers": 6, "d_ff": 192}
    return VisionTransformer(
        VisionTransformerConfig(image_size=PIECE, patch=4, n_classes=len(SHAPES), **size)  # type: ignore[arg-type]
    )


def cnn() -> nn.Module:
    """As wide as gives the nearest number of weights to the Transformer's."""
    wanted = weights_of(vit())
    width = min(range(8, 128, 2), key=lambda w: abs(weights_of(ConvNet(w, len(SHAPES))) - wanted))
    return ConvNet(width, len(SHAPES))


def weights_of(model: nn.Module) -> int:
    """How many numbers it learns."""
    return sum(weight.numel() for weight in model.parameters())


def pieces(n: int, split: str) -> tuple[Tensor, Tensor]:
    """``n`` images (n, 3, 32, 32) around the first thing of a scene, bytes; and its shape, as a number."""
    scenes, images, labels = Scenes(n, seed=0, split=split), [], []
    for i in range(n):
        thing = scenes.scene(i).objects[0]
        left, top, right, bottom = thing.box
        x, y = (min(max((a + b - PIECE) // 2, 0), SIDE - PIECE) for a, b in ((left, right), (top, bottom)))
        images.append(scenes.open(i)[:, y : y + PIECE, x : x + PIECE])
        labels.append(SHAPES.index(thing.shape))
    return torch.stack(images), torch.tensor(labels)


def train(
    model: nn.Module, images: Tensor, labels: Tensor, steps: int, lr: float, generator: torch.Generator
) -> None:
    """AdamW with warm-up and decay, batches drawn at random."""
    optimizer = torch.optim.AdamW(model.parameters(), lr, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, steps, pct_start=0.1)
    for _ in range(steps):
        chosen = torch.randint(len(images), (BATCH,), generator=generator).to(images.device)
        loss = F.cross_entropy(model(as_floats(images[chosen])), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()


@torch.no_grad()
def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """The share of the images whose shape is told."""
    model.eval()
    told = [model(as_floats(part)).argmax(-1) for part in images.split(500)]
    return (torch.cat(told) == labels).float().mean().item()


def measured(given: Any) -> Curves:
    """Train both models on each number of images, with each seed."""
    device = torch.device(given.device)
    images, labels = (x.to(device) for x in pieces(max(given.images), "train"))
    test = [x.to(device) for x in pieces(given.test, "test")]
    curves: Curves = {}
    for name, make, lr in (("Vision Transformer", vit, 1e-3), ("CNN", cnn, 2e-3)):
        curves[name] = {}
        for n in given.images:
            for seed in range(given.seeds):
                torch.manual_seed(seed)
                model = make().to(device).train()
                generator = torch.Generator().manual_seed(seed)
                train(model, images[:n], labels[:n], given.steps, lr, generator)
                curves[name].setdefault(str(n), []).append(round(accuracy(model, *test), 4))
            print(f"{name}, {weights_of(model):,} weights, {n} images: {curves[name][str(n)]}", flush=True)
    return curves


def draw(curves: Curves) -> Figure:
    """Accuracy on unseen scenes over the number of images in training."""
    colours = {"Vision Transformer": "#b5367a", "CNN": "#21918c"}
    with style():
        figure = Figure(figsize=(6.4, 3.6), dpi=150, layout="constrained")
        axes = figure.subplots()
        for name, curve in curves.items():
            n = [int(key) for key in curve]
            means = [sum(seeds) / len(seeds) for seeds in curve.values()]
            axes.plot(n, means, "o-", color=colours[name], markersize=4, label=name)
            low, high = [min(seeds) for seeds in curve.values()], [max(seeds) for seeds in curve.values()]
            axes.fill_between(n, low, high, color=colours[name], alpha=0.15, linewidth=0)
        axes.axhline(1 / len(SHAPES), color="#8a8a94", linestyle=":", linewidth=1)
        axes.text(min(n), 1 / len(SHAPES) + 0.02, "chance", fontsize=8, color="#55555f")
        axes.set(xscale="log", xlabel="images in training", ylabel="shapes told rightly", ylim=(0, 1.03))
        axes.legend(loc="lower right")
    return figure


def main() -> None:
    """Train or draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=["train", "draw"])
    parser.add_argument("folder", nargs="?", type=Path, default=HERE / "pictures")
    parser.add_argument("--json", type=Path, default=HERE / "vit_and_cnn.json")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--images", type=int, nargs="+", default=list(IMAGES))
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--test", type=int, default=2000, help="unseen images")
    given = parser.parse_args()
    if given.what == "train":
        given.json.write_text(json.dumps(measured(given), indent=1) + "\n")
        return
    draw(json.loads(given.json.read_text())).savefig(given.folder / "vit_and_cnn.png", dpi=100)
    print(given.folder / "vit_and_cnn.png")


if __name__ == "__main__":
    main()
