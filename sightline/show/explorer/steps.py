"""The steps of a decoding: the token of each, how likely it was, and what else might have been."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sightline.look.tokens import clean
from sightline.show.explorer.layers import Layer

__all__ = ["Step", "read_steps"]


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step of a decoding.

    Attributes:
        token: What was written.
        probability: How likely it was; None where that is not known.
        alternatives: The likeliest tokens with their probabilities, best first.
        query: Which query wrote it. Default: the steps are the last queries, in order.
    """

    token: str
    probability: float | None = None
    alternatives: Sequence[tuple[str, float]] = ()
    query: int | None = None


def read_steps(steps: Sequence[Step] | None, layers: Sequence[Layer]) -> list[dict[str, Any]] | None:
    """The steps as JSON; None if there are none.

    Raises:
        ValueError: If there are more steps than queries.
    """
    if not steps:
        return None
    t = max(layer.sight.t for layer in layers)
    first = t - len(steps)
    if first < 0:
        raise ValueError(f"each step has a query of its own, got {len(steps)} steps for {t} queries")
    return [
        {
            "token": clean(step.token),
            "probability": step.probability,
            "alternatives": [{"token": clean(text), "probability": p} for text, p in step.alternatives],
            "query": first + i if step.query is None else step.query,
        }
        for i, step in enumerate(steps)
    ]
