"""One word walked through: its query, the scores of all patches, their softmax, the mix of values."""

import io
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sightline.look import palette
from sightline.shapes import Float
from sightline.show.html import data_uri
from sightline.show.overlay import pixels
from sightline.show.records import GridKeys

__all__ = ["AttentionTrace", "walk_values"]

_SHOWN, _PATCHES = 4, 3  # numbers of a vector, and patches, that a page prints
_DIM = 0.84
_LEVELS = 257
_PIXELS = 160  # pixels a side of a picture, at least


@dataclass(frozen=True, kw_only=True, eq=False)
class AttentionTrace:
    """How one head came to what it gives for one word.

    Attributes:
        word: The word that is written.
        text: What it is part of.
        where: Which layer and head.
        query: What the head looks for.
        keys: What each patch offers.
        values: What each patch gives.
        grid: The image and its patches.
    """

    word: str
    text: str
    where: str
    query: Float[Tensor, " D"]
    keys: Float[Tensor, "S D"]
    values: Float[Tensor, "S Dv"]
    grid: GridKeys


def walk_values(walk: AttentionTrace) -> dict[str, Any]:
    """The numbers of a walk as a page prints them, each from the ones before."""
    d = walk.query.numel()
    products = (walk.keys @ walk.query).double()
    scores = products / d**0.5
    powers = scores.exp()
    weights = powers / powers.sum()
    parts = weights[:, None] * walk.values.double()  # (S, Dv)
    chosen = weights.topk(min(_PATCHES, weights.numel())).indices.tolist()
    rows = [
        {
            "patch": f"{i // walk.grid.columns}, {i % walk.grid.columns}",
            "product": f"{products[i]:.2f}",
            "score": f"{scores[i]:.2f}",
            "power": f"{powers[i]:.2f}",
            "weight": f"{weights[i]:.3f}",
            "value": _numbers(parts[i]),
        }
        for i in chosen
    ]
    rest = [i for i in range(weights.numel()) if i not in chosen]
    return {
        "word": walk.word,
        "text": walk.text,
        "where": walk.where,
        "d": d,
        "n": weights.numel(),
        "shown": _SHOWN,
        "query": _numbers(walk.query.double()),
        "total": f"{powers.sum():.2f}",
        "rows": rows,
        "rest_weight": f"{weights[rest].sum():.3f}",
        "rest": _numbers(parts[rest].sum(0)),
        "output": _numbers(parts.sum(0)),
        "query_picture": _png(_two_sided(walk.query.numpy()[None])),
        "score_picture": _png(_two_sided(scores.view(walk.grid.rows, walk.grid.columns).numpy())),
        "weight_picture": _png(_lit(walk.grid, weights)),
    }


def _numbers(x: Float[Tensor, " n"]) -> str:
    return ", ".join(f"{value:.2f}".replace("-", "−") for value in x[:_SHOWN].tolist())


def _two_sided(x: "npt.NDArray[Any]") -> "npt.NDArray[np.uint8]":
    """Orange above zero, blue below, pale at zero."""
    share = np.clip(x / (np.abs(x).max() or 1.0), -1, 1)
    colours = np.array(palette.scale(palette.difference, _LEVELS, least=-1.0), np.uint8)
    return colours[np.rint((share + 1) / 2 * (_LEVELS - 1)).astype(int)]


def _lit(grid: GridKeys, weights: Tensor) -> "npt.NDArray[np.uint8]":
    """The image, dark where there is little weight."""
    image = pixels(grid.image)
    maps = weights.view(1, 1, grid.rows, grid.columns).float()
    spread = torch.nn.functional.interpolate(maps, image.shape[:2], mode="bilinear")[0, 0].numpy()
    veil = _DIM * (1 - np.sqrt(spread / (spread.max() or 1.0)))[..., None]
    return np.rint(image * (1 - veil) + np.array(palette.VEIL) * veil).astype(np.uint8)


def _png(array: "npt.NDArray[np.uint8]") -> str:
    from PIL import Image  # noqa: PLC0415

    zoom = max(1, -(-_PIXELS // max(array.shape[:2])))
    image = Image.fromarray(array).resize(
        (array.shape[1] * zoom, array.shape[0] * zoom), Image.Resampling.NEAREST
    )
    file = io.BytesIO()
    image.save(file, "png")
    return data_uri(file.getvalue())
