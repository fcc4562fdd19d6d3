"""The first and the last of everything that is counted, and the sentences of those who ask for one more."""

from dataclasses import replace
from itertools import accumulate

import numpy as np
import pytest
import torch

import sightline as sl
from sightline.look import groups as groups_module
from sightline.look.calls import CallShape
from sightline.look.groups import is_integer, key_index, read_groups
from sightline.look.head_kinds import head_shares, kind_of
from sightline.look.heads import distance, head_table, mean_per_head, share, sharpest
from sightline.look.request import check_top, is_integer_pair, make_cells, parse_map_size
from sightline.look.steps import stack
from tests.look.look_oracle import near, randn

B, H, T, S, D = 2, 3, 5, 7, 4


def look(b=B, h=H, t=T, s=S, mask=None, **more):
    return sl.look(randn(b, h, t, D), randn(b, h, s, D, seed=1), randn(b, h, s, D, seed=2), mask, **more)


# Maps and tops


@pytest.mark.bad_input
def test_a_map_is_as_large_as_its_window():
    assert make_cells((2, 4), T, S, (3, 5), (3, 7)) == (2, 4, (3, 5), (3, 7))
    assert make_cells((1, 1), T, S, (4, 5), (6, 7)) == (1, 1, (4, 5), (6, 7))
    assert make_cells(5, T, S) == (5, 5, (0, 5), (0, 7))
    assert make_cells([5, 7], T, S).columns == 7
    for size, window in {(3, 4): ((3, 5), (3, 7)), (2, 5): ((3, 5), (3, 7)), (0, 1): (), (1, 0): ()}.items():
        with pytest.raises(
            ValueError, match=rf"got {size[0]} x {size[1]} cells for (2|5) queries and (4|7) keys"
        ):
            make_cells(size, T, S, *window)
    for queries in ((0, 6), (3, 3), (4, 2), (-1, 3), (1, 2, 3), (0.0, 3), "ab"):
        with pytest.raises(ValueError, match=r"queries must be a range .* within 0\.\.5, got "):
            make_cells(1, T, S, queries)
        with pytest.raises(ValueError, match=r"keys must be a range .* within 0\.\.5, got "):
            make_cells(1, S, T, None, queries)
        with pytest.raises(ValueError, match=r"queries must be a range .* within 0\.\.5, got "):
            look().check_span("queries", queries)
    assert look().check_span("keys", (0, 7)) == (0, 7)
    assert look().check_span("queries", None) == (0, 5)
    assert is_integer_pair((1, 2)) is True
    assert is_integer_pair((1, 2, 3)) is False
    assert parse_map_size(3) == (3, 3)
    with pytest.raises(ValueError, match=r"whole number or \(rows, columns\), got \(1, 2\.5\)"):
        parse_map_size((1, 2.5))


@pytest.mark.bad_input
def test_what_a_look_measures_is_cut_to_what_there_is():
    whole = sl.Look(map=(9, 3), top=9)
    assert whole.clip(5, 7) == sl.Look(map=(5, 3), top=7)
    assert whole.clip(11, 13) == sl.Look(map=(9, 3), top=9)
    assert whole.clip(0, 7) == sl.Look(top=7)
    assert whole.clip(5, 0) == sl.Look()
    assert sl.Look(top=2).clip(5, 7) == sl.Look(top=2)
    assert sl.Look(map=2).clip(5, 7) == sl.Look(map=(2, 2))
    plain = sl.Look()
    assert plain.clip(5, 7) is plain


@pytest.mark.bad_input
def test_no_more_weights_than_keys():
    check_top(1, S)
    check_top(S, S)
    for k in (0, 8, -1, 2.0, "3"):
        with pytest.raises(ValueError, match=rf"at most the number of keys S=7, got {k!r}"):
            check_top(k, S)
    for top in (0, -1, 2.5):
        with pytest.raises(ValueError, match=rf"top must be a whole number >= 1, got {top}"):
            sl.Look(top=top)
    assert sl.Look(top=1).top == 1
    for size in (0, (1, 0), (0, 1)):
        with pytest.raises(ValueError, match="a map must be at least 1 x 1, got "):
            sl.Look(map=size)
    assert sl.Look(map=1).map == 1


# Keys and groups


@pytest.mark.bad_input
def test_positions_of_keys_count_from_both_ends():
    assert key_index([0, 6, -7, -1], S, "columns") == [0, 6, 0, 6]
    assert key_index(3, S, "columns") == [3]
    assert key_index(torch.tensor([1, -2]), S, "columns") == [1, 5]
    assert key_index(np.array([2, 3]), S, "columns") == [2, 3]
    assert key_index(slice(-2, None), S, "columns") == [5, 6]
    assert key_index([], S, "columns") == []
    for wrong in (7, -8):
        with pytest.raises(
            ValueError, match=rf"columns must hold keys in 0\.\.6, got {wrong}; there are 7 keys"
        ):
            key_index([0, wrong], S, "columns")
        with pytest.raises(ValueError, match=rf"the key must be in 0\.\.6, got {wrong}; S is 7 here"):
            share(look(), wrong)
    near(share(look(), -7), share(look(), 0))
    near(share(look(), 6), look().received[..., 6] / T)
    with pytest.raises(TypeError, match="who must hold whole numbers, positions of queries, got True"):
        key_index([1, True], S, "who", "queries")
    with pytest.raises(TypeError, match=r"got a tensor of torch\.bool; marks become a list"):
        key_index(torch.zeros(7, dtype=torch.bool), S, "who")
    with pytest.raises(TypeError, match="must be a slice, a range or a list of keys, got 'ab'"):
        key_index("ab", S, "who")
    with pytest.raises(TypeError, match="who must be a slice of whole numbers"):
        key_index(slice(0, 3.5), S, "who")
    with pytest.raises(TypeError, match="who must be a slice of whole numbers"):
        key_index(slice(0, 3, 0), S, "who")
    assert is_integer(np.int64(3))
    assert not is_integer(True)
    assert not is_integer(3.0)


def test_no_group_and_groups_of_a_few_keys():
    sight = look()
    assert sight.mass([]).shape == (B, H, T, 0)
    assert look(s=0).mass([[], []]).tolist() == torch.zeros(B, H, T, 2).tolist()
    assert sight.columns([]).shape == (B, H, T, 0)
    weights = sight.map((T, S))
    ids = torch.tensor([[0, 1, 1, -1, 2, 0, 2], [2, 2, -1, 0, 0, 1, 1]])
    expected = torch.stack([(weights * (ids == g)[:, None, None]).sum(-1) for g in range(3)], -1)
    near(sight.mass(ids), expected)
    near(sight.mass(ids[:1]), torch.stack([(weights * (ids[0] == g)).sum(-1) for g in range(3)], -1))
    near(look(s=1).mass([[0], [0], []]), torch.tensor([1.0, 1.0, 0.0]).expand(B, H, T, 3))
    near(sight[0, 1].columns([6, 0]), weights[0, 1][:, [6, 0]])
    near(sight.mean_heads().columns(range(7)), weights.mean(1))
    with pytest.raises(ValueError, match="a row for each of the B=2 items of the batch, got 3"):
        sight.mass(ids[[0, 1, 0]])


@pytest.mark.bad_input
def test_ids_that_are_no_groups():
    with pytest.raises(ValueError, match="ids must be at least 0, or -1 for no group, got -2"):
        read_groups(torch.tensor([0, -2, 1]), 3)
    read_groups(torch.tensor([0, 65535, -1]), 3)
    with pytest.raises(ValueError, match="here below 65536, got 65536"):
        read_groups(torch.tensor([0, 65536, 1]), 3)
    for shape in ((4,), (2, 4), (1, 2, 3), ()):
        with pytest.raises(ValueError, match=r"ids must be \(S,\) or \(B, S\) with S=3, got "):
            read_groups(torch.zeros(shape, dtype=torch.long), 3)
    for dtype in (torch.float32, torch.bool, torch.complex64):
        with pytest.raises(TypeError, match=f"the group of each key, got {dtype}; marks become ids"):
            read_groups(torch.zeros(3, dtype=dtype), 3)
    with pytest.raises(ValueError, match=r"\bids\b"):
        read_groups(torch.zeros(3, dtype=torch.long, device="meta"), 3)
    with pytest.raises(ValueError, match="S=3 of them, got 2"):
        read_groups([0, 1], 3)
    with pytest.raises(TypeError, match=r"ids must be whole numbers, .* got an array of <U1"):
        read_groups(np.array(["a", "b", "c"]), 3)
    with pytest.raises(ValueError, match=r"of S=3 keys, got a sight of S=4; .*read_groups\(groups, 4\)"):
        read_groups(read_groups([[0]], 3), 4)
    with pytest.raises(TypeError, match=r"groups are a list of groups, .* got int"):
        read_groups(5, 3)


def test_groups_are_known_again():
    ids = torch.tensor([0, 1, 1, -1])
    known = read_groups(ids, 4)
    assert read_groups(ids.clone(), 4) is known
    assert read_groups(torch.tensor([0, 1, 1, 0]), 4) is not known
    assert read_groups(known, 4) is known
    lists = read_groups([slice(0, 2), [3]], 4)
    assert read_groups([slice(0, 2), [3]], 4) is lists
    assert read_groups([slice(0, 2), [2]], 4) is not lists
    assert read_groups({"a": slice(0, 2), "b": [3]}, 4).names == ("a", "b")
    with_tensor = [slice(0, 2), torch.tensor([3])]
    assert read_groups(with_tensor, 4) is not read_groups(with_tensor, 4)
    assert known.n_marks == 8
    assert known.n_items is None
    assert read_groups(torch.tensor([[0, 1], [1, 0]]), 2).n_items == 2
    assert repr(lists) == "KeyGroups: 2 groups of 4 keys; 1 in none, [2]"
    many = read_groups([slice(0, 3), range(9)], 17)
    assert repr(many) == (
        "KeyGroups: 2 groups of 17 keys; 3 in more than one, [0, 1, 2]; 8 in none, [9, 10, 11, 12, 13, ...]"
    )
    assert "[12, 13, 14, 15, 16]" in repr(read_groups([range(12)], 17))


def test_large_groups_are_not_kept(monkeypatch):
    monkeypatch.setattr(groups_module, "_LARGE", 8)
    at_most = torch.tensor([1, 0, 1, -1])
    assert read_groups(at_most, 4) is read_groups(at_most, 4)
    assert read_groups([[0], [3]], 4) is read_groups([[0], [3]], 4)
    monkeypatch.setattr(groups_module, "_LARGE", 7)
    assert read_groups(at_most + 0, 4) is not read_groups(at_most, 4)
    assert read_groups([[1], [3]], 4) is not read_groups([[1], [3]], 4)


# Heads


@pytest.mark.parametrize(
    ("kind", "least"),
    [
        ("retrieval", 0.5),
        ("induction", 0.3),
        ("previous token", 0.5),
        ("sink", 0.5),
        ("local", 0.8),
        ("vertical-slash", 0.8),
    ],
)
def test_the_least_share_that_gives_a_name(kind, least):
    assert kind_of({kind: least}) == kind
    assert not kind_of({kind: least - 1e-6})


def test_an_even_head_is_uniform_and_the_rarest_name_goes_first():
    assert kind_of({"sink": 1.0}, evenness=0.95) == "uniform"
    assert kind_of({"sink": 1.0}, evenness=0.9499) == "sink"
    assert kind_of({"local": 0.9, "sink": 0.9, "induction": 0.3}) == "induction"


def test_a_sight_without_heads_is_one_head():
    whole = look(t=S, mask=sl.masks.causal())
    for sight, items in (
        (whole[:, 1], slice(None)),
        (whole[1, 1], slice(1, 2)),
        (whole[:, 1:2], slice(None)),
    ):
        weights = whole.map((S, S))[items, 1]
        shares = head_shares(sight, is_cross=False, period=3, span=(1, 4))
        assert {x.shape for x in shares.values()} == {(1,)}
        near(shares["induction"], weights.diagonal(-2, -2, -1).mean(-1).mean(0, keepdim=True))
        near(shares["sink"], weights[..., 0].mean().reshape(1))
        near(mean_per_head(sight.peak.sum(-1), sight), weights.amax(-1).mean().reshape(1))
        (row,) = head_table({"a": sight})
        assert (row.head, row.layer) == (0, "a")
    averaged = head_table({"a": whole.mean_heads()})
    assert len(averaged) == 1
    assert averaged[0].shares == {}


@pytest.mark.bad_input
def test_periods_from_two_tokens_to_all():
    sight = look(t=S, mask=sl.masks.causal())
    for period in (2, S):
        head_shares(sight, is_cross=False, period=period)
    for period in (1, S + 1, 2.0):
        with pytest.raises(ValueError, match=f"at least 2 and at most S=7, got {period}"):
            head_shares(sight, is_cross=False, period=period)


def test_the_sharpest_heads_come_first():
    table = head_table({"a": look(t=S), "b": look(t=S, mask=sl.masks.causal())})
    assert [x.evenness for x in sharpest(table, 6)] == sorted(x.evenness for x in table)
    assert len(sharpest(table)) == 3
    assert sharpest(table, 0) == []
    unknown = [replace(x, evenness=None) for x in table]
    assert [x.entropy for x in sharpest(unknown, 4)] == sorted(x.entropy for x in table)[:4]


def piece_of(t, s, first_key=0, first_query=None):
    (block,) = look(t=t, s=s).kept
    return replace(block, key=first_key, position=first_query)


def kept(*pieces):
    """Steps, the queries of each after those of the step before."""
    starts = accumulate([x.inputs.shape[2] for x in pieces], initial=0)
    return tuple(replace(x, query=start) for x, start in zip(pieces, starts, strict=False))


def test_queries_that_stand_at_their_own_keys():
    sight = look(t=5, s=5)
    assert sight.is_aligned is True
    assert sight.forget().is_aligned is True
    assert look().is_aligned is False
    assert look().forget().is_aligned is False
    for pieces, aligned in (
        ([piece_of(3, 3), piece_of(2, 5)], True),
        ([piece_of(3, 3), piece_of(2, 3, first_key=2)], True),  # the cache slid by two
        ([piece_of(3, 3), piece_of(2, 3, first_key=1)], False),
        ([piece_of(3, 3), piece_of(2, 7, first_key=2)], False),
        ([piece_of(3, 3), piece_of(2, 7, first_key=2, first_query=7)], True),
        ([piece_of(3, 4), piece_of(2, 5)], False),
    ):
        assert sight.with_kept(kept(*pieces)).is_aligned is aligned


@pytest.mark.bad_input
def test_distances_of_a_cache_that_slid():
    t = 5
    sight = look(t=t, s=t).with_kept(kept(piece_of(3, 3), piece_of(2, 3, first_key=2)))
    weights = sight.map((t, t))
    apart = (torch.arange(t)[:, None] - torch.arange(t)).abs()
    near(distance(sight), (weights * apart).sum(-1))
    near(distance(sight, first=3), (weights * (torch.arange(t)[:, None] + 3 - torch.arange(t)).abs()).sum(-1))
    near(sight.offsets(t), torch.stack([weights.diagonal(-d, -2, -1).sum(-1) for d in range(t)], -1))
    near(
        sight.offsets(2, first=1),
        torch.stack([weights.diagonal(1 - d, -2, -1).sum(-1) for d in range(2)], -1),
    )
    near(distance(sight.mean_heads()), distance(sight).mean(1))
    known = sight.with_kept(kept(piece_of(3, 3, 0, 0), piece_of(2, 3, 1, 2)))  # queries that stand elsewhere
    known_weights = known.map((t, t))
    places = torch.tensor([0, 1, 2, 2, 3])
    near(distance(known), (known_weights * (places[:, None] - torch.arange(t)).abs()).sum(-1))
    for n in (0, t + 1, 2.0):
        with pytest.raises(ValueError, match=f"at most the number of keys S=5, got {n}"):
            sight.offsets(n)
    with pytest.raises(ValueError, match="T=5 queries and S=7 keys are not the same tokens"):
        look().offsets(2)
    with pytest.raises(ValueError, match="T=5 queries and S=7 keys are not the same tokens"):
        distance(look())
    with pytest.raises(TypeError, match=r"first must be a whole number.*got 1\.5"):
        sight.offsets(2, first=1.5)


def test_where_steps_stand_is_written_too(tmp_path):
    x = randn(1, 2, 7, D)
    parts = ((0, 3), (3, 5), (5, 7))
    steps = [sl.look(x[..., a:b, :], x[..., :b, :], x[..., :b, :], sl.masks.causal()) for a, b in parts]
    whole = stack(steps)
    assert [piece.position for piece in whole.kept] == [0, 3, 5]
    whole.save(tmp_path / "x", keep=True)
    loaded = sl.Sight.load(tmp_path / "x")
    assert [piece.position for piece in loaded.kept] == [0, 3, 5]
    assert [piece.key for piece in loaded.kept] == [0, 0, 0]
    near(distance(loaded), distance(whole))
    noted = replace(
        steps[0], skipped=(CallShape((1, 2), 3, 5, torch.tensor([0])),), after=CallShape((1, 2), 1, 6)
    )
    replace(noted, parents=torch.tensor([0]), source="flex", padding="unknown").save(tmp_path / "y")
    loaded = sl.Sight.load(tmp_path / "y")
    assert (loaded.skipped[0][:3], loaded.skipped[0].parents.tolist()) == (((1, 2), 3, 5), [0])
    assert loaded.after == CallShape((1, 2), 1, 6)
    assert (loaded.parents.tolist(), loaded.source, loaded.padding) == ([0], "flex", "unknown")
