"""The steps of a decoding loop, one sight each, put together into one picture."""

import functools
import itertools
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from sightline.look.engine import tile_weights
from sightline.look.groups import is_integer
from sightline.look.inputs import PrecomputedWeights, Tile
from sightline.look.runs import Place, items_of, places_of
from sightline.look.sight import Sight
from sightline.look.source import Block

__all__ = ["stack"]


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
    names = set.intersection(*(set(x.statistics) for x in sights))
    if any("is_padding" in x.statistics for x in sights):
        statistics["is_padding"] = torch.cat([x.is_padding for x in sights], dim=-1)
        names.discard("is_padding")
    dim = len(sights[0].shape)
    for name in sorted(names):
        parts, axis = [x.statistics[name] for x in sights], sights[0].axis_of(name)
        if axis == "key":
            statistics[name] = functools.reduce(torch.add, [_widened(x, dim, s) for x in parts])
        elif axis == "query":
            if name in {"top", "top_at"}:
                widest = max(x.size(-1) for x in parts)
                parts = [pad_last(x, widest, -1.0 if name == "top_at" else 0.0) for x in parts]
            statistics[name] = torch.cat(parts, dim=dim)
    kept = _in_order(sights) if all(x.kept for x in sights) else ()
    padding = next((x.padding for x in sights if x.padding), "")
    whole = replace(sights[0], t=t, s=s, statistics=statistics, kept=kept, backward=None, padding=padding)
    moved = any(own is not None for own in items)
    return replace(whole, skipped=(), after=None, parents=None, is_followed=moved)


def _in_order(sights: Sequence[Sight]) -> tuple[Block, ...]:
    """Return the blocks of steps, the queries of each after those of the step before."""
    starts = itertools.accumulate([x.t for x in sights], initial=0)
    return tuple(
        replace(block, query=start + block.query)
        for x, start in zip(sights, starts, strict=False)
        for block in x.kept
    )


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
    kept = tuple(x.select(items, slice(None)) for x in sight.kept)
    tokens = tuple(sight.tokens[i] for i in items) if len(sight.tokens) == sight.lead[0] else sight.tokens
    lead = (len(items), *sight.lead[1:])
    return replace(sight, statistics=statistics, kept=kept, tokens=tokens, lead=lead)


def _place(sight: Sight, place: Place) -> Sight:
    """The same with its queries and keys where they stand in the sequence."""
    shifted = _shift(_first_queries(sight, place.n_queries), place.first_key)
    kept = tuple(replace(piece, position=place.first_query) for piece in shifted.kept)
    return replace(shifted, kept=kept)


def _first_queries(sight: Sight, n: int) -> Sight:
    """The first n queries of a step; what keys received is known where q and k are kept."""
    if n == sight.t:
        return sight
    dim = len(sight.shape)
    of_queries = {
        name: x.narrow(dim, 0, n) for name, x in sight.statistics.items() if sight.axis_of(name) == "query"
    }
    received = {"received": sight.received_from((0, n)).detach()} if sight.kept else {}
    kept = tuple(_keep_rows(piece, n) for piece in sight.kept)
    return replace(sight, t=n, statistics=of_queries | received, kept=kept, backward=None)


def _keep_rows(piece: Block, n: int) -> Block:
    """The weights of the first n queries instead of q and k."""
    b, h, _, s = piece.inputs.shape
    weights = tile_weights(piece, Tile(slice(0, b), slice(0, h), (0, n), (0, s)))
    rows = PrecomputedWeights.of(weights).with_versions()
    return replace(piece, inputs=rows, lse=weights.new_zeros(b, h, n, dtype=torch.float64))


def _shift(sight: Sight, n: int) -> Sight:
    """The same with n keys before the first, which got nothing."""
    if not n:
        return sight
    statistics = {name: x for name, x in sight.statistics.items() if sight.axis_of(name) != "all"}
    dim = len(sight.shape)
    for name, x in statistics.items():
        if sight.axis_of(name) == "key":
            before = x.new_zeros(*x.shape[:dim], n, *x.shape[dim + 1 :])
            statistics[name] = torch.cat([before, x], dim)
    for name in {"peak_at", "top_at"} & set(statistics):
        at = statistics[name]
        statistics[name] = torch.where(at >= 0, at + n, at)
    kept = tuple(replace(piece, key=piece.key + n) for piece in sight.kept)
    return replace(sight, s=sight.s + n, statistics=statistics, kept=kept)


def _widened(x: Tensor, dim: int, s: int) -> Tensor:
    """Add zeros for the keys that a step did not have."""
    rest = (0, 0) * (x.dim() - 1 - dim)
    return torch.nn.functional.pad(x, (*rest, 0, s - x.size(dim)))


def pad_last(x: Tensor, width: int, value: float) -> Tensor:
    """Widen the last dimension to ``width``."""
    return torch.nn.functional.pad(x, (0, width - x.size(-1)), value=value)
