"""Keys laid out for a kernel: every key of every group stands in a column of its group, once, in order."""

import itertools

import numpy as np
import pytest
import torch

from sightline.look import mass_plan
from sightline.look.groups import read_groups
from sightline.look.mass_plan import NOWHERE, TILE, KeyLists, plan_lists, plan_mass


def some_members(s, n, *, density=0.3, b=None, seed=0):
    shape = (s, n) if b is None else (b, s, n)
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < density


def is_laid_out(plan, members):
    """Whether a plan says where every key of every group is, and says the truth about its tiles."""
    members = members if members.dim() == 3 else members[None]
    b, _, n = members.shape
    tiles = plan.keys.view(b, -1, plan.tile)
    n_tiles = tiles.size(1)
    assert plan.sets.shape == (n_tiles + 1,)
    assert plan.owners.size(1) == plan.tile // 2
    assert plan.walks[0] == 0
    assert plan.walks[-1] == n_tiles
    assert plan.n_walks == len(plan.walks) - 1
    assert torch.equal(plan.lowest, tiles.min(2).values)
    assert torch.equal(plan.highest, tiles.max(2).values)
    owner = plan.owners[plan.sets[:-1].long()].repeat_interleave(2, 1)  # (tiles, places)
    for item in range(b):
        for group in range(n):
            places = tiles[item][owner == group]
            own = places[places != NOWHERE].tolist()
            assert sorted(own) == members[item, :, group].nonzero().flatten().tolist()
            assert own == sorted(own)  # tile after tile in the order of the sequence
    columns = [x for row in plan.owners.tolist() for x in row if x >= 0]
    assert plan.is_direct is (len(columns) == len(set(columns)))
    assert plan.has_empty is bool((~members.any(1)).all(0).any())
    firsts = plan.sets[:-1].diff(prepend=torch.tensor([-1])) != 0
    for low in plan.lowest[0].tensor_split(firsts.nonzero().flatten().tolist()):
        assert bool((low.diff() >= 0).all())


@pytest.mark.parametrize("banded", [False, True])
@pytest.mark.parametrize("tile", [8, 64])
def test_every_key_of_every_group_has_its_place(banded, tile):
    for (s, n), density in itertools.product(((1, 3), (2, 1), (97, 5), (211, 37), (13, 71)), (0.0, 0.1, 0.9)):
        members = some_members(s, n, density=density, seed=s)
        is_laid_out(plan_mass(members, banded=banded, tile=tile), members)
        each = some_members(s, n, density=density, b=3, seed=n)
        is_laid_out(plan_mass(each, banded=banded, tile=tile), each)


@pytest.mark.parametrize("banded", [False, True])
def test_groups_of_one_size_are_cut_where_columns_are_full(banded):
    members = torch.eye(97, dtype=torch.bool)
    plan = plan_mass(members, banded=banded, tile=8)
    is_laid_out(plan, members)
    one_after_the_other = torch.zeros(997, 3, dtype=torch.bool)
    one_after_the_other[:400, 0] = one_after_the_other[400:401, 1] = one_after_the_other[401:, 2] = True
    plan = plan_mass(one_after_the_other, banded=banded, tile=8)
    is_laid_out(plan, one_after_the_other)
    assert plan.keys.numel() <= 1.2 * 997


def test_a_column_without_a_group_holds_a_copy_of_the_first():
    members = torch.zeros(5, 1, dtype=torch.bool)
    members[2:4] = True
    plan = plan_mass(members, banded=False, tile=8)
    assert plan.keys.tolist() == [[2, 3, 2, 2, 2, 2, 2, 2]]
    assert plan.owners.tolist() == [[0, -1, -1, -1]]
    assert (plan.lowest.tolist(), plan.highest.tolist()) == ([[2]], [[3]])


def test_no_group_at_all_and_groups_without_keys():
    plan = plan_mass(torch.zeros(5, 0, dtype=torch.bool), banded=False)
    assert (plan.keys.shape, plan.has_empty, plan.n_walks, plan.tile) == ((1, 0), False, 0, TILE)
    assert plan_mass(torch.zeros(5, 3, dtype=torch.bool), banded=True).has_empty
    assert plan_lists(KeyLists.of_members(torch.ones(5, 1).bool()), 5, banded=False).tile == TILE == 64


@pytest.mark.parametrize("shape", [(1,), (7,), (3, 1), (3, 11)], ids=str)
def test_lists_of_ids_are_those_of_their_members(shape):
    for n in (1, 4, 1 << 15):
        ids = torch.randint(-1, min(n, 9), shape, generator=torch.Generator().manual_seed(n))
        members = ids.unsqueeze(-1) == torch.arange(n)
        by_ids, by_members = KeyLists.of_ids(ids, n), KeyLists.of_members(members)
        assert np.array_equal(by_ids.keys, by_members.keys)
        assert np.array_equal(by_ids.sizes, by_members.sizes)
        rows = members if members.dim() == 3 else members[None]
        expected = [
            s for row in rows for g in range(min(n, 9)) for s in row[:, g].nonzero().flatten().tolist()
        ]
        assert by_members.keys.tolist() == expected
        assert np.array_equal(by_members.sizes, rows.sum(1).numpy())


def test_ids_of_many_groups_are_sorted_as_they_are():
    ids = torch.tensor([40000, 3, 65537 % 50000, -1, 3])  # in 16 bits they would be others
    lists = KeyLists.of_ids(ids, 1 << 16)
    assert lists.keys.tolist() == [1, 4, 2, 0]
    assert lists.sizes[0].nonzero()[0].tolist() == [3, 15537, 40000]


def test_the_fewest_tiles_that_hold_some_groups():
    def holds(sizes, tile, n):
        return sum(-(-x // (2 * n)) for x in sizes) <= tile // 2

    generator = np.random.default_rng(0)
    for tile, n in itertools.product((2, 4, 8, 64), (1, 2, 3, 4)):
        if n > tile // 2:
            continue
        for _ in range(20):
            sizes = generator.integers(1, 60, n).tolist()
            found = mass_plan._count_tiles(sizes, tile)
            assert found == next(x for x in itertools.count(1) if holds(sizes, tile, x))


def test_parts_that_lie_behind_each_other_have_their_own_tiles():
    def parts(*groups):
        made = [mass_plan._Group(i, *group) for i, group in enumerate(groups)]
        return [[x.number for x in part] for part in mass_plan._parts(made, 8)]

    assert parts((16, 0, 15), (3, 16, 20)) == [[0], [1]]
    assert parts((15, 0, 15), (3, 16, 20)) == [[0, 1]]  # too small
    assert parts((16, 0, 16), (3, 16, 20)) == [[0, 1]]  # among each other
    assert parts((3, 30, 40), (16, 0, 15), (9, 16, 28), (8, 17, 29), (5, 41, 50)) == [[1], [2, 3], [0, 4]]
    assert parts((20, 0, 50), (4, 3, 9), (9, 40, 45), (1, 51, 51)) == [[0, 1, 2], [3]]
    assert mass_plan._parts([], 8) == []


def test_the_share_of_queries_that_visit():
    whole = mass_plan._Group(0, 100, 0, 99)
    late = mass_plan._Group(1, 10, 90, 99)
    assert mass_plan._visible([whole], 100) == pytest.approx(1 - 0.5 * 99 / 100)
    assert mass_plan._visible([late], 100) == pytest.approx(1 - (90 + 0.5 * 9) / 100)
    assert mass_plan._visible([whole, late], 100) == mass_plan._visible([whole], 100)


def test_a_plan_is_sent_in_one_piece():
    arrays = [
        np.arange(3),
        np.arange(5, 12).reshape(7, 1),
        np.zeros(0, dtype=int),
        np.arange(64),
        np.array([9]),
    ]
    sent = mass_plan._send(arrays, "cpu")
    assert [x.tolist() for x in sent] == [x.tolist() for x in arrays]
    assert {x.dtype for x in sent} == {torch.int32}
    starts = [x.storage_offset() for x in sent]
    assert starts == [0, 64, 128, 128, 192]


def test_a_plan_is_made_once():
    groups = read_groups([slice(0, 3), [2, 4]], 6)
    plan = groups.plan(banded=True, tile=8)
    assert groups.plan(banded=True, tile=8) is plan
    assert groups.plan(banded=False, tile=8) is not plan
    assert groups.plan(banded=True, tile=64).tile == 64
    is_laid_out(plan, groups.members)
    by_ids = read_groups(torch.tensor([[0, 2, -1], [1, 1, 0]]), 3)
    is_laid_out(by_ids.plan(banded=False, tile=8), by_ids.members)
