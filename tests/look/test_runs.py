"""Which calls are one run, and where they stand: told by their shapes alone."""

import pytest
import torch

import sightline as sl
from sightline.look import runs
from sightline.look.calls import CallShape
from sightline.look.runs import Place, are_steps, items_of, places_of, split_runs
from sightline.look.sight import Sight
from sightline.look.steps import stack
from sightline.watch.beams import BeamReorderTracker
from tests.look.look_oracle import near, randn

LEAD = (2, 3)


def call(t, s, *, lead=LEAD, name="self_attn", skipped=(), after=None, parents=None, room=None):
    """A sight of T queries and S keys; ``room``: from which key on nothing was received."""
    received = torch.ones(*lead, s)
    if room is not None:
        received[..., room:] = 0
    statistics = {"received": received, "lse": torch.zeros(*lead, t)}
    before = tuple(CallShape(lead, *x) for x in skipped)
    follows = CallShape(lead, *after) if after else None
    parents = None if parents is None else torch.tensor(parents)
    return Sight(t, s, lead, statistics, name=name, skipped=before, after=follows, parents=parents)


def calls(*sizes, **more):
    return [call(t, s, **more) for t, s in sizes]


# Which calls are one run


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([(3, 3), (1, 4), (1, 5)], [[0, 1, 2]]),
        ([(3, 3), (1, 4), (3, 3), (1, 4)], [[0, 1], [2, 3]]),
        ([(3, 3), (2, 5), (2, 7)], [[0, 1, 2]]),
        ([(3, 9), (1, 9), (3, 9), (1, 9)], [[0, 1], [2, 3]]),  # a static cache, begun again
        ([(3, 9), (1, 9), (1, 9)], [[0, 1, 2]]),
        ([(1, 9), (1, 9)], [[0, 1]]),
        ([(3, 9), (2, 9)], [[0, 1]]),
        ([(1, 9), (3, 8)], [[0, 1]]),
        ([(3, 3), (3, 3), (1, 4), (1, 4), (1, 5), (1, 5)], [[0, 2, 4], [1, 3, 5]]),  # two in turns
        ([(3, 3), (5, 5), (1, 4), (1, 6)], [[0, 2], [1, 3]]),
        ([(3, 3), (3, 3), (1, 4)], [[0], [1, 2]]),  # too few to be in turns
        ([(3, 3)] * 3 + [(1, 4)] * 3 + [(1, 5)] * 3, [[0, 3, 6], [1, 4, 7], [2, 5, 8]]),  # three layers
        ([(3, 3)] * 3 + [(1, 4)] * 3 + [(3, 3)] * 3, [[0, 3], [1, 4], [2, 5], [6], [7], [8]]),
        ([(3, 3)] * 3 + [(1, 4)] * 2, [[0], [1, 3], [2, 4]]),  # a prompt, then two in turns
        ([(3, 3), (3, 3), (1, 4), (1, 4), (3, 3), (1, 4)], [[0, 2], [1, 3], [4, 5]]),
        ([(5, 7)], [[0]]),
        ([], []),
    ],
)
def test_where_a_run_begins(sizes, expected):
    assert split_runs(calls(*sizes)) == expected


def test_another_batch_is_another_run():
    assert split_runs([call(3, 3), call(1, 4), call(1, 5, lead=(1, 3))]) == [[0, 1], [2]]
    turns = [call(3, 3), call(3, 3), call(1, 4), call(1, 4, lead=(1, 3)), call(1, 5, lead=(1, 3))]
    assert split_runs(turns) == [[0], [1, 2], [3, 4]]


def test_calls_that_were_not_measured_count():
    steps = [call(3, 3), call(1, 5, skipped=[(1, 4)]), call(1, 7, skipped=[(1, 6)])]
    assert split_runs(steps) == [[0, 1, 2]]
    assert are_steps(steps) is True
    assert places_of(steps) == [Place(0, 0, 3), Place(4, 0, 1), Place(6, 0, 1)]
    anew = [call(3, 3), call(1, 4, skipped=[(1, 4), (3, 3)])]
    assert split_runs(anew) == [[0], [1]]
    before = [call(1, 5, skipped=[(3, 3), (1, 4)]), call(1, 6)]
    assert places_of(before) == [Place(4, 0, 1), Place(5, 0, 1)]
    older = [call(1, 4, skipped=[(5, 5), (1, 6), (3, 3)]), call(1, 5)]  # another run was left out before
    assert places_of(older) == [Place(3, 0, 1), Place(4, 0, 1)]
    ended = [call(3, 3, skipped=[(5, 5), (1, 6)]), call(1, 4)]
    assert places_of(ended) == [Place(0, 0, 3), Place(3, 0, 1)]


# Whether calls are steps


@pytest.mark.parametrize(
    ("sizes", "are"),
    [
        ([(3, 3), (1, 4), (2, 6)], True),  # grows
        ([(3, 7), (1, 8)], True),  # goes on where four were there
        ([(3, 9), (1, 9), (1, 9)], True),  # static
        ([(3, 5), (1, 5), (1, 5)], True),
        ([(3, 3), (1, 4), (1, 4), (1, 4)], True),  # slides
        ([(3, 3), (2, 5), (2, 5), (2, 5)], True),
        ([(4, 4), (1, 5), (2, 6), (2, 6)], True),
        ([(3, 3), (1, 4), (2, 4), (1, 4)], True),  # the same window for one query or two
        ([(3, 3), (2, 4), (1, 3), (2, 4)], True),  # as many older keys
        ([(3, 3), (2, 9), (2, 9)], False),
        ([(3, 3), (1, 4), (1, 9)], False),
        ([(4, 3), (2, 3), (1, 7)], False),  # fewer keys than queries: another sequence's
        ([(3, 3)], True),
    ],
)
def test_steps_of_a_decoding_loop(sizes, are):
    assert are_steps(calls(*sizes)) is are


def test_what_took_tokens_back_are_steps():
    cropped = calls((5, 5), (4, 9), (4, 10), (4, 12))
    assert are_steps(cropped) is True
    assert places_of(cropped) == [Place(0, 0, 5), Place(5, 0, 1), Place(6, 0, 2), Place(8, 0, 4)]
    crossing = calls((5, 5), (4, 9), (4, 10), (4, 12), name="cross_attn")
    assert are_steps(crossing) is False
    one = [call(5, 5), call(4, 9), call(4, 10)]  # a single late call without its weights tells nothing
    assert are_steps(one) is True
    assert places_of(one)[2] == Place(9, 3, 4)
    by_the_next = [call(5, 5), call(4, 9), call(4, 10, after=(4, 12))]
    assert places_of(by_the_next) == [Place(0, 0, 5), Place(5, 0, 1), Place(6, 0, 2)]
    begun = [call(5, 5), call(4, 9, after=(4, 4))]  # what follows is another run
    assert places_of(begun) == [Place(0, 0, 5), Place(5, 0, 4)]


def test_where_steps_stand():
    assert places_of(calls((3, 3), (1, 4), (2, 6))) == [Place(0, 0, 3), Place(3, 0, 1), Place(4, 0, 2)]
    assert places_of(calls((3, 3), (1, 4), (1, 4), (1, 4))) == [
        Place(0, 0, 3),
        Place(3, 0, 1),
        Place(4, 1, 1),
        Place(5, 2, 1),
    ]
    assert places_of(calls((3, 9), (1, 9), name="cross_attn")) == [Place(None, 0, 3), Place(None, 0, 1)]
    assert places_of(calls((3, 7), (1, 8))) == [Place(4, 0, 3), Place(7, 0, 1)]  # keys that were there before
    static = [call(3, 9, room=3), call(1, 9, room=4)]
    assert places_of(static) == [Place(0, 0, 3), Place(3, 0, 1)]
    full = [call(3, 9, room=4), call(1, 9)]  # somebody looks beyond: another sequence's keys
    assert places_of(full) == [Place(None, 0, 3), Place(None, 0, 1)]


# Beams


def test_items_are_followed_back():
    steps = [call(3, 3), call(1, 4, parents=[1, 0]), call(1, 5), call(1, 6, parents=[0, 0])]
    assert items_of(steps) == [[1, 1], [0, 0], [0, 0], None]
    assert items_of(calls((3, 3), (1, 4))) == [None, None]
    skipped = [call(3, 3), call(1, 5, skipped=[(1, 4, torch.tensor([1, 1]))])]
    assert items_of(skipped) == [[1, 1], None]
    assert items_of(steps, [1, 0, 1, 1]) == [[1], [0], [1], [1]]
    assert items_of(steps, [1, 0, -1, 1]) == [[1], [0], [], []]
    assert items_of(steps, [0, 1, 1, -1]) == [[0], [1], [1], []]


@pytest.mark.bad_input
def test_what_can_not_be_stacked():
    steps = [call(3, 3), call(1, 4, parents=[1, 0, 1])]
    with pytest.raises(
        ValueError, match=r"moved 3 items of a batch, got sights of 2; .*stack\(sights\)\[0\]"
    ):
        stack(steps)
    for beams in ([], [-1, 0], [0, 2]):
        with pytest.raises(ValueError, match=r"the item of each call, each in 0\.\.1, got \["):
            stack(calls((3, 3), (1, 4)), beams)
    with pytest.raises(ValueError, match=r"got \(2, 3\) and \(1, 3\)"):
        stack([call(3, 3), call(1, 4, lead=(1, 3))])
    with pytest.raises(ValueError, match="nothing to stack, got no sights"):
        stack([])


INDEX, SELECT = torch.ops.aten.index.Tensor, torch.ops.aten.index_select.default


def test_selections_of_a_cache_are_its_order():
    def parents(func, *args, name="a", batch=2, t=1, s=6):
        reorders = BeamReorderTracker()
        assert reorders.parents(name, batch, 5, 5) is None
        reorders.note(func, args)
        return reorders.parents(name, batch, t, s)

    cache, order = torch.zeros(2, 3, 5, 4), torch.tensor([1, 1])
    assert parents(SELECT, cache, 0, order) is order
    assert parents(INDEX, cache, [order]) is order
    assert parents(SELECT, cache, 0, order.int()).tolist() == [1, 1]
    assert parents(SELECT, cache, 0, order, t=2, s=7) is order
    assert parents(SELECT, cache, 0, order, t=3, s=5) is order  # a static cache has room for all
    for func, *args in (
        (SELECT, cache, 1, order),
        (SELECT, cache[0], 0, order),
        (SELECT, cache.long(), 0, order),
        (SELECT, cache, 0, torch.tensor([1])),
        (INDEX, cache, [order, order]),
        (INDEX, cache, [None]),
        (INDEX, cache, [order[None]]),
        (INDEX, cache, [torch.tensor([True, False])]),
    ):
        assert parents(func, *args) is None
    assert parents(SELECT, cache, 0, order, s=9) is None
    assert parents(SELECT, cache, 0, order, batch=3) is None


def test_every_module_hears_of_an_order_once():
    reorders, cache = BeamReorderTracker(), torch.zeros(2, 3, 5, 4)
    first, second = torch.tensor([1, 1]), torch.tensor([0, 0])
    assert reorders.parents("a", 2, 5, 5) is None
    reorders.note(SELECT, (cache, 0, first))
    assert reorders.parents("a", 2, 1, 6) is first
    assert reorders.parents("a", 2, 1, 6) is None
    assert reorders.parents("new", 2, 1, 6) is None  # it had no call before
    reorders.note(SELECT, (cache, 0, first))
    reorders.note(SELECT, (torch.zeros(2, 3, 6, 4), 0, second))
    assert reorders.parents("a", 2, 1, 6) is second  # the latest of what may be meant
    assert reorders.parents("new", 2, 1, 6) is second


def test_a_single_late_call_tells_by_its_weights():
    """Three tokens were guessed, one of them is taken back: the last query still looks at the first key."""
    x = randn(2, 3, 9, 4)

    def look(a, b, first=0):
        return sl.look(x[..., a:b, :], x[..., first:b, :], x[..., first:b, :], sl.masks.causal())

    cropped = [look(0, 5), look(5, 8), look(6, 9)]
    assert [(one.t, one.s) for one in cropped] == [(5, 5), (3, 8), (3, 9)]
    assert runs._was_cropped(cropped, cropped) is True
    assert places_of(cropped) == [Place(0, 0, 5), Place(5, 0, 1), Place(6, 0, 3)]
    weights = stack(cropped).map((9, 9))
    near(weights, look(0, 9).map((9, 9)))
    without = [one.forget() for one in cropped]
    assert runs._was_cropped(without, without) is False
    window = sl.masks.window(2, 0)
    slid = [*cropped[:2], sl.look(x[..., 6:9, :], x, x, window)]
    assert runs._was_cropped(slid, slid) is False  # behind a window it has no first key
    one_query = [look(0, 5), look(5, 8), look(7, 8)]
    assert runs._was_cropped(one_query, one_query) is False


def test_what_looks_at_its_own_tokens():
    def is_own(*sizes, **more):
        sights = calls(*sizes, **more)
        return runs._is_self_attention(sights)

    assert is_own((3, 3), (1, 4)) is True
    assert is_own((4, 3)) is False
    assert is_own((3, 3), name="cross_attn") is False
    assert is_own((3, 9), room=3) is True
    assert is_own((3, 9), room=4) is False
    assert runs._is_self_attention([call(1, 9, skipped=[(3, 9)], room=4)]) is True
    assert runs._is_self_attention([call(1, 9, skipped=[(3, 9)], room=5)]) is False
    unknown = call(3, 9)
    del unknown.statistics["received"]
    assert runs._is_self_attention([unknown]) is False
    assert runs._was_cropped(calls((3, 3), (1, 4)), calls((3, 3), (1, 4))) is False
    assert runs._late(calls((3, 3), (1, 4), (1, 4))) == 2
    assert runs._late(calls((3, 3), (1, 4))) is None
    assert runs._has_grown(calls((3, 5), (1, 6))) is True
    assert runs._has_grown(calls((3, 5), (1, 5))) is False
    assert runs._restarts(None, call(1, 2)) is True
    assert runs._restarts(call(1, 9), call(2, 9)) is True
    assert runs._restarts(call(1, 9), call(1, 9)) is False
    assert runs._restarts(call(2, 9), call(2, 9)) is False
    assert runs._restarts(call(1, 9), call(2, 8)) is False
