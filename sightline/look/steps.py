"""The steps of a decoding loop, one sight each, put together into one picture.

A prompt is read at once, T = S; then each step has few queries, and its keys are those of the cache:

==================  ==============================================================  =======================
the cache            keys of a step                                                  the first of them is key
==================  ==============================================================  =======================
grows                all so far                                                      0
is static            as many as it can hold, those that are not there yet masked     0
slides               the last ``window``, once there are more                        all so far - window
is an encoder's      those of the encoder                                            0
==================  ==============================================================  =======================
"""

import functools
import itertools
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from sightline.look.padding import is_cross_name
from sightline.look.sight import Sight, pad_last

__all__ = ["are_steps", "split_runs", "stack"]


def stack(sights: Sequence[Sight]) -> Sight:
    """Put the steps of a decoding loop on top of each other: one sight of all their queries.

    Args:
        sights: One for each step, in order. Where the cache slid over its window, keys are counted from the
            beginning of the sequence.
    """
    if not sights:
        raise ValueError("there is nothing to stack, got no sights")
    for sight in sights:
        if (sight.lead, sight.averaged) != (sights[0].lead, sights[0].averaged):
            kinds = [f"{x.lead}{' averaged' if x.averaged else ''}" for x in (sights[0], sight)]
            raise ValueError(
                f"only sights of the same batch and heads can be stacked, got {kinds[0]} and {kinds[1]}"
            )
    sights = [_shift(x, n) for x, n in zip(sights, _first_keys(sights), strict=True)]
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


def split_runs(calls: Sequence[Sight]) -> list[list[int]]:
    """Which calls of a module belong to one pass over a sequence: a prompt and the steps after it.

    A new one begins with another batch, with a prompt (T = S), or where many queries come at once to a
    static cache that has been stepped through.
    """
    runs: list[list[int]] = []
    for i, call in enumerate(calls):
        before = calls[i - 1] if i else None
        restarts = before is None or call.lead != before.lead or call.t == call.s
        if before is not None and call.t > 1 and call.s == before.s and before.t == 1:
            restarts = True
        if restarts:
            runs.append([])
        runs[-1].append(i)
    return runs


def are_steps(calls: Sequence[Sight]) -> bool:
    """Whether calls of a module follow each other in a decoding loop."""
    totals = list(itertools.accumulate(call.t for call in calls))
    before = calls[0].s - calls[0].t  # keys that were there already
    if all(call.s == total + before for call, total in zip(calls, totals, strict=True)):
        return True
    later = calls[1:]
    if len({call.s for call in later}) == 1 and all(call.t == 1 for call in later):
        return True
    late = next((i for i, call in enumerate(calls) if call.s < totals[i]), None)  # the cache has slid
    if late is None or not _is_self_attention(calls[0]):
        return False
    grown = all(call.s == total for call, total in zip(calls[:late], totals, strict=False))
    return grown and len({call.s for call in calls[late:]}) == 1


def _is_self_attention(first: Sight) -> bool:
    """Whether the first call of a loop looks at its own tokens: all of them, or a cache with room left."""
    if is_cross_name(first.name) or first.t > first.s:
        return False
    received = first.statistics.get("received")
    return first.t == first.s or (received is not None and not bool(received[..., first.t :].any()))


def _first_keys(calls: Sequence[Sight]) -> list[int]:
    """Where in the sequence the first key of each call stands: a cache that is full forgets the oldest."""
    totals = list(itertools.accumulate(call.t for call in calls))
    slid = [max(0, total - call.s) for total, call in zip(totals, calls, strict=True)]
    return slid if any(slid) and _is_self_attention(calls[0]) else [0] * len(calls)


def _shift(sight: Sight, n: int) -> Sight:
    """The same with n keys before the first, which got nothing."""
    if not n:
        return sight
    statistics = dict(sight.statistics)
    statistics.pop("map", None)
    if "received" in statistics:
        statistics["received"] = torch.nn.functional.pad(statistics["received"], (n, 0))
    for name in {"peak_at", "top_at"} & set(statistics):
        at = statistics[name]
        statistics[name] = torch.where(at >= 0, at + n, at)
    kept = tuple(piece._replace(first_key=piece.first_key + n) for piece in sight.kept)
    return replace(sight, s=sight.s + n, statistics=statistics, kept=kept)
