"""Where the calls of a module stand in a sequence: which are one run, and where their queries and keys are.

A prompt is read at once, T = S; then each step has few queries, and its keys are those of the cache:

==================  ==============================================================  =======================
the cache            keys of a step                                                  the first of them is key
==================  ==============================================================  =======================
grows                all so far                                                      0
is static            as many as it can hold, those that are not there yet masked     0
slides               the last ``window``, once there are more                        all so far - window
is cropped           all so far, without those that were taken back                  0
is an encoder's      those of the encoder                                            0
==================  ==============================================================  =======================

Only the shapes of calls are asked, so calls that were not measured (``watch(every=2)``) count as well.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from sightline.look.calls import CallShape
from sightline.look.module_names import is_cross_name
from sightline.look.sight import Sight

__all__ = ["Place", "are_steps", "items_of", "places_of", "split_runs"]

Call = Sight | CallShape


class Place(NamedTuple):
    """Where one of the calls of a run stands.

    Attributes:
        first_query: Where in the sequence its first query stands; None if that can't be known.
        first_key: The same of its first key.
        n_queries: How many of its queries count: those that the cache took back don't.
    """

    first_query: int | None
    first_key: int
    n_queries: int


def split_runs(sights: Sequence[Sight]) -> list[list[int]]:
    """Which sights of a module belong to one pass over a sequence: a prompt and the steps after it.

    A new one begins with another batch, with a prompt (T = S), or where many queries come at once to a
    static cache that has been stepped through. Sequences may also be gone through in turns: two as
    ``generate`` does with ``guidance_scale``, as many as there are layers where these share their weights.
    """
    runs: list[list[int]] = []
    before: Call | None = None
    in_turns = 0
    prompts = _count_prompts(sights)
    for i, sight in enumerate(sights):
        is_new = False
        if i >= in_turns and (n := _in_turns(sights, i, prompts[i])):
            runs += [list(range(j, i + n, prompts[i])) for j in range(i, i + prompts[i])]
            in_turns, before = i + n, sights[i + n - 1]
        if i < in_turns:
            continue
        for call in _up_to(sight):
            is_new, before = is_new or _restarts(before, call), call
        if is_new:
            runs.append([])
        runs[-1].append(i)
    return runs


def _count_prompts(sights: Sequence[Sight]) -> list[int]:
    """How many prompts, T = S, follow each other from each sight on."""
    counts = [0]
    for sight in reversed(sights):
        counts.append(counts[-1] + 1 if sight.t == sight.s else 0)
    return counts[:0:-1]


def _in_turns(sights: Sequence[Sight], first: int, n_prompts: int) -> int:
    """How many sights from ``first`` on are as many sequences in turns, each growing by itself; 0 if none."""
    if n_prompts < 2:
        return 0
    n = 0
    for i in range(first, len(sights)):
        older = sights[i - n_prompts].s if n >= n_prompts else 0
        sight = sights[i]
        if sight.skipped or sight.lead != sights[first].lead or sight.s != sight.t + older:
            break
        n += 1
    return n if n >= 2 * n_prompts else 0


def are_steps(sights: Sequence[Sight]) -> bool:
    """Whether sights of a module follow each other in a decoding loop."""
    calls = _timeline(sights)
    if _has_grown(calls):
        return True
    later = calls[1:]
    if len({call.s for call in later}) == 1 and all(call.t == 1 for call in later):
        return True
    late = _late(calls)
    if late is None or not _is_self_attention(sights):
        return False
    if _was_cropped(calls, sights):
        return True
    slid = len({call.s for call in calls[late:]}) == 1 or len({call.s - call.t for call in calls[late:]}) == 1
    return slid and _has_grown(calls[:late])


def places_of(sights: Sequence[Sight]) -> list[Place]:
    """Where each of the calls of a run stands."""
    calls = _timeline(sights)
    is_own, has_grown, was_cropped = (
        _is_self_attention(sights),
        _has_grown(calls),
        _was_cropped(calls, sights),
    )
    found = {}
    for i, (call, total) in enumerate(zip(calls, _totals(calls), strict=True)):
        if not is_own:
            place = Place(call.s - call.t if has_grown else None, 0, call.t)
        elif was_cropped:
            first = call.s - call.t
            after = calls[i + 1] if i + 1 < len(calls) else None
            place = Place(first, 0, call.t if after is None else min(call.t, after.s - after.t - first))
        else:
            place = Place(total - call.t, max(0, total - call.s), call.t)
        found[id(call)] = place
    return [found[id(sight)] for sight in sights]


def items_of(sights: Sequence[Sight], beams: Sequence[int] | None = None) -> list[list[int] | None]:
    """Which items of each sight are the history of those of the last; None where they are the same.

    Args:
        sights: Those of a run.
        beams: The item of each call that a hypothesis went through, as a beam search tells; it ends with the
            first that is negative, and later sights have no items.
    """
    calls = _timeline(sights)
    found: dict[int, list[int] | None] = {}
    if beams is not None:
        ended = next((i for i, item in enumerate(beams) if item < 0), len(beams))
        found = {id(call): [beams[i]] if i < ended else [] for i, call in enumerate(calls)}
        return [found[id(sight)] for sight in sights]
    items: list[int] | None = None
    for call in reversed(calls):
        found[id(call)] = items
        if call.parents is not None:
            parents: list[int] = call.parents.tolist()
            items = parents if items is None else [parents[i] for i in items]
    return [found[id(sight)] for sight in sights]


def _timeline(sights: Sequence[Sight]) -> list[Call]:
    """All calls of a run in their order, those that were not measured too."""
    before: list[CallShape] = []
    for call in sights[0].skipped:
        before = [call] if not before or _restarts(before[-1], call) else [*before, call]
    if before and _restarts(before[-1], sights[0]):
        before = []
    after = sights[-1].after
    ends = [] if after is None or _restarts(sights[-1], after) else [after]
    return [*before, sights[0], *(call for sight in sights[1:] for call in _up_to(sight)), *ends]


def _up_to(sight: Sight) -> list[Call]:
    """The calls since the sight before, this one included."""
    return [*sight.skipped, sight]


def _restarts(before: Call | None, call: Call) -> bool:
    """Whether a sequence of its own begins with this call."""
    if before is None or call.lead != before.lead or call.t == call.s:
        return True
    return call.t > 1 and call.s == before.s and before.t == 1


def _totals(calls: Sequence[Call]) -> list[int]:
    """The queries up to and with each call."""
    return list(itertools.accumulate(call.t for call in calls))


def _has_grown(calls: Sequence[Call]) -> bool:
    """Whether every call has as many keys more as it has queries."""
    before = calls[0].s - calls[0].t  # keys that were there already
    return all(call.s == total + before for call, total in zip(calls, _totals(calls), strict=True))


def _late(calls: Sequence[Call]) -> int | None:
    """The first call with fewer keys than queries so far: its cache has forgotten some."""
    return next((i for i, total in enumerate(_totals(calls)) if calls[i].s < total), None)


def _was_cropped(calls: Sequence[Call], sights: Sequence[Sight]) -> bool:
    """Whether the cache took back keys, as it does with the tokens that assisted generation guessed wrong.

    A cache that slides has the same number of older keys in every call from then on, a cropped one has more
    each time. A single late call tells by what its last query looks at: behind a window it has no first key.
    """
    late = _late(calls)
    if late is None or not _is_self_attention(sights):
        return False
    older = [call.s - call.t for call in calls[max(late - 1, 0) :]]
    if not all(a < b for a, b in itertools.pairwise(older)):
        return False
    if late < len(calls) - 1:
        return True
    last = calls[late]
    if not isinstance(last, Sight) or not last.kept or last.t == 1:
        return False
    return bool(last.rows([last.t - 1])[..., 0].any())


def _is_self_attention(sights: Sequence[Sight]) -> bool:
    """Whether a run looks at its own tokens: all of them, or a cache with room left."""
    calls = _timeline(sights)
    if is_cross_name(sights[0].name) or calls[0].t > calls[0].s:
        return False
    if calls[0].t == calls[0].s:
        return True
    total = dict(zip(map(id, calls), _totals(calls), strict=True))[id(sights[0])]
    received = sights[0].statistics.get("received")
    return received is not None and not bool(received[..., total:].any())
