"""How well classes are told apart: accuracy, the five best guesses, calibration, and who is taken for whom.

ece = Σ_b |n_b| / n · |accuracy(b) - confidence(b)|        over 15 bins of confidence (Guo et al., 2017)
"""

import torch
from torch import Tensor

from sightline.shapes import Float, Int

__all__ = ["accuracy", "confusion", "ece", "score", "signature", "top"]

_BINS = 15


def score(logits: Float[Tensor, "N V"], labels: Int[Tensor, " N"]) -> dict[str, float]:
    """All of it, as fractions of one.

    Example:
        >>> score(torch.eye(3) * 9, torch.tensor([0, 1, 0]))["accuracy"]
        0.6666666865348816
    """
    _check(logits, labels)
    return {
        "accuracy": accuracy(logits, labels),
        "top5": top(logits, labels, 5),
        "ece": ece(logits, labels),
        "loss": float(torch.nn.functional.cross_entropy(logits.float(), labels)),
    }


def accuracy(logits: Float[Tensor, "N V"], labels: Int[Tensor, " N"]) -> float:
    """The share of images whose best guess is right."""
    return float((logits.argmax(-1) == labels).float().mean())


def top(logits: Float[Tensor, "N V"], labels: Int[Tensor, " N"], k: int) -> float:
    """The share of images whose class is among the k best guesses; of fewer classes, all are guessed."""
    best = logits.topk(min(k, logits.size(-1)), dim=-1).indices
    return float((best == labels[:, None]).any(-1).float().mean())


def ece(logits: Float[Tensor, "N V"], labels: Int[Tensor, " N"], bins: int = _BINS) -> float:
    """The expected calibration error: how far confidence lies from accuracy, in bins of equal width.

    Example:
        >>> ece(torch.tensor([[0.0, 0.0], [0.0, 0.0]]), torch.tensor([0, 1]))      # says 0.5, is right half
        0.0
    """
    confidence, guess = logits.double().softmax(-1).max(-1)
    right = (guess == labels).double()
    place = (confidence * bins).ceil().long().sub(1).clamp(0, bins - 1)  # bins (0, 1/15], (1/15, 2/15], ...
    zeros = torch.zeros(bins, dtype=torch.float64, device=logits.device)
    gaps = zeros.index_add(0, place, confidence - right)
    return float(gaps.abs().sum() / len(labels))


def confusion(logits: Float[Tensor, "N V"], labels: Int[Tensor, " N"]) -> Int[Tensor, "V V"]:
    """How many of each class, down, were taken for each, across.

    Example:
        >>> confusion(torch.eye(2)[[0, 1, 1]], torch.tensor([0, 0, 1]))
        tensor([[1, 1],
                [0, 1]])
    """
    n = logits.size(-1)
    pairs = labels * n + logits.argmax(-1)
    return torch.bincount(pairs, minlength=n * n).view(n, n)


def signature(name: str, *, n: int, views: int) -> str:
    """How a score came about, to be quoted with it.

    Example:
        >>> signature("accuracy", n=360, views=1)
        'top-1 of 360 images, 1 view an image'
    """
    how = {"accuracy": "top-1", "top5": "top-5", "ece": f"{_BINS} bins of equal width"}[name]
    return f"{how} of {n} images, {views} view{'s' * (views > 1)} an image"


def _check(logits: Tensor, labels: Tensor) -> None:
    if logits.dim() != 2 or len(logits) != len(labels) or not len(labels):
        raise ValueError(
            "scores need logits (N, V) and a label for each of at least one image, got logits "
            f"{tuple(logits.shape)} and {len(labels)} labels"
        )
