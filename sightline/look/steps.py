"""The steps of a decoding loop, one sight each, put together into one picture."""

import functools
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from sightline.look.sight import Sight, pad_last

__all__ = ["stack"]


def stack(sights: Sequence[Sight]) -> Sight:
    """Put the steps of a decoding loop on top of each other: one sight of all their queries.

    Args:
        sights: One for each step, in order; their keys begin at the same position, later steps have more.
    """
    if not sights:
        raise ValueError("there is nothing to stack, got no sights")
    for sight in sights:
        if (sight.lead, sight.averaged) != (sights[0].lead, sights[0].averaged):
            kinds = [f"{x.lead}{' averaged' if x.averaged else ''}" for x in (sights[0], sight)]
            raise ValueError(
                f"only sights of the same batch and heads can be stacked, got {kinds[0]} and {kinds[1]}"
            )
    t, s = sum(x.t for x in sights), max(x.s for x in sights)
    statistics: dict[str, Tensor] = {}
    names = set.intersection(*(set(x.statistics) for x in sights)) - {"map"}
    for name in sorted(names):
        parts = [x.statistics[name] for x in sights]
        if name == "received":
            statistics[name] = functools.reduce(torch.add, [pad_last(x, s, 0.0) for x in parts])
        elif name in {"top", "top_at"}:
            widest = max(x.size(-1) for x in parts)
            statistics[name] = torch.cat(
                [pad_last(x, widest, -1.0 if name == "top_at" else 0.0) for x in parts], -2
            )
        else:
            statistics[name] = torch.cat(parts, dim=-2 if name == "output" else -1)
    kept = tuple(piece for x in sights for piece in x.kept) if all(x.kept for x in sights) else ()
    return replace(sights[0], t=t, s=s, statistics=statistics, kept=kept, backward=None)
