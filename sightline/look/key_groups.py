"""Which keys belong to which group, read: what ``sight.mass`` works with."""

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from sightline.look.mass_plan import KeyLists, MassPlan, plan_lists
from sightline.shapes import Bool, Shaped

__all__ = ["KeyGroups"]


@dataclass(frozen=True, kw_only=True, eq=False)
class KeyGroups:
    """Which keys belong to which group. A key may be in several groups, or in none.

    Attributes:
        marks: On the host: ids (S,) or (B, S), -1 for a key in no group, or members (S, G) or (B, S, G).
        names: The groups' names; their numbers if they have none.
        device: Where they are needed.
    """

    marks: Shaped[Tensor, "..."]
    names: tuple[str, ...]
    device: torch.device
    _plans: dict[tuple[bool, int], MassPlan] = field(default_factory=dict, repr=False)
    _elsewhere: dict[torch.device, "KeyGroups"] = field(default_factory=dict, repr=False)

    @property
    def s(self) -> int:
        """How many keys there are."""
        return self.marks.size(-2 if self._is_members else -1)

    @property
    def n_items(self) -> int | None:
        """How many items of a batch have groups of their own; None where all have the same."""
        return self.marks.size(0) if self.marks.dim() == (3 if self._is_members else 2) else None

    @property
    def n_marks(self) -> int:
        """How many marks its members are."""
        return self.s * len(self.names) * (self.n_items or 1)

    @cached_property
    def members(self) -> Bool[Tensor, "... S G"]:
        """True where a key is in a group; (S, G), or (B, S, G) where items differ."""
        marks = self.marks.to(self.device)
        if self._is_members:
            return marks
        return marks.unsqueeze(-1) == torch.arange(len(self.names), device=self.device)

    def on(self, device: torch.device) -> "KeyGroups":
        """Return the same groups on another device."""
        if device == self.device:
            return self
        if device not in self._elsewhere:
            self._elsewhere[device] = replace(self, device=device, _plans={}, _elsewhere={})
        return self._elsewhere[device]

    def repeated(self, n: int) -> "KeyGroups":
        """Return the groups of n batches after one another."""
        if n == 1 or self.n_items in (None, 1):
            return self
        return replace(
            self, marks=self.marks.repeat(n, *(1,) * (self.marks.dim() - 1)), _plans={}, _elsewhere={}
        )

    def plan(self, *, banded: bool, tile: int) -> MassPlan:
        """How a kernel goes through the keys, made once; see :func:`plan_mass`."""
        if (banded, tile) not in self._plans:
            n = len(self.names)
            lists = KeyLists.of_members(self.marks) if self._is_members else KeyLists.of_ids(self.marks, n)
            plan = plan_lists(lists, self.s, banded=banded, tile=tile, device=self.device)
            self._plans[banded, tile] = plan
        return self._plans[banded, tile]

    def equals(self, other: "KeyGroups") -> bool:
        """Whether others are the same groups in the same place."""
        same = self.names == other.names and self.device == other.device
        same = same and self.marks.dtype == other.marks.dtype
        return same and np.array_equal(self.marks.numpy(), other.marks.numpy())

    @property
    def _is_members(self) -> bool:
        return self.marks.dtype == torch.bool

    @property
    def overlapping(self) -> list[int]:
        """The keys that are in more than one group: their weight counts in each of them."""
        return self._positions(self.members.sum(-1) > 1)

    @property
    def left_out(self) -> list[int]:
        """The keys that are in no group: a query's mass then sums to less than one."""
        return self._positions(~self.members.any(-1))

    def __repr__(self) -> str:
        """Say what a reader has to know before adding numbers up."""
        facts = [f"KeyGroups: {len(self.names)} groups of {self.s} keys"]
        if self.overlapping:
            facts.append(f"{len(self.overlapping)} in more than one, {_shorten(self.overlapping)}")
        if self.left_out:
            facts.append(f"{len(self.left_out)} in none, {_shorten(self.left_out)}")
        return "; ".join(facts)

    def _positions(self, chosen: Tensor) -> list[int]:
        chosen = chosen if chosen.dim() == 1 else chosen.any(0)
        positions: list[int] = chosen.nonzero()[:, 0].tolist()
        return positions


def _shorten(positions: list[int]) -> str:
    return str(positions) if len(positions) <= 5 else f"{str(positions[:5])[:-1]}, ...]"
