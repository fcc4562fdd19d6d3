"""How keys are laid out so that the weights of a group add up without a second product.

The second pass works on tiles of 64 keys, and adds up pairs of neighbours for nothing: they lie in one
thread. So keys are put in another order, in which column c of every tile, two keys wide, is of one group:

    tile 0:  a a | a a | b b | c c | ...        tile 1:  a a | a a | b b | c c | ...

A large group gets several columns, so that all are used up after about as many tiles. Inside a group the keys
keep their order: under a causal mask the last tiles are the ones that early queries need not visit. Groups
that would leave too many places empty, or spoil that order, are laid out one after the other, as *sets*.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from sightline.shapes import Bool, Int

__all__ = ["NOWHERE", "TILE", "MassPlan", "plan_mass"]

TILE = 64  # keys of a tile
NOWHERE = 1 << 30  # the position of a place that holds no key
_WASTE, _SLACK = 1.15, 1.0  # a set may cost this much more than its keys, and this many tiles
_SAMPLES = (0.125, 0.375, 0.625, 0.875)  # how far through its keys a group is looked at


@dataclass(frozen=True, kw_only=True, eq=False)
class MassPlan:
    """An order of keys.

    Attributes:
        keys: The position of the key in each place, ``NOWHERE`` in an empty one; one row, or one per item.
        lowest, highest: Of each tile, the least and the largest of them.
        tiles: The first tile of each set, and the end of the last.
        owners: The group of each column of each set, -1 where it has none.
        is_direct: Whether no group has two columns.
        has_empty: Whether some group holds no key.
        tile: How many keys a tile has; half as many columns.
    """

    keys: Int[Tensor, "b n"]
    lowest: Int[Tensor, "b tiles"]
    highest: Int[Tensor, "b tiles"]
    tiles: Int[Tensor, " sets1"]
    owners: Int[Tensor, "sets columns"]
    is_direct: bool
    has_empty: bool
    tile: int


class _Group(NamedTuple):
    number: int
    size: int
    first: int  # position of its first key, and of its last
    last: int


class _Set(NamedTuple):
    groups: list[_Group]
    columns: list[int]  # how many each group has
    n_tiles: int


def plan_mass(members: Bool[Tensor, "... S G"], *, banded: bool, tile: int = TILE) -> MassPlan:
    """Lay out the keys of some groups.

    Args:
        members: True where a key is in a group, (S, G), or (B, S, G) where items differ.
        banded: Whether the mask ties queries to keys nearby, so that their order matters.
        tile: How many keys a tile has.

    Example:
        >>> plan = plan_mass(torch.tensor([[1, 0], [0, 1], [0, 1]]).bool(), banded=True)
        >>> plan.owners[0, :3], plan.keys[0, :4] == NOWHERE
        (tensor([ 0,  1, -1], dtype=torch.int32), tensor([False,  True, False, False]))
    """
    device = members.device
    members = members if members.dim() == 3 else members[None]
    b, s, n_groups = members.shape
    item, group, key = members.transpose(1, 2).nonzero().unbind(1)  # by item, then group, then position
    sizes = torch.bincount(item * n_groups + group, minlength=b * n_groups)
    rank = torch.arange(len(key), device=device) - (sizes.cumsum(0) - sizes)[item * n_groups + group]
    sets = _sets(_describe(members, sizes.view(b, n_groups)), s, tile, banded)
    table, tiles, owners = _table(sets, n_groups, tile // 2)
    base, column, width = torch.tensor(table, device=device)[:, group]
    place = (base + rank // width) * tile + column + rank % width
    n_tiles = tiles[-1]
    keys = torch.full((b, n_tiles * tile), NOWHERE, device=device, dtype=torch.int32)
    keys[item, place] = key.int()
    owner = torch.tensor(owners, device=device, dtype=torch.int32).view(len(sets), tile // 2)
    counts = torch.tensor([each.n_tiles for each in sets], device=device, dtype=torch.long)
    used = (owner >= 0).repeat_interleave(2, 1).repeat_interleave(counts, 0, output_size=n_tiles)
    laid = keys.view(b, n_tiles, tile)
    return MassPlan(
        keys=keys,
        lowest=laid.amin(-1),
        highest=laid.masked_fill(~used, -1).amax(-1),
        tiles=torch.tensor(tiles, device=device, dtype=torch.int32),
        owners=owner,
        is_direct=all(n == 1 for each in sets for n in each.columns),
        has_empty=sum(len(each.groups) for each in sets) < n_groups,
        tile=tile,
    )


def _describe(members: Bool[Tensor, "b S G"], sizes: Int[Tensor, "b G"]) -> list[_Group]:
    """The groups that hold a key; where items differ, the largest of each."""
    s = members.size(1)
    any_of = members.any(0).byte()
    first = any_of.argmax(0)
    last = s - 1 - any_of.flip(0).argmax(0)
    listed = torch.stack([sizes.amax(0), first, last]).T.tolist()
    return [_Group(i, *x) for i, x in enumerate(listed) if x[0]]


def _sets(groups: list[_Group], s: int, tile: int, banded: bool) -> list[_Set]:
    """Cut a list of groups in halves until each part is laid out with little waste."""
    groups = sorted(groups, key=(lambda x: x.first) if banded else (lambda x: -x.size))
    done, left = [], [groups] if groups else []
    while left:
        part = left.pop()
        if len(part) <= tile // 2:
            n_tiles = _count_tiles([x.size for x in part], tile)
            cost = n_tiles * (_visible(part, s) if banded else 1.0)
            ideal = sum(x.size / tile * (_visible([x], s) if banded else 1.0) for x in part)
            if len(part) == 1 or cost <= _WASTE * ideal + _SLACK:
                done.append(_Set(part, [-(-x.size // (2 * n_tiles)) for x in part], n_tiles))
                continue
        left += [part[len(part) // 2 :], part[: len(part) // 2]]
    return done


def _count_tiles(sizes: Sequence[int], tile: int) -> int:
    """The fewest tiles that hold groups of these sizes, in columns of two keys a tile."""
    low, high = -(-sum(sizes) // tile), -(-max(sizes) // 2)
    while low < high:
        middle = (low + high) // 2
        if sum(-(-n // (2 * middle)) for n in sizes) <= tile // 2:
            high = middle
        else:
            low = middle + 1
    return low


def _visible(groups: Sequence[_Group], s: int) -> float:
    """The share of the queries that has to visit a tile, with a causal mask: those behind its first key."""
    return sum(1 - min(x.first + p * (x.last - x.first) for x in groups) / s for p in _SAMPLES) / len(
        _SAMPLES
    )


def _table(sets: list[_Set], n_groups: int, columns: int) -> tuple[list[list[int]], list[int], list[int]]:
    """For each group its first tile, first place and places a tile; the sets' tiles; the columns' owners."""
    base, column, width = [0] * n_groups, [0] * n_groups, [1] * n_groups
    tiles, owners = [0], []
    for each in sets:
        row: list[int] = []
        for group, n in zip(each.groups, each.columns, strict=True):
            at = group.number
            base[at], column[at], width[at] = tiles[-1], 2 * len(row), 2 * n
            row += [at] * n
        owners += row + [-1] * (columns - len(row))
        tiles.append(tiles[-1] + each.n_tiles)
    return [base, column, width], tiles, owners
