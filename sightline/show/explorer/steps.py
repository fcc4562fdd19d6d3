"""The steps of a decoding: the token of each, how likely it was, and what else might have been."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from sightline.shapes import Float
from sightline.show.explorer.layers import Layer
from sightline.watch.tokens import clean

__all__ = ["Step", "read_steps", "steps_of"]

_ALTERNATIVES = 6


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step of a decoding.

    Attributes:
        token: What was written.
        probability: How likely it was; None where that is not known.
        alternatives: The likeliest tokens with their probabilities, best first.
        query: Which query wrote it. Default: the steps are the last queries, in order.

    Example:
        >>> Step(token="star", probability=0.75, alternatives=[("star", 0.75), ("ring", 0.25)]).token
        'star'
    """

    token: str
    probability: float | None = None
    alternatives: Sequence[tuple[str, float]] = ()
    query: int | None = None


def steps_of(
    logits: Float[Tensor, "T V"],
    ids: Sequence[int],
    names: Callable[[int], str],
    queries: Sequence[int] | None = None,
    *,
    n: int = _ALTERNATIVES,
) -> list[Step]:
    """The steps of a decoding, from the scores of all tokens at each step.

    Args:
        logits: Of each step.
        ids: The token of each step.
        names: The name of a token.
        queries: The query of each step. Default: in order.
        n: How many alternatives to keep.
    """
    shares = logits.detach().float().softmax(-1).cpu()
    best = shares.topk(min(n, shares.size(-1)), dim=-1)
    return [
        Step(
            token=names(token),
            probability=float(shares[i, token]),
            alternatives=[
                (names(other), p)
                for other, p in zip(best.indices[i].tolist(), best.values[i].tolist(), strict=True)
            ],
            query=i if queries is None else queries[i],
        )
        for i, token in enumerate(ids)
    ]


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
