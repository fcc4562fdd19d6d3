"""The keys of every rank visit every other one: no rank ever holds more than two visiting blocks.

    rank r has its own keys first, then those of r - 1, r - 2, ...: P - 1 exchanges with the two neighbours

The next block is on its way while this one is looked at.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from sightline.attention.masks import Mask
from sightline.look.inputs import ScoreInputs
from sightline.look.sharded.axes import Axis, Shard, Spans, length_of
from sightline.look.sharded.blocks import Block, blocks_of
from sightline.look.sharded.collectives import all_gather

__all__ = ["Ring", "make_ring"]


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

    def blocks(self, inputs: ScoreInputs, *beside: Tensor) -> Iterator[tuple[Block, tuple[Tensor, ...]]]:
        """Every rectangle of this rank's queries and any keys, with what goes with those keys.

        Args:
            inputs: This rank's queries and keys, and the mask of the whole.
            beside: More tensors that go round with the keys, such as values.
        """
        for owner, (keys, *others) in self.visits(inputs.k, *beside):
            for block in blocks_of(inputs, keys, self.queries.own, self.keys.parts[owner], self.whole):
                yield block, tuple(x[:, :, block.columns] for x in others)

    def _exchange(self, here: tuple[Tensor, ...], there: tuple[Tensor, ...]) -> list[Any]:
        """Send to the next rank, receive from the one before; empty blocks are not sent."""
        after, before = ((self.rank + step) % self.size for step in (1, -1))
        to, source = (dist.get_global_rank(self.group, rank) for rank in (after, before))
        operations = [dist.P2POp(dist.isend, x, to, self.group) for x in here if x.numel()]
        operations += [dist.P2POp(dist.irecv, x, source, self.group) for x in there if x.numel()]
        return dist.batch_isend_irecv(operations) if operations else []


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
