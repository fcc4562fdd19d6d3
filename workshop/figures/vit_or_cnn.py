"""Train a Vision Transformer and a convolutional network of the same size on more and more images; draw both.

Usage: python -m workshop.figures.vit_or_cnn train [--device cuda] [--json FILE]  about three minutes on a GPU
       python -m workshop.figures.vit_or_cnn draw [--json FILE] [--out PICTURE]

The images are drawn scenes, the class is the shape of the larger of two things. Nothing is augmented, and all
trainings take the same number of steps.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor, nn

import sightline as sl
from sightline.data.counter_rng import CounterRNG
from sightline.data.scenes_draw import draw as draw_scenes
from sightline.data.scenes_layout import random_layout
from sightline.look.palette import LINES
from workshop import PICTURES

HERE = Path(__file__).parent
SIZES, TEST, STEPS, BATCH, CHUNK = (250, 1000, 4000, 16000), 2000, 1600, 128, 500
NAMES = {"cnn": ("convolutions", LINES[2]), "vit": ("Vision Transformer", LINES[0])}


def images(stream: str, n: int, device: str) -> tuple[Tensor, Tensor]:
    """Drawn scenes, (n, 3, 64, 64) bytes, and the shape of the larger thing in each."""
    pictures, classes = [], []
    for start in range(0, n, CHUNK):
        rows = range(start, start + CHUNK)
        layout = random_layout(CounterRNG(0, f"{stream} layout", rows))
        drawn, _ = draw_scenes(layout, CounterRNG(0, f"{stream} paint", rows))
        larger = (layout.radius[:, 1] > layout.radius[:, 0]).astype(int)
        pictures.append(torch.from_numpy(drawn))
        classes.append(torch.from_numpy(layout.shape[range(CHUNK), larger]))
    return torch.cat(pictures).to(device), torch.cat(classes).to(device)


class Residual(nn.Module):
    """x + conv(gelu(norm(x)))."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(8, channels)
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Look at the neighbours."""
        return x + self.conv(F.gelu(self.norm(x)))


def cnn(n_classes: int) -> nn.Module:
    """Four stages, each half as large as the one before."""
    layers: list[nn.Module] = []
    before = 3
    for channels in (32, 64, 96, 176):
        layers += [nn.Conv2d(before, channels, 3, 2, 1), Residual(channels)]
        before = channels
    head = [
        nn.GroupNorm(8, before),
        nn.GELU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(before, n_classes),
    ]
    return nn.Sequential(*layers, *head)


def vit(n_classes: int) -> nn.Module:
    """Six layers over 8 x 8 patches."""
    config = sl.models.VisionTransformerConfig(
        n_classes=n_classes, image_size=64, patch=8, d_model=96, n_heads=4, n_layers=6, d_ff=384, pool="mean"
    )
    return sl.models.VisionTransformer(config)


def scaled(x: Tensor) -> Tensor:
    """Bytes as -1 to 1."""
    return x.float() / 127.5 - 1


def train(make: Callable[[int], nn.Module], n: int, seed: int, data: tuple[Tensor, ...]) -> float:
    """The accuracy on the test images after training on the first n."""
    pictures, classes, test_pictures, test_classes = data
    torch.manual_seed(seed)
    model = make(int(classes.max()) + 1).to(pictures.device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, STEPS)
    for _ in range(STEPS):
        chosen = torch.randint(0, n, (BATCH,), device=pictures.device)
        loss = F.cross_entropy(model(scaled(pictures[chosen])), classes[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        found = model.eval()(scaled(test_pictures)).argmax(1)
    parameters = sum(p.numel() for p in model.parameters())
    accuracy = (found == test_classes).float().mean().item()
    print(f"{make.__name__}, {parameters:,} parameters, {n} images: {accuracy:.3f}", flush=True)
    return accuracy


def draw(measured: dict[str, dict[str, list[float]]]) -> Figure:
    """Accuracy over the number of images; a dot for each seed."""
    figure = Figure(figsize=(6.4, 3.6), dpi=150, layout="constrained")
    axes = figure.subplots()
    for key, curve in measured.items():
        name, colour = NAMES[key]
        sizes = [int(n) for n in curve]
        means = [sum(found) / len(found) for found in curve.values()]
        axes.plot(sizes, means, "-", color=colour, label=name)
        for n, found in zip(sizes, curve.values(), strict=True):
            axes.plot([n] * len(found), found, "o", color=colour, markersize=4)
    axes.set(xscale="log", xlabel="images to learn from", ylabel="accuracy on others", ylim=(0, 1.02))
    axes.set_xticks(SIZES, [f"{n:,}" for n in SIZES])
    axes.minorticks_off()
    axes.legend(frameon=False, fontsize=9, loc="lower right")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure


def main() -> None:
    """Train or draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["train", "draw"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path, default=HERE / "vit_or_cnn.json")
    parser.add_argument("--out", type=Path, default=PICTURES / "vit_or_cnn.png")
    given = parser.parse_args()
    if given.what == "train":
        data = (*images("train", max(SIZES), given.device), *images("test", TEST, given.device))
        found = {
            make.__name__: {str(n): [train(make, n, seed, data) for seed in (0, 1)] for n in SIZES}
            for make in (cnn, vit)
        }
        given.json.write_text(json.dumps(found, indent=1) + "\n")
        return
    draw(json.loads(given.json.read_text())).savefig(given.out, dpi=100)
    print(given.out)


if __name__ == "__main__":
    main()
