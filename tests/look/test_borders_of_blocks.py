"""Small sights side by side: what was seen as lines, differences, alignments, and blocks that end."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import sightline as sl
from sightline.look import threads
from sightline.look.dtw import warp
from sightline.look.heads import by_layer
from sightline.look.recording import Recording
from sightline.look.recording_text import by_reason, seen_lines, seen_table
from sightline.look.sharded.axes import Axis, Shard
from tests.look.look_oracle import near, randn

B, H, T, S, D = 2, 3, 5, 7, 4


def look(b=B, h=H, t=T, s=S, mask=None, **more):
    return sl.look(randn(b, h, t, D), randn(b, h, s, D, seed=1), randn(b, h, s, D, seed=2), mask, **more)


# What was seen


def seen_of(*names, calls=1, **more):
    seen = Recording("Model", {"a": "SelfAttention"})
    for name in names:
        for _ in range(calls):
            seen.add(name, replace(look(**more), name=name))
    seen.ran = True
    return seen


def test_the_first_and_the_last_module_that_was_seen():
    seen = seen_of("a", "b", "c")
    for place in (0, 1, 2, -1, -2, -3):
        assert seen[place] is seen.calls(["a", "b", "c"][place])[0]
    for place in (3, -4):
        with pytest.raises(ValueError, match=f"3 modules were seen, got the place {place}"):
            seen[place]
    assert seen[torch.tensor(1)] is seen["b"]
    with pytest.raises(TypeError, match=r"a pattern or a place, got 1\.0"):
        seen[torch.tensor(1.0)]
    assert seen[1:].names() == ["b", "c"]
    assert seen["[ab]"].names() == ["a", "b"]
    assert isinstance(seen_of("a", calls=2)["a"], list)
    assert list(by_layer(seen_of("a", calls=2))) == ["a call 0", "a call 1"]
    assert list(by_layer(seen)) == ["a", "b", "c"]


def test_what_was_seen_as_lines():
    seen = seen_of("a", "longer", "")
    lines = seen_lines(seen, "summary").splitlines()
    sight = seen["a"]
    facts = f"1 call, T=5 S=7, entropy {sight.entropy.mean():.3f}, peak {sight.peak.mean():.3f}"
    assert lines == [
        "Recording: summary",
        f"  a       {facts}",
        f"  longer  {facts}",
        f"  (the model itself)  {facts}",
    ]
    assert "2 calls, T=5" in seen_lines(seen_of("a", calls=2), "")
    sharded = replace(look(), shard=Shard(heads=Axis(((0, 3),), 6)))
    other = Recording("Model", {})
    other.add("a", sharded)
    assert f"T=5 S=7, this rank has {sharded.shard}, entropy" in seen_lines(other, "")
    seen.mark_unseen("d", "it was dark")
    assert seen_lines(seen, "").splitlines()[-1] == "  not seen: 1, d (it was dark)"
    assert seen_table(seen).endswith("</table><p>not seen: d (it was dark)</p>")
    assert "<tr><td>longer</td><td>1</td><td>5</td><td>7</td><td>kernel</td></tr>" in seen_table(seen)
    bare = Recording("Model", {})
    bare.add("a", look(measure=sl.Look(entropy=False, peak=False)))
    assert seen_lines(bare, "").endswith("a  1 call, T=5 S=7")
    unseen = {"a": "x", "b": "x", "c": "x", "": "y"}
    assert by_reason(unseen, {"a": "Own"}) == "a (Own), b, c (x); the model itself (y)"
    assert by_reason(unseen | {"d": "x"}, {}) == "a, b, c and 1 more (x); the model itself (y)"


# Differences


@pytest.mark.bad_input
def test_the_difference_of_what_both_have_measured():
    both, less = (
        look(measure=sl.Look(map=3, top=2)),
        look(mask=sl.masks.causal(), measure=sl.Look(peak=False, map=2)),
    )
    change = both - less
    assert sorted(change.statistics) == ["entropy", "lse", "received"]
    assert sorted((less - both).statistics) == ["entropy", "lse", "received"]
    near(change.statistics["entropy"], both.entropy - less.entropy)
    assert (change.t, change.s, change.lead, change.shape, change.n_batch) == (T, S, (B, H), (B, H), 1)
    assert (change.has_heads, change.averaged, change.name) == (True, False, "")
    named = replace(both, name="a") - less
    assert named.name == "a - a sight"
    assert (less - replace(both, name="a")).name == "a sight - a"
    assert (replace(both, name="a") - replace(less, name="a")).name == "a"
    near(change.rows([4, 0]), both.rows([4, 0]) - less.rows([4, 0]))
    near(change.rows(iter([4])), both.rows([4]) - less.rows([4]))
    near(
        change.map((2, 3), queries=(1, 4)),
        both.map((2, 3), queries=(1, 4)) - less.map((2, 3), queries=(1, 4)),
    )
    near(change[0, 1].received, both[0, 1].received - less[0, 1].received)
    assert change.mean_heads().averaged
    for other in (look(b=1), look(t=4), look(s=8), both.mean_heads()):
        with pytest.raises(ValueError, match="only sights of as many items, heads, queries and keys"):
            both - other
    with pytest.raises(TypeError):
        both - 1
    with pytest.raises(AttributeError, match=r"subtract the answers: a\.mass\(\.\.\.\) - b\.mass"):
        change.mass([[0]])
    with pytest.raises(AttributeError, match="has no attribute 'quince'"):
        change.quince  # noqa: B018


# Alignments of one query or one key


def test_alignments_of_very_little():
    one = sl.look(randn(1, 1, 1, D), randn(1, 1, S, D), randn(1, 1, S, D))
    assert sl.align(one).tolist() == [0]
    assert sl.align(one, method="peak", filter_width=1).tolist() == one.peak_at[0, 0].tolist()
    assert sl.align(look(1, 1, 5, 1)).tolist() == [0] * 5
    for t, s, what in ((0, 7, "queries"), (5, 0, "keys")):
        with pytest.raises(ValueError, match=rf"{what} must be a range .* within 0\.\.0, got \(0, 0\)"):
            sl.align(look(1, 1, t, s))
    rows, columns = warp(np.zeros((3, 4)))  # of moves that cost the same the one along a row is taken
    assert (rows.tolist(), columns.tolist()) == ([0, 1, 2, 2, 2, 2], [0, 0, 0, 1, 2, 3])
    near(
        sl.align(look(), [0, -1], filter_width=1).double(), sl.align(look(), [0, 2], filter_width=1).double()
    )
    for head in (3, -4):
        with pytest.raises(ValueError, match=rf"heads must be in 0\.\.2, got {head}; the sight has 3 heads"):
            sl.align(look(), [head])


# Blocks


class Attends(nn.Module):
    def forward(self, x):
        return sl.attention(x, x, x)


@pytest.mark.plain
def test_an_edit_is_entered_once_and_warns_where_it_ends():
    model, x = nn.Sequential(Attends()), randn(1, 2, 5, 4)
    edit = sl.edit(model, ablate="zero")
    with edit, pytest.raises(RuntimeError, match="this edit is entered already; make another one"), edit:
        pass
    with edit:  # and once more when it has ended
        assert not model(x).any()
    assert edit.changed == ["0"]
    with (
        pytest.warns(UserWarning, match="the edit changed nothing: layers= chose none") as told,
        sl.edit(model, ablate="zero", layers="other"),
    ):
        model(x)
    assert [record.filename for record in told] == [__file__]
    with (
        pytest.warns(UserWarning, match="no fused attention ran") as told,
        sl.edit(nn.Linear(4, 4), scale=2.0) as one,
    ):
        one._model(x.float())
    assert [record.filename for record in told] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with sl.edit(model, ablate="zero"):
            pass  # nothing ran
    watch = sl.watch(model)
    with watch, pytest.raises(RuntimeError, match="this watch is entered already; make another one"):
        watch.__enter__()


# Threads


def test_the_first_item_that_nobody_has_begun_is_taken_over():
    begun, free = threads.Future(), threads.Future()
    begun.set_running_or_notify_cancel()
    waiting = threads.deque([("a", begun), ("b", free), ("c", threads.Future())])
    done = []
    assert threads._take_one_over(waiting, lambda x: done.append(x) or x.upper()) is True
    assert (done, waiting[1][1].result()) == (["b"], "B")
    assert threads._take_one_over(threads.deque([("a", begun)]), done.append) is False
    assert done == ["b"]
