"""How keys are laid out so that the weights of a group add up without a second product.

The second pass works on tiles of 64 or 128 keys, and adds up pairs of neighbours for nothing: they lie in one
thread. So keys are put in another order, in which column c of every tile, two keys wide, is of one group:

    tile 0:  a a | a a | b b | c c | ...        tile 1:  a a | a a | b b | c c | ...

A large group gets several columns, so that all are used up after about as many tiles. Inside a group the keys
keep their order: under a causal mask the last tiles are the ones that early queries need not visit. Groups
that would leave too many places empty, or spoil that order, are laid out one after the other, as *sets*. Sets
that lie behind each other in the sequence make one *walk*: a program goes through it without a stop.

All of it is done on the host, on one number per key, and sent to the GPU in one piece: nothing waits for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sightline.shapes import Bool, Int

__all__ = ["NOWHERE", "TILE", "KeyLists", "MassPlan", "plan_lists", "plan_mass"]

Array = npt.NDArray[Any]

TILE = 64  # keys of a tile
NOWHERE = 1 << 30  # the position of a place that holds no key
_WASTE, _SLACK = 1.15, 1.0  # a set may cost this much more than its keys, and this many tiles
_OWN_TILES = 2  # a part of the sequence this large has tiles of its own
_ALIGN = 64  # numbers
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


class KeyLists(NamedTuple):
    """The keys of each group, one list after the other, on the host.

    Attributes:
        keys: Positions, by item of the batch, then by group, ascending.
        sizes: How many each group of each item has, (b, G).
    """

    keys: Array
    sizes: Array

    @classmethod
    def of_members(cls, members: Bool[Tensor, "... S G"]) -> "KeyLists":
        """The lists of marks, True where a key is in a group."""
        marks = members.cpu().numpy()
        marks = np.ascontiguousarray(np.swapaxes(marks if marks.ndim == 3 else marks[None], 1, 2))
        return cls(np.flatnonzero(marks) % max(1, marks.shape[2]), marks.sum(2))

    @classmethod
    def of_ids(cls, ids: Int[Tensor, "... S"], n_groups: int) -> "KeyLists":
        """The lists of ids, -1 for a key in no group."""
        rows = ids.cpu().numpy().reshape(-1, ids.size(-1))
        short = rows.astype(np.int16) if n_groups < 1 << 15 else rows  # these are sorted by counting
        order = np.argsort(short, axis=1, kind="stable")
        counts = np.stack([np.bincount(row + 1, minlength=n_groups + 1) for row in rows])
        keys = np.concatenate([row[n:] for row, n in zip(order, counts[:, 0], strict=True)])
        return cls(keys, counts[:, 1:])


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
    lists = KeyLists.of_members(members)
    return plan_lists(lists, members.size(-2), banded=banded, tile=tile, device=members.device)


def plan_lists(
    lists: KeyLists, s: int, *, banded: bool, tile: int = TILE, device: torch.device | str = "cpu"
) -> MassPlan:
    """The same from lists of keys.

    Args:
        lists: The keys of each group.
        s: How many keys there are.
        banded: Whether the mask ties queries to keys nearby, so that their order matters.
        tile: How many keys a tile has.
        device: Where the plan is needed.
    """
    walks = _walks(_describe(lists), s, tile, banded)
    table, walk_tiles, sets, owners = _table(walks, lists.sizes.shape[1], tile // 2)
    laid = _lay_out(lists, table, len(sets) - 1, tile)
    if (owners < 0).any():  # nobody asks what lies in a column without a group: a copy of the first
        free = (owners < 0)[sets[:-1]].repeat(2, 1)
        laid = np.where(free, laid[..., :1], laid)
    b = len(lists.sizes)
    parts = _send((laid.reshape(b, -1), laid.min(2), laid.max(2), walk_tiles, sets, owners), device)
    keys, lowest, highest, on_walks, on_sets, on_owners = parts
    return MassPlan(
        keys=keys,
        lowest=lowest,
        highest=highest,
        walks=on_walks,
        sets=on_sets,
        owners=on_owners,
        is_direct=all(n == 1 for walk in walks for each in walk for n in each.columns),
        has_empty=sum(len(each.groups) for walk in walks for each in walk) < lists.sizes.shape[1],
        tile=tile,
    )


def _describe(lists: KeyLists) -> list[_Group]:
    """The groups that hold a key; where items differ, the largest of each."""
    keys, sizes = lists
    if not len(keys):
        return []
    ends = sizes.cumsum().reshape(sizes.shape)
    none = sizes == 0
    first = np.where(none, NOWHERE, keys[(ends - sizes).clip(max=len(keys) - 1)]).min(0)
    last = np.where(none, -1, keys[(ends - 1).clip(0)]).max(0)
    listed = np.stack([sizes.max(0), first, last], 1).tolist()
    return [_Group(i, *x) for i, x in enumerate(listed) if x[0]]


def _lay_out(lists: KeyLists, table: Array, n_tiles: int, tile: int) -> Array:
    """The key in each place, (b, tiles, places)."""
    keys, sizes = lists
    b, n_groups = sizes.shape
    counts = sizes.ravel()
    group = np.tile(np.arange(n_groups), b).repeat(counts)
    rank = np.arange(len(keys)) - (counts.cumsum() - counts).repeat(counts)
    base, column, width = table[:, group]
    place = (base + rank // width) * tile + column + rank % width
    laid = np.full((b, n_tiles * tile), NOWHERE, dtype=np.int32)
    laid[np.arange(b).repeat(sizes.sum(1)), place] = keys
    return laid.reshape(b, n_tiles, tile)


def _send(arrays: Sequence[Array], device: torch.device | str) -> list[Tensor]:
    """Arrays on a device, by one copy that nobody waits for; each begins where wide loads can."""
    starts = np.cumsum([0, *(-(-x.size // _ALIGN) * _ALIGN for x in arrays)])
    whole = torch.empty(int(starts[-1]), dtype=torch.int32, pin_memory=torch.device(device).type == "cuda")
    for first, x in zip(starts, arrays, strict=False):
        whole.numpy()[first : first + x.size] = x.ravel()
    sent = whole.to(device, non_blocking=True)
    return [sent[int(a) : int(a) + x.size].view(x.shape) for a, x in zip(starts, arrays, strict=False)]


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
        if 2 * sum(-(-n // (2 * middle)) for n in sizes) <= tile:
            high = middle
        else:
            low = middle + 1
    return low


def _visible(groups: Sequence[_Group], s: int) -> float:
    """The share of the queries that has to visit a tile, with a causal mask: those behind its first key."""
    return sum(1 - min(x.first + p * (x.last - x.first) for x in groups) / s for p in _SAMPLES) / len(
        _SAMPLES
    )


def _table(walks: list[list[_Set]], n_groups: int, columns: int) -> tuple[Array, Array, Array, Array]:
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
    sets = np.append(np.arange(len(counts)).repeat(np.array(counts, dtype=int)), 0)
    rows = np.array(owners, dtype=np.int32).reshape(len(counts), columns)
    return np.array(table, dtype=int), np.array(tiles), sets, rows
