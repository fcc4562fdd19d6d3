"""Which part of a dimension a rank has: heads under tensor parallelism, tokens under context parallelism."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from sightline.shapes import Int

__all__ = ["Axis", "Shard", "Spans", "chunked", "consecutive", "head_tail", "length_of"]

Spans = tuple[tuple[int, int], ...]  # ranges (first, past the last) in the order in which a rank has them


@dataclass(frozen=True, eq=False)
class Axis:
    """A dimension that is spread over the ranks of a process group.

    Attributes:
        own: What this rank has of it.
        size: How long the whole is.
        parts: What each rank of the group has; nothing where it is not known any more.
        group: The process group; None where it is not known any more.
    """

    own: Spans
    size: int
    parts: tuple[Spans, ...] = ()
    group: Any = None

    def positions(self, device: torch.device | str | None = None) -> Int[Tensor, " n"]:
        """Where in the whole each entry of this rank stands."""
        return _positions(self.own, device)

    def order(self) -> Int[Tensor, " size"]:
        """Where in the whole each entry stands, all ranks after one another."""
        return torch.cat([_positions(part, None) for part in self.parts])

    def select(self, index: list[int]) -> "Axis":
        """Some of this rank's entries; they can't be put together with those of others any more."""
        chosen = self.positions().tolist()
        return Axis(tuple((chosen[i], chosen[i] + 1) for i in index), self.size)

    def __getstate__(self) -> dict[str, Any]:
        """What is copied or sent: a process group can't be."""
        return self.__dict__ | {"parts": (), "group": None}

    def __str__(self) -> str:
        """Such as ``4-7 of 16``."""
        joined: list[list[int]] = []
        for first, last in self.own:
            if joined and joined[-1][1] == first:
                joined[-1][1] = last
            elif first < last:
                joined.append([first, last])
        spans = [f"{a}" if b == a + 1 else f"{a}-{b - 1}" for a, b in joined]
        return f"{', '.join(spans) or 'none'} of {self.size}"


@dataclass(frozen=True, eq=False)
class Shard:
    """What a rank has seen of an attention that is spread over several; None where it has all.

    Attributes:
        items, heads, queries, keys: Which of them.
        note: What this rank can't know, in a sentence; "" if nothing.
    """

    items: Axis | None = None
    heads: Axis | None = None
    queries: Axis | None = None
    keys: Axis | None = None
    note: str = field(default="")

    @property
    def axes(self) -> dict[str, Axis]:
        """The dimensions that are spread, by name."""
        named = {"items": self.items, "heads": self.heads, "queries": self.queries, "keys": self.keys}
        return {name: axis for name, axis in named.items() if axis is not None}

    def select(self, items: list[int], heads: list[int]) -> "Shard":
        """The same of some of this rank's items and heads."""
        return Shard(
            None if self.items is None else self.items.select(items),
            None if self.heads is None else self.heads.select(heads),
            self.queries,
            self.keys,
            self.note,
        )

    def __str__(self) -> str:
        """Such as ``heads 4-7 of 16``."""
        return ", ".join(
            [*(f"{name} {axis}" for name, axis in self.axes.items()), *filter(None, [self.note])]
        )


def length_of(spans: Spans) -> int:
    """How many entries there are."""
    return sum(last - first for first, last in spans)


def consecutive(lengths: list[int]) -> tuple[Spans, ...]:
    """Ranks that have so many entries each, one after the other."""
    parts, first = [], 0
    for n in lengths:
        parts.append(((first, first + n),))
        first += n
    return tuple(parts)


def chunked(size: int, ranks: int) -> tuple[Spans, ...]:
    """Ranks that share a dimension as DTensor's ``Shard`` does: chunks of one length, the last shorter."""
    step = -(-size // ranks)
    ends = [min(i * step, size) for i in range(ranks + 1)]
    return tuple(((ends[i], ends[i + 1]),) for i in range(ranks))


def head_tail(size: int, ranks: int) -> tuple[Spans, ...]:
    """Ranks that share a causal sequence as torch's load balancer does: one chunk from each end."""
    step, n = size // (2 * ranks), 2 * ranks
    chunks = [(i * step, (i + 1) * step) for i in range(n)]
    return tuple((chunks[i], chunks[n - 1 - i]) for i in range(ranks))


def _positions(spans: Spans, device: torch.device | str | None) -> Tensor:
    ranges = [torch.arange(first, last, device=device) for first, last in spans]
    return torch.cat(ranges) if ranges else torch.arange(0, device=device)
