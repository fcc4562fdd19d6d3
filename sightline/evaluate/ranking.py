"""The examples worth a look: where a model did best, and where it did worst."""

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Ranked", "ranked"]


@dataclass(frozen=True)
class Ranked:
    """Indices of examples.

    Attributes:
        best: The highest scores, best first.
        worst: The lowest scores, worst first.
    """

    best: list[int]
    worst: list[int]


def ranked(scores: Sequence[float], n: int) -> Ranked:
    """The n best and the n worst of some scores; no example is both, and of equals the earlier comes first.

    Example:
        >>> ranked([0.5, 0.1, 0.9, 0.7, 0.3], 2)
        Ranked(best=[2, 3], worst=[1, 4])
        >>> ranked([0.5, 0.1, 0.9], 2)
        Ranked(best=[2, 0], worst=[1])
    """
    if n < 1:
        raise ValueError(f"how many to show must be at least 1, got {n}")
    best = sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:n]
    left = [i for i in range(len(scores)) if i not in set(best)]
    return Ranked(best, sorted(left, key=lambda i: (scores[i], i))[:n])
