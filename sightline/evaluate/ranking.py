"""The examples worth a look: where a model did best, and where it did worst."""

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Ranking", "rank"]


@dataclass(frozen=True)
class Ranking:
    """Indices of examples.

    Attributes:
        best: The highest scores, best first.
        worst: The lowest scores, worst first.
    """

    best: list[int]
    worst: list[int]


def rank(scores: Sequence[float], n: int) -> Ranking:
    """The n best and the n worst of some scores; no example is both, and of equals the earlier comes first.

    Example:
        >>> rank([0.5, 0.1, 0.9, 0.7, 0.3], 2)
        Ranking(best=[2, 3], worst=[1, 4])
        >>> rank([0.5, 0.1, 0.9], 2)
        Ranking(best=[2, 0], worst=[1])
    """
    if n < 1:
        raise ValueError(f"how many to show must be at least 1, got {n}")
    best = sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:n]
    left = [i for i in range(len(scores)) if i not in set(best)]
    return Ranking(best, sorted(left, key=lambda i: (scores[i], i))[:n])
