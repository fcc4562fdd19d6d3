"""What scoring gives, whatever was scored."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Ranking", "Scores", "rank"]


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Scores of a set of predictions.

    Attributes:
        total: Of all together, by name.
        each: Of each prediction alone, in order, by name.
        signatures: How each score was computed, in a line.
        about: What else a reader should know, as the end of a sentence: ", beam 5".
        tables: Further files by name, as text.
        figures: Further figures by title, each drawn when it is called, with a caption.

    Example:
        >>> Scores(total={"accuracy": 0.5}, each={"accuracy": [0.0, 1.0]}).total
        {'accuracy': 0.5}
    """

    total: Mapping[str, float]
    each: Mapping[str, Sequence[float]] = field(default_factory=dict)
    signatures: Mapping[str, str] = field(default_factory=dict)
    about: str = ""
    tables: Mapping[str, str] = field(default_factory=dict)
    figures: Mapping[str, tuple[Callable[[], Any], str]] = field(default_factory=dict)


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
