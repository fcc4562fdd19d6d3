"""Predictions to draw: records with the fields that figures and pages ask for, and nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

L, H, ROWS, COLUMNS = 2, 3, 5, 7
HOSTILE = '</script><b onclick="x()">\'"&amp; \u202eabc \u2028'


@dataclass(frozen=True)
class Grid:
    rows: int
    columns: int
    image: Tensor
    boxes: Mapping[int, tuple[float, float, float, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Attention:
    weights: Tensor
    queries: tuple[str, ...]
    keys: tuple[str, ...] | Grid
    summary: Tensor
    summary_label: str

    def select(self, *, layer=None, head=None):
        weights = self.weights if layer is None else self.weights[layer : layer + 1]
        weights = weights if head is None else weights[:, head : head + 1]
        return replace(
            self, weights=weights, summary=weights.mean((0, 1)), summary_label=f"layer {layer}, head {head}"
        )


@dataclass(frozen=True)
class Alternative:
    text: str
    score: float


@dataclass(frozen=True)
class Prediction:
    input: Any
    text: str
    score: float = -0.5
    alternatives: tuple[Alternative, ...] = ()
    attention: Attention | None = None
    references: tuple[str, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)


def shares(*shape):
    return (3 * torch.randn(*shape, generator=torch.Generator().manual_seed(0))).softmax(-1)


def caption(words=("a", "small", "dog"), *, source="photos/dog.jpg", image=None, boxes=None, **more):
    weights = shares(L, H, len(words), ROWS * COLUMNS)
    if image is None:
        image = torch.arange(3 * 13 * 17).view(3, 13, 17).to(torch.uint8)
    grid = Grid(ROWS, COLUMNS, image, boxes or {})
    attention = Attention(weights, tuple(words), grid, weights.mean((0, 1)), "the mean of 6 heads")
    return Prediction(source, " ".join(words), attention=attention, **more)


def translation(read=("▁ein", "▁Hund", "▁bellt"), written=("▁a", "▁dog", "▁bar", "ks"), **more):
    weights = shares(L, H, len(written), len(read))
    attention = Attention(weights, tuple(written), tuple(read), weights.mean((0, 1)), "the mean of 6 heads")
    text = "".join(written).replace("▁", " ").strip()
    return Prediction("ein Hund bellt", text, attention=attention, **more)


def classified(name="cat", *, channels=3, source=Path("cat.png"), **more):
    weights = shares(L, H, 1, ROWS * COLUMNS)
    image = torch.arange(channels * 10 * 14).view(channels, 10, 14).to(torch.uint8)
    rollout = shares(1, 1, 1, ROWS * COLUMNS)[0, 0]
    attention = Attention(weights, (name,), Grid(ROWS, COLUMNS, image), rollout, "rollout through 2 layers")
    alternatives = (Alternative(name, 0.75), Alternative("dog", 0.25))
    return Prediction(source, name, 0.75, alternatives, attention, **more)
