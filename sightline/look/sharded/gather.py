"""Parts put together: every rank gets all heads, queries and keys, by one collective per statistic.

However many layers were seen, the entries of one statistic of all of them travel together, padded to the
longest rank. Before them goes one small message with names and shapes, so that ranks which saw different
things say so instead of waiting for each other.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from sightline.look.calls import NO_PADDING, UNKNOWN_PADDING
from sightline.look.sharded.axes import Axis, Shard, consecutive, length_of
from sightline.look.sharded.collectives import all_gather
from sightline.look.sharded.placements import is_dtensor, local

if TYPE_CHECKING:
    from sightline.look.recording import Recording
    from sightline.look.sight import Sight

__all__ = ["gather_seen", "gather_sights"]

_BY_QUERY = {"lse": -1, "entropy": -1, "peak": -1, "peak_at": -1, "is_padding": -1}
_BY_QUERY |= {"top": -2, "top_at": -2, "output": -2}
_BY_KEY = {"received": -1}
_ORDER = ("heads", "queries", "items")  # keys go with the queries of the same group


def gather_sights(sights: "Sequence[Sight]", batch: Any = None) -> "list[Sight]":
    """The whole of each of these sights, on every rank. Collective.

    Args:
        sights: All ranks give theirs in the same order.
        batch: A data-parallel group, whose ranks had items of their own: those are put together too.
    """
    whole = [_check(sight) for sight in sights]
    for name in _ORDER:
        by_group: dict[int, list[int]] = {}
        for i, sight in enumerate(whole):
            axis = sight.shard.axes.get(name) if sight.shard is not None else None
            if axis is not None:
                by_group.setdefault(id(axis.group), []).append(i)
        for index in by_group.values():
            group = _axis(whole[index[0]], name).group
            for i, sight in zip(index, _gather(name, [whole[i] for i in index], group), strict=True):
                whole[i] = sight
    if batch is not None:
        whole = _gather("items", [_as_items(sight, batch) for sight in whole], batch)
    return whole


def gather_seen(seen: "Recording", batch: Any = None) -> "Recording":
    """The whole of what the ranks of a sharded model have seen, on each of them. Collective.

    Heads that tensor parallelism spread, and tokens that context parallelism did, are put together in their
    order; ``batch`` as in :func:`gather_sights`.
    """
    own = [(name, sight) for name, calls in seen.items() for sight in calls]
    whole = type(seen).of(seen.about())
    for (name, _), sight in zip(own, gather_sights([x for _, x in own], batch), strict=True):
        whole.add(name, sight)
    return whole


def _check(sight: "Sight") -> "Sight":
    shard = sight.shard
    if shard is not None and shard.note:
        raise ValueError(f"the sight of {sight.name or 'this attention'} can't be gathered: {shard.note}")
    if shard is not None and any(not axis.parts for axis in shard.axes.values()):
        raise ValueError(
            f"the sight of {sight.name or 'this attention'} is a part of what the rank had, or was copied "
            f"from another process, {shard}; gather before indexing, saving or sending"
        )
    if shard is not None and shard.heads is not None and sight.averaged:
        raise ValueError("a mean over the heads of one rank can't be gathered; gather before mean_heads()")
    return sight


def _as_items(sight: "Sight", group: Any) -> "Sight":
    """A sight whose items are one rank's part of a batch; how many the others have is not known yet."""
    if not sight.n_batch:
        raise ValueError(
            f"batch= puts items together, the sight of {sight.name or 'this attention'} has none, its "
            f"leading dimensions are {sight.lead}; look at q[None], k[None] and v[None]"
        )
    own = Axis(((0, sight.lead[0]),), sight.lead[0], ((),), group)
    return replace(sight, shard=replace(sight.shard or Shard(), items=own))


class _Part(NamedTuple):
    """What the other ranks are told of one rank's sight."""

    name: str
    lead: tuple[int, ...]
    lengths: tuple[int, int]  # T and S, of the whole sequence
    is_masked: bool
    padding: str
    shapes: dict[str, tuple[int, ...]]

    @classmethod
    def of(cls, sight: "Sight") -> "_Part":
        shapes = {key: tuple(_local(x).shape) for key, x in sight.statistics.items()}
        return cls(sight.name, sight.lead, (sight.t, sight.s), sight.is_masked, sight.padding, shapes)


def _gather(name: str, sights: "list[Sight]", group: Any) -> "list[Sight]":
    """Put one dimension of several sights together; all are spread over one group."""
    axes = [_axis(sight, name) for sight in sights]
    everyone: list[list[_Part]] = [[]] * dist.get_world_size(group)
    dist.all_gather_object(everyone, [_Part.of(sight) for sight in sights], group=group)
    _compare(everyone, dist.get_rank(group))
    sights = _with_padding(sights, everyone)
    if name == "items":
        axes = [
            _known_items(axis, [one[i].lead[0] for one in everyone], group) for i, axis in enumerate(axes)
        ]
    gathered: list[dict[str, Tensor]] = [dict(sight.statistics) for sight in sights]
    for key in dict.fromkeys(key for sight in sights for key in sight.statistics):
        index = [
            i
            for i, sight in enumerate(sights)
            if key in sight.statistics and _dim(key, name, sight) is not None
        ]
        if not index:
            continue
        own = [_local(sights[i].statistics[key]) for i in index]
        shapes = [[one[i].shapes[key] for i in index] for one in everyone]
        parts = _all_gather(own, shapes, group)
        for place, i in enumerate(index):
            axis = axes[i] if key not in _BY_KEY or name != "queries" else _axis(sights[i], "keys")
            dim = _dim(key, name, sights[i])
            assert dim is not None  # noqa: S101
            gathered[i][key] = _put_in_order([part[place] for part in parts], axis, dim)
    return [
        _whole(sight, name, axis, statistics, parts)
        for sight, axis, statistics, *parts in zip(sights, axes, gathered, *everyone, strict=True)
    ]


def _with_padding(sights: "list[Sight]", everyone: list[list[_Part]]) -> "list[Sight]":
    """The sights with ``is_padding`` wherever one rank was told what is padding, on all ranks alike."""
    told = [any("is_padding" in one[i].shapes for one in everyone) for i in range(len(sights))]
    for rank in everyone:
        for i in (i for i, is_told in enumerate(told) if is_told):
            shapes = rank[i].shapes
            shapes.setdefault("is_padding", next(shapes[key] for key in _BY_QUERY if key in shapes))
    return [
        replace(x, statistics=x.statistics | {"is_padding": x.is_padding}) if is_told else x
        for x, is_told in zip(sights, told, strict=True)
    ]


def _compare(everyone: list[list[_Part]], rank: int) -> None:
    """Refuse, on all ranks alike, to put together what is not of the same modules, or not as long."""
    names = [[one.name for one in about] for about in everyone]
    statistics = [[sorted(one.shapes.keys() - {"is_padding"}) for one in about] for about in everyone]
    for other in range(len(everyone)):
        if names[other] != names[0] or statistics[other] != statistics[0]:
            raise ValueError(
                f"all ranks must have seen the same calls to gather them, rank 0 saw {_show(names[0])} and "
                f"rank {other} {_show(names[other])} (this is rank {rank}); watch with the same layers= and "
                "measure= on all of them, and leave the stages of a pipeline apart"
            )
        for first, one in zip(everyone[0], everyone[other], strict=True):
            if one.lengths != first.lengths:
                raise ValueError(
                    "all ranks must have sequences of the same length to gather them, "
                    f"{one.name or 'attention'} had T, S = {first.lengths} on rank 0 and {one.lengths} on "
                    f"rank {other}; pad the batches of all ranks to one length"
                )


def _show(names: list[str]) -> str:
    return f"{len(names)} calls ({', '.join(map(repr, names[:3]))}{', ...' if len(names) > 3 else ''})"


def _axis(sight: "Sight", name: str) -> Axis:
    assert sight.shard is not None  # noqa: S101
    return sight.shard.axes[name]


def _known_items(axis: Axis, lengths: list[int], group: Any) -> Axis:
    """Items that each rank had some of, in the order of the ranks, unless it is known better."""
    if any(length_of(part) for part in axis.parts):
        return axis
    parts = consecutive(lengths)
    return Axis(parts[dist.get_rank(group)], sum(lengths), parts, group)


def _dim(key: str, name: str, sight: "Sight") -> int | None:
    """Which dimension of a statistic is spread; None if it is whole on every rank."""
    if name == "items":
        return 0
    if name == "heads":
        return len(sight.lead) - 1
    return _BY_KEY.get(key, _BY_QUERY.get(key))


def _local(x: Tensor) -> Tensor:
    return local(x) if is_dtensor(x) else x.detach()


def _all_gather(own: list[Tensor], shapes: list[list[tuple[int, ...]]], group: Any) -> list[list[Tensor]]:
    """Several tensors of every rank, by one collective; shapes are those of each rank's."""
    sizes = [[math.prod(shape) for shape in rank] for rank in shapes]
    longest = max(map(sum, sizes))
    flat = torch.cat([x.flatten() for x in own])
    padded = torch.nn.functional.pad(flat, (0, longest - flat.numel()))
    everyone = all_gather(padded, group)
    return [
        [part.view(shape) for part, shape in zip(row[: sum(n)].split(n), rank, strict=True)]
        for row, n, rank in zip(everyone, sizes, shapes, strict=True)
    ]


def _put_in_order(parts: list[Tensor], axis: Axis, dim: int) -> Tensor:
    """The parts of all ranks in the order of the whole."""
    together = torch.cat(parts, dim=dim)
    order = axis.order().to(together.device)
    if bool((order.diff() == 1).all()):
        return together
    return together.index_select(dim, order.argsort())


def _whole(
    sight: "Sight", name: str, axis: Axis, statistics: dict[str, Tensor], parts: Sequence[_Part]
) -> "Sight":
    """The sight without that axis in its shard; parts are what all ranks say of theirs."""
    assert sight.shard is not None  # noqa: S101
    lead = list(sight.lead)
    if name in ("heads", "items"):
        lead[0 if name == "items" else -1] = axis.size
    gone: dict[str, Any] = {"queries": None, "keys": None} if name == "queries" else {name: None}
    shard = replace(sight.shard, **gone)
    tokens = () if name == "items" else sight.tokens
    paddings = {part.padding for part in parts}
    known = UNKNOWN_PADDING if UNKNOWN_PADDING in paddings else " and ".join(sorted(paddings - {NO_PADDING}))
    return replace(
        sight, lead=tuple(lead), statistics=statistics, kept=(), backward=None, tokens=tokens, padding=known,
        shard=shard if shard.axes else None, is_masked=any(part.is_masked for part in parts),
    )  # fmt: skip
