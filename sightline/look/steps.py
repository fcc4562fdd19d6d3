"""The steps of a decoding loop, one sight each, put together into one picture."""

import functools
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from sightline.look.groups import is_integer
from sightline.look.inputs import PrecomputedWeights, Tile
from sightline.look.runs import Place, items_of, places_of
from sightline.look.sight import SavedInputs, Sight, pad_last
from sightline.look.stream import tile_weights

__all__ = ["stack"]

_OF_QUERIES = ("lse", "entropy", "peak", "peak_at", "is_padding")
_OF_ROWS = ("output", "top", "top_at")


def stack(sights: Sequence[Sight], beams: Sequence[int] | None = None, *, follow: bool = True) -> Sight:
    """Put the steps of a decoding loop on top of each other: one sight of all their queries.

    Args:
        sights: One for each step, in order. Where the cache slid over its window, keys are counted from the
            beginning of the sequence; where it took tokens back, so do the queries.
            Where a beam search moved the items of the batch, each is followed back to where it came from.
        beams: Instead, the item of each call that one hypothesis went through, as a beam search tells.
        follow: Whether to follow items at all; without, a row is that of the item as the call numbered it.
    """
    if not sights:
        raise ValueError("there is nothing to stack, got no sights")
    for sight in sights:
        sight.require_whole("a stack of steps")
        if (sight.lead, sight.averaged) != (sights[0].lead, sights[0].averaged):
            kinds = [f"{x.lead}{' averaged' if x.averaged else ''}" for x in (sights[0], sight)]
            raise ValueError(
                f"only sights of the same batch and heads can be stacked, got {kinds[0]} and {kinds[1]}"
            )
    places, items = places_of(sights), _checked_items(sights, beams) if follow else [None] * len(sights)
    chosen = zip(sights, places, items, strict=True)
    sights = [_select(_place(x, place), own) for x, place, own in chosen if own != []]
    t, s = sum(x.t for x in sights), max(x.s for x in sights)
    statistics: dict[str, Tensor] = {}
    names = set.intersection(*(set(x.statistics) for x in sights)) - {"map"}
    if any("is_padding" in x.statistics for x in sights):
        statistics["is_padding"] = torch.cat([x.is_padding for x in sights], dim=-1)
        names.discard("is_padding")
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
    padding = next((x.padding for x in sights if x.padding), "")
    whole = replace(sights[0], t=t, s=s, statistics=statistics, kept=kept, backward=None, padding=padding)
    moved = any(own is not None for own in items)
    return replace(whole, skipped=(), after=None, parents=None, is_followed=moved)


def _checked_items(sights: Sequence[Sight], beams: Sequence[int] | None) -> list[list[int] | None]:
    """The items that belong together, or a sentence that says why it can't be known."""
    n = sights[0].lead[0] if sights[0].n_batch == 1 else 0
    moved = next((x.parents for x in sights if x.parents is not None and x.parents.numel() != n), None)
    if moved is not None and beams is None:
        raise ValueError(
            f"a beam search moved {moved.numel()} items of a batch, got sights of {n}; stack whole sights, "
            "then pick an item, stack(sights)[0]"
        )
    if beams is None:
        return items_of(sights)
    own = list(beams)
    if not own or not all(map(is_integer, own)) or own[0] < 0 or max(own) >= n:
        raise ValueError(f"beams must be the item of each call, each in 0..{n - 1}, got {own}")
    return items_of(sights, own)


def _select(sight: Sight, items: list[int] | None) -> Sight:
    """These items of the batch; all if None."""
    if items is None:
        return sight
    statistics = {name: x[items] for name, x in sight.statistics.items()}
    kept = tuple(
        x._replace(inputs=x.inputs.select(items, list(range(x.inputs.shape[1]))), lse=x.lse[items])
        for x in sight.kept
    )
    tokens = tuple(sight.tokens[i] for i in items) if len(sight.tokens) == sight.lead[0] else sight.tokens
    lead = (len(items), *sight.lead[1:])
    return replace(sight, statistics=statistics, kept=kept, tokens=tokens, lead=lead)


def _place(sight: Sight, place: Place) -> Sight:
    """The same with its queries and keys where they stand in the sequence."""
    shifted = _shift(_first_queries(sight, place.n_queries), place.first_key)
    kept = tuple(piece._replace(first_query=place.first_query) for piece in shifted.kept)
    return replace(shifted, kept=kept)


def _first_queries(sight: Sight, n: int) -> Sight:
    """The first n queries of a step; what keys received is known where q and k are kept."""
    if n == sight.t:
        return sight
    statistics = {name: x[..., :n] for name, x in sight.statistics.items() if name in _OF_QUERIES}
    rows = {name: x[..., :n, :] for name, x in sight.statistics.items() if name in _OF_ROWS}
    received = {"received": sight.received_from((0, n)).detach()} if sight.kept else {}
    kept = tuple(_keep_rows(piece, n) for piece in sight.kept)
    return replace(sight, t=n, statistics=statistics | rows | received, kept=kept, backward=None)


def _keep_rows(piece: SavedInputs, n: int) -> SavedInputs:
    """The weights of the first n queries instead of q and k."""
    b, h, _, s = piece.inputs.shape
    tile = Tile(slice(0, b), slice(0, h), (0, n), (0, s))
    lse = piece.lse[..., :n]
    return piece._replace(
        inputs=PrecomputedWeights.of(tile_weights(piece.inputs.detached(), tile, lse)),
        lse=torch.zeros_like(lse),
    )


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
