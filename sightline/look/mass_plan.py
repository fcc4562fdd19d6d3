"""How keys are laid out so that the weights of a group add up without a second product.

The second pass works on tiles of 64 or 128 keys, and adds up pairs of neighbours for nothing: they lie in one
thread. So keys are put in another order, in which column c of every tile, two keys wide, is of one group:

    tile 0:  a a | a a | b b | c c | ...        tile 1:  a a | a a | b b | c c | ...

A large group gets several columns, so that all are used up after about as many tiles. Inside a group the keys
keep their order: under a causal mask the last tiles are the ones that early queries need not visit. Groups
that would leave too many places empty, or spoil that order, are laid out one after the other, as *sets*. Sets
that lie behind each other in the sequence make one *walk*: a program goes through it without a stop.
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
_OWN_TILES = 2  # a part of the sequence this large has tiles of its own
_SAMPLES = (0.125, 0.375, 0.625, 0.875)  # how far through its keys a group is looked at


@dataclass(frozen=True, kw_only=True, eq=False)
class MassPlan:
    """An order of keys.

    Attributes:
        keys: The position of the key in each place, ``NOWHERE`` in an empty one; one row, or one per item.
        lowest, highest: Of each tile, the least and the largest of them; both ascend along a set, and lowest
            along a walk.
        walks: The first tile of each walk, and the end of the last.
        sets: The set of each tile, and of one tile beyond.
        owners: The group of each column of each set, -1 where it has none.
        is_direct: Whether no group has two columns.
        has_empty: Whether some group holds no key.
        tile: How many keys a tile has; half as many columns.
    """

    keys: Int[Tensor, "b n"]
    lowest: Int[Tensor, "b tiles"]
    highest: Int[Tensor, "b tiles"]
    walks: Int[Tensor, " walks1"]
    sets: Int[Tensor, " tiles1"]
    owners: Int[Tensor, "sets columns"]
    is_direct: bool
    has_empty: bool
    tile: int

    @property
    def n_walks(self) -> int:
        """How many walks there are; some have several sets where there are more of those."""
        return len(self.walks) - 1


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
    of_row, key = members.mT.reshape(b * n_groups, s).nonzero().unbind(1)  # by item, group, then position
    sizes = members.sum(1).view(-1)
    ends = sizes.cumsum(0)
    walks = _walks(_describe(key, sizes, ends, b), s, tile, banded)
    table, walk_tiles, sets, owners = _table(walks, n_groups, tile // 2)
    host = torch.cat([x.flatten() for x in (table, walk_tiles, sets, owners)])
    parts = host.to(device).split([x.numel() for x in (table, walk_tiles, sets, owners)])
    base, column, width = parts[0].view(3, n_groups)[:, of_row % n_groups if b > 1 else of_row]
    rank = torch.arange(len(key), device=device, dtype=torch.int32) - (ends - sizes)[of_row]
    place = (base + rank // width) * tile + column + rank % width
    n_tiles = len(sets) - 1
    keys = torch.full((b, n_tiles * tile), NOWHERE, device=device, dtype=torch.int32)
    keys[of_row // n_groups if b > 1 else 0, place] = key.int()
    laid = keys.view(b, n_tiles, tile)
    owner = parts[3].view(owners.shape)
    if bool((owners < 0).any()):  # nobody asks what lies in a column without a group: a copy of the first
        free = (owner < 0)[parts[2][:-1].long()].repeat_interleave(2, 1)
        laid.copy_(torch.where(free, laid[..., :1], laid))
    return MassPlan(
        keys=keys,
        lowest=laid.amin(-1),
        highest=laid.amax(-1),
        walks=parts[1],
        sets=parts[2],
        owners=owner,
        is_direct=all(n == 1 for walk in walks for each in walk for n in each.columns),
        has_empty=sum(len(each.groups) for walk in walks for each in walk) < n_groups,
        tile=tile,
    )


def _describe(
    key: Int[Tensor, " n"], sizes: Int[Tensor, " bG"], ends: Int[Tensor, " bG"], b: int
) -> list[_Group]:
    """The groups that hold a key; where items differ, the largest of each."""
    if len(key) == 0:
        return []
    most = len(key) - 1
    first = key[(ends - sizes).clamp_(max=most)].masked_fill_(sizes == 0, NOWHERE).view(b, -1).amin(0)
    last = key[(ends - 1).clamp_(min=0)].masked_fill_(sizes == 0, -1).view(b, -1).amax(0)
    listed = torch.stack([sizes.view(b, -1).amax(0), first, last]).tolist()
    return [_Group(i, *x) for i, x in enumerate(zip(*listed, strict=True)) if x[0]]


def _walks(groups: list[_Group], s: int, tile: int, banded: bool) -> list[list[_Set]]:
    """Sets in the order of their keys: the n-th walk has the n-th set of each part of the sequence."""
    walks: list[list[_Set]] = []
    for part in _parts(groups, tile):
        for i, each in enumerate(_sets(part, s, tile, banded)):
            if i == len(walks):
                walks.append([])
            walks[i].append(each)
    return walks


def _parts(groups: list[_Group], tile: int) -> list[list[_Group]]:
    """Groups that lie among each other, or are too small to have tiles of their own."""
    parts: list[list[_Group]] = []
    size, last = 0, -1
    for group in sorted(groups, key=lambda x: x.first):
        if not parts or (group.first > last and size >= _OWN_TILES * tile):
            parts.append([])
            size = 0
        parts[-1].append(group)
        size, last = size + group.size, max(last, group.last)
    return parts


def _sets(groups: list[_Group], s: int, tile: int, banded: bool) -> list[_Set]:
    """Cut a list of groups until each part is laid out with little waste."""
    groups = groups if banded else sorted(groups, key=lambda x: -x.size)
    done, left = [], [groups]
    while left:
        part = left.pop()
        if len(part) <= tile // 2:
            n_tiles = _count_tiles([x.size for x in part], tile)
            cost = n_tiles * (_visible(part, s) if banded else 1.0)
            ideal = sum(x.size / tile * (_visible([x], s) if banded else 1.0) for x in part)
            if len(part) == 1 or cost <= _WASTE * ideal + _SLACK:
                done.append(_Set(part, [-(-x.size // (2 * n_tiles)) for x in part], n_tiles))
                continue
        at = 1 << ((len(part) - 1).bit_length() - 1)  # that many groups of one size fill the columns
        left += [part[at:], part[:at]]
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


def _table(walks: list[list[_Set]], n_groups: int, columns: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Where each group lies (first tile, first place, places a tile), and what a plan says of its tiles."""
    table = [[0] * n_groups, [0] * n_groups, [1] * n_groups]
    tiles, owners, counts = [0], [], []
    first = 0
    for walk in walks:
        for each in walk:
            row: list[int] = []
            for group, n in zip(each.groups, each.columns, strict=True):
                for values, x in zip(table, (first, 2 * len(row), 2 * n), strict=True):
                    values[group.number] = x
                row += [group.number] * n
            owners.append(row + [-1] * (columns - len(row)))
            counts.append(each.n_tiles)
            first += each.n_tiles
        tiles.append(first)
    sets = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts, dtype=torch.long))
    sets = torch.cat([sets, sets.new_zeros(1)])
    rows = torch.tensor(owners, dtype=torch.int32).view(len(counts), columns)
    return torch.tensor(table, dtype=torch.int32), torch.tensor(tiles, dtype=torch.int32), sets.int(), rows
