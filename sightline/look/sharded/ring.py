"""The keys of every rank visit every other one: no rank ever holds more than two visiting blocks.

    rank r has its own keys first, then those of r - 1, r - 2, ...: P - 1 exchanges with the two neighbours

The next block is on its way while this one is looked at.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from sightline.attention.masks import Mask
from sightline.look.inputs import ScoreInputs
from sightline.look.sharded.axes import Axis, Shard, Spans, length_of
from sightline.look.sharded.blocks import Rectangle, rectangles_of
from sightline.look.sharded.collectives import add_up, all_gather, reduce_scatter
from sightline.look.source import Block, OutAxis

__all__ = ["Ring", "RingSource", "make_ring", "reduce_together", "ring_of"]


@dataclass(frozen=True, eq=False)
class Ring:
    """The ranks of a process group, and which tokens each of them has.

    Attributes:
        queries, keys: How the sequence is spread.
        group: The process group.
        rank: This one's number in it.
    """

    queries: Axis
    keys: Axis
    group: Any
    rank: int

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return len(self.keys.parts)

    @property
    def whole(self) -> tuple[int, int]:
        """T and S."""
        return self.queries.size, self.keys.size

    def shard(self, beside: Shard | None = None) -> Shard:
        """What this rank has, with what is known of items and heads."""
        return replace(beside or Shard(), queries=self.queries, keys=self.keys)

    def visits(self, *tensors: Tensor) -> Iterator[tuple[int, tuple[Tensor, ...]]]:
        """Every rank's keys, and what goes with them, in turn: pairs of the owner and its tensors.

        Args:
            tensors: This rank's, (B, H, S of this rank, ...); all of one visit arrive together.
        """
        here = tuple(x.contiguous() for x in tensors)
        for step in range(self.size):
            owner = (self.rank - step) % self.size
            if step == self.size - 1:
                yield owner, here
                return
            coming = length_of(self.keys.parts[(owner - 1) % self.size])
            there = tuple(x.new_empty(*x.shape[:2], coming, *x.shape[3:]) for x in here)
            waits = self._exchange(here, there)
            yield owner, here
            for wait in waits:
                wait.wait()
            here = there

    def rectangles(
        self, inputs: ScoreInputs, lse: Tensor | None, *more: Tensor
    ) -> Iterator[tuple[Rectangle, tuple[Tensor, ...]]]:
        """Yield every rectangle of this rank's queries and any keys, with what goes with those keys.

        Args:
            inputs: This rank's queries and keys, and the mask of the whole.
            lse: The log-sum-exp of whole rows; None if it is not known yet.
            more: Tensors that go round with the keys, such as values.
        """
        for owner, (keys, *others) in self.visits(inputs.k, *more):
            own, visitors = self.queries.own, self.keys.parts[owner]
            for one in rectangles_of(inputs, lse, keys, own, visitors, self.whole):
                yield one, tuple(x[:, :, one.columns] for x in others)

    def source(self, inputs: ScoreInputs, lse: Tensor | None) -> "RingSource":
        """Return the weights of this rank's queries as what measures are asked of."""
        return RingSource(self, inputs, None if lse is None else lse.double())

    def _exchange(self, here: tuple[Tensor, ...], there: tuple[Tensor, ...]) -> list[Any]:
        """Send to the next rank, receive from the one before; empty blocks are not sent."""
        after, before = ((self.rank + step) % self.size for step in (1, -1))
        to, source = (dist.get_global_rank(self.group, rank) for rank in (after, before))
        operations = [dist.P2POp(dist.isend, x, to, self.group) for x in here if x.numel()]
        operations += [dist.P2POp(dist.irecv, x, source, self.group) for x in there if x.numel()]
        return dist.batch_isend_irecv(operations) if operations else []


class RingSource(NamedTuple):
    """The weights of this rank's queries, one block for each visit of keys.

    Each pass sends the keys round once.

    Positions are those of the whole sequence. What comes out has a number for each of this rank's queries or
    keys, or is the same on all ranks.
    """

    ring: Ring
    inputs: ScoreInputs
    lse: Tensor | None

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(B, H, T, S) of the whole."""
        return *self.inputs.shape[:2], *self.ring.whole

    @property
    def like(self) -> Tensor:
        """A tensor with the device and the dtype of the statistics."""
        return self.inputs.q.new_empty(0, dtype=self.inputs.dtype)

    def blocks(self) -> Iterator[Block]:
        """Yield the blocks, while the next keys are on their way."""
        for one, _ in self.ring.rectangles(self.inputs, self.lse):
            yield one.block

    def reduce(self, parts: Sequence[tuple[OutAxis, str, Tensor]]) -> list[Tensor]:
        """Return what all ranks have found together. Collective."""
        (whole,) = reduce_together([(self.ring, parts)])
        return whole


def reduce_together(
    calls: Sequence[tuple[Ring, Sequence[tuple[OutAxis, str, Tensor]]]],
) -> list[list[Tensor]]:
    """Put together what the ranks of one group have found of several calls. Collective.

    However many calls and measures there are, that is one reduce-scatter for all sums over queries and one
    all-reduce for all that is the same on all ranks, and as many for maxima; each rank asks for as many.
    """
    whole: list[list[Tensor]] = [[] for _ in calls]
    by_kind: dict[tuple[OutAxis, str, torch.dtype], list[tuple[int, int, Ring, Tensor]]] = {}
    for i, (ring, parts) in enumerate(calls):
        for j, (axis, op, x) in enumerate(parts):
            if axis == "query":
                whole[i].append(x.index_select(2, ring.queries.positions(x.device)))
                continue
            if op not in {"sum", "max"}:
                raise ValueError(
                    "a measure that joins parts by its own rule has a number for each query, got the axis "
                    f"{axis!r}; over processes keys and maps are put together by op='sum' or op='max'"
                )
            whole[i].append(x)
            by_kind.setdefault((axis, op, x.dtype), []).append((i, j, ring, x))
    for (axis, op, _), entries in by_kind.items():
        rings, tensors = [ring for _, _, ring, _ in entries], [x for *_, x in entries]
        if axis == "key":
            pairs = [(x, ring.keys.parts) for x, ring in zip(tensors, rings, strict=True)]
            results = scatter(pairs, rings[0], largest=op == "max")
        else:
            results = add_up(tensors, rings[0].group, largest=op == "max")
        for (i, j, _, _), x in zip(entries, results, strict=True):
            whole[i][j] = x
    return whole


def scatter(
    parts: Sequence[tuple[Tensor, tuple[Spans, ...]]], ring: Ring, *, largest: bool = False
) -> list[Tensor]:
    """Add up what all ranks have of all keys, each rank getting its own: one reduce-scatter.

    Args:
        parts: This rank's share of each sum, (B, H, S, ...), and which keys each rank has.
        ring: The ranks.
        largest: Whether to take maxima instead of sums.
    """
    by_rank: list[Tensor] = []
    for rank in range(ring.size):
        chosen = [torch.cat([x[:, :, a:b] for a, b in spans[rank]], 2) for x, spans in parts]
        by_rank.append(torch.cat([x.flatten() for x in chosen]))
    own = reduce_scatter(by_rank, ring.group, largest=largest)
    results, first = [], 0
    for x, spans in parts:
        shape = (*x.shape[:2], length_of(spans[ring.rank]), *x.shape[3:])
        results.append(own[first : first + math.prod(shape)].view(shape).clone())
        first += math.prod(shape)
    return results


def ring_of(shard: Shard) -> Ring:
    """Return the ranks that have the rest of a sequence."""
    if shard.keys is None or shard.queries is None or shard.keys.group is None:
        raise ValueError(
            "a sight of a part of the sequence that was copied or sent has lost its process group; ask "
            "it before, or send what sight.gather() gives"
        )
    group = shard.keys.group
    return Ring(shard.queries, shard.keys, group, dist.get_rank(group))


def make_ring(group: Any, queries: tuple[Spans, ...], keys: tuple[Spans, ...]) -> Ring:
    """A ring over the ranks of a group, from what each of them has."""
    rank = dist.get_rank(group)

    def axis(parts: tuple[Spans, ...]) -> Axis:
        return Axis(parts[rank], sum(map(length_of, parts)), parts, group)

    return Ring(axis(queries), axis(keys), group, rank)


def exchange_lengths(t: int, s: int, group: Any, device: torch.device) -> list[tuple[int, int]]:
    """How many queries and keys each rank has: the one thing that shards can't say of each other."""
    everyone = all_gather(torch.tensor([t, s], device=device), group).tolist()
    return [(queries, keys) for queries, keys in everyone]


def check_mask(mask: Mask, t: int, s: int) -> None:
    """Refuse a mask whose tensors don't have this rank's rows and everybody's columns."""
    for x in (*mask.allowed, *mask.added):
        if x.size(-2) not in (1, t) or x.size(-1) not in (1, s):
            raise ValueError(
                "a mask of sharded attention has a row for each query of this rank, or one for all, and a "
                f"column for each key of all ranks, got {tuple(x.shape[-2:])} for T={t} here and S={s} in "
                "all; sl.masks.causal() and sl.masks.padding(lengths) need no tensor"
            )
