"""``watch``: names, counts, what is measured and kept, and the limit."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import sightline as sl
from tests.look.look_oracle import matrix, near, picture, randn
from tests.watch.watch_oracle import B, E, H, Sdpa, T, run, same, transformers

# Names


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.late = nn.MultiheadAttention(E, H, batch_first=True)
        self.early = nn.MultiheadAttention(E, H, batch_first=True)
        self.alias = self.early

    def forward(self, x):
        x = self.early(x, x, x)[0]
        x = self.late(x, x, x)[0]
        x = self.alias(x, x, x)[0]
        q = x.unflatten(-1, (H, -1)).transpose(1, 2)
        return F.scaled_dot_product_attention(q, q, q).transpose(1, 2).flatten(2)


def test_names_in_the_order_of_the_calls_and_lists_of_calls():
    model, x = Twice(), randn(B, T, E, dtype=torch.float32)
    blind = run(model, x)
    with sl.watch(model) as seen:
        assert same(blind, run(model, x))
    assert seen.names() == ["early", "late", ""]
    assert list(seen) == seen.names()
    assert len(seen) == 3
    assert [x.name for x in seen["early"]] == ["early", "early"]
    assert isinstance(seen["late"], sl.Sight)
    assert isinstance(seen.calls("late"), list)
    assert isinstance(seen[""], sl.Sight)
    assert "late" in seen
    assert "alias" not in seen
    told = repr(seen)
    assert "3 attentions of Twice" in told
    assert "early" in told
    assert "2 calls, T=5 S=5" in told
    assert "(the model itself)" in told
    with pytest.raises(ValueError, match=r"no attention was seen in 'lat'.* did you mean 'late'"):
        seen["lat"]


@pytest.mark.parametrize("layers", ["*.1.*", lambda name: ".1." in name])
def test_only_some_layers(layers):
    model, inputs, _ = transformers(nn)["decoder"]
    with sl.watch(model, layers=layers) as seen:
        model(*inputs)
    assert seen.names() == ["layers.1.self_attn", "layers.1.multihead_attn"]
    assert seen.unseen() == {}  # the others were seen and not wanted
    assert "look like attention" not in repr(seen)


def test_no_layer_chosen_is_told_as_such():
    model, inputs, _ = transformers(nn)["encoder"]
    with sl.watch(model, layers="layer.*") as seen:
        model(*inputs)
    assert "layers= chose none" in repr(seen)
    assert "'layers.0.self_attn'" in repr(seen)
    assert "sdpa" not in repr(seen)
    with pytest.raises(ValueError, match="layers= chose none"):
        seen["layers.0.self_attn"]


def test_every_nth_call():
    model, x = nn.MultiheadAttention(E, H), torch.randn(T, B, E)
    with sl.watch(model, every=3, keep=True) as seen:
        for n in range(7):
            model(x * n, x, x)
    assert len(seen[""]) == 3
    near(seen[""][1].received, watch_once(model, x * 3, x).received)
    again = sl.watch(model, every=3)
    for _ in range(2):
        with again as seen:
            model(x, x, x)
        assert len(seen) == 1


def watch_once(model, query, key):
    with sl.watch(model) as seen:
        model(query, key, key)
    return seen[""]


def test_what_is_measured_and_kept():
    model, x = nn.MultiheadAttention(E, H), torch.randn(11, B, E)
    with sl.watch(model, measure=sl.Look(entropy=False, map=(3, 2), top=4)) as seen:
        model(x, x, x)
    assert set(seen[""].statistics) == {"lse", "received", "peak", "peak_at", "map", "top", "top_at"}
    assert seen[""].kept == ()
    with sl.watch(model, keep=True) as seen:
        model(x, x, x)
    assert seen[""].kept
    assert not seen[""].kept[0].inputs.q.requires_grad


@pytest.mark.parametrize(("t", "s"), [(1, 1), (1, 11), (3, 2), (2, 13), (13, 11)])
def test_a_map_and_a_top_larger_than_a_call_are_as_large_as_fits(t, s):
    model = Sdpa()
    q, k, v = (randn(B, H, n, 4, seed=n, dtype=torch.float32) for n in (t, s, s))
    blind = model(q, k, v)
    with sl.watch(model, measure=sl.Look(map=(5, 7), top=6)) as seen:
        assert torch.equal(model(q, k, v), blind)
    sight, size = seen[""], (min(t, 5), min(s, 7))
    weights, _ = matrix(q.double(), k.double())
    near(sight.map(size), picture(weights, *size), atol=1e-6)
    near(sight.top(min(s, 6))[0], weights.topk(min(s, 6), -1).values, atol=1e-6)
    assert f"a map of {size[0]} x {size[1]} and the top {min(s, 6)}" in repr(sight)


@pytest.mark.bad_input
def test_a_map_that_was_cut_says_its_size_when_more_is_read():
    model, x = nn.MultiheadAttention(E, H), torch.randn(T, B, E)
    with sl.watch(model, measure=sl.Look(map=64, top=9)) as seen:
        model(x, torch.cat([x, x[:2]]), torch.cat([x, x[:2]]))
    with pytest.raises(ValueError, match=r"got 64 x 64 cells for 5 queries and 7 keys; .*\(5, 7\)"):
        seen[""].map(64)
    with pytest.raises(ValueError, match=r"at most the number of keys S=7, got 9"):
        seen[""].top(9)


@pytest.mark.parametrize(("t", "s"), [(0, 3), (3, 0)])
def test_nothing_to_look_at_breaks_nothing(t, s):
    model = Sdpa()
    q, k, v = (torch.randn(B, H, n, 4) for n in (t, s, s))
    blind = model(q, k, v)
    with sl.watch(model, measure=sl.Look(map=64, top=9)) as seen:
        assert torch.equal(model(q, k, v), blind)
    assert seen.unseen() == {}


def test_steps_of_a_decoding_loop_with_a_map_and_a_top():
    model, x = nn.MultiheadAttention(E, H, batch_first=True), torch.randn(B, T, E)
    with sl.watch(model, measure=sl.Look(map=3, top=4)) as seen:
        for n in range(1, T + 1):
            model(x[:, n - 1 : n], x[:, :n], x[:, :n])
    sizes = [tuple(call.statistics["map"].shape[-2:]) for call in seen[""]]
    assert sizes == [(1, 1), (1, 2), (1, 3), (1, 3), (1, 3)]
    assert seen.stack("").top(4)[1][0, 0, 0].tolist() == [0, -1, -1, -1]


def test_the_limit_is_told_once():
    model, x = nn.MultiheadAttention(E, H), torch.randn(T, B, E)
    one = watch_once(model, x, x).nbytes
    with warnings.catch_warnings(record=True) as told, sl.watch(model, limit=one) as seen:
        warnings.simplefilter("always")
        for _ in range(5):
            model(x, x, x)
    assert [f"more than {one} bytes" in str(x.message) for x in told] == [True]
    assert "raise limit=" in str(told[0].message)
    assert len(seen[""]) == 2  # the one that passed it is there still
    assert seen.full
    assert seen.nbytes == 2 * one
