"""Which queries are padding, told by masks alone, and torch's whole layers as they are read."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import sightline as sl
from sightline.attention.masks import Mask
from sightline.look import adapters, listen, padding, waiting
from sightline.look.adapters import HEADS, KERNEL, adapter_of
from sightline.look.attention_call import UnreadableError, kernel_call, stored_call
from sightline.look.call_notes import NoteTaker
from sightline.look.measuring import CallMeasurer, WatchOptions
from sightline.look.padding import KNOWN, NONE, UNKNOWN, padding_of
from sightline.look.score_inputs import Tile
from sightline.look.seen import Seen
from sightline.look.steps import stack
from sightline.look.unseen_keys import UnseenKeys
from tests.look.look_oracle import near, randn
from tests.look.watch_oracle import Sdpa

B, H, T, D = 2, 3, 5, 4
REAL = torch.tensor([[True, True, True, False, False], [True] * 5])
PADDED = (~REAL).tolist()


def call(mask=None, *, t=T, s=T, crosses=None, **more):
    made = kernel_call(randn(B, H, t, D), randn(B, H, s, D), mask or Mask(), 1.0, None, **more)
    return replace(made, crosses=crosses)


def found(call, given=None, name="attn"):
    where, known = padding_of(call, name, given)
    return None if where is None else where.tolist(), known


OF_KEYS = Mask(allowed=(REAL[:, None, None],))
CAUSAL = Mask(allowed=(REAL[:, None, None] & torch.ones(T, T).tril().bool(),))
LENGTHS = Mask(lengths=(REAL.sum(1),))
ADDED = Mask(added=(torch.zeros(B, 1, T, T).masked_fill(~REAL[:, None, None], -1e9),))


@pytest.mark.parametrize(
    "mask", [CAUSAL, ADDED, LENGTHS & sl.masks.causal()], ids=["causal", "added", "lengths"]
)
def test_masks_of_a_sequence_that_looks_at_itself(mask):
    assert found(call(mask)) == (PADDED, KNOWN)
    assert found(call(mask, crosses=False)) == (PADDED, KNOWN)
    assert found(call(mask, crosses=True)) == (None, UNKNOWN)
    assert found(call(mask), name="cross_attn") == (None, UNKNOWN)
    assert found(call(mask, crosses=False), name="cross_attn") == (PADDED, KNOWN)


def test_a_mask_of_keys_alone_says_nothing_of_queries():
    assert found(call(OF_KEYS)) == (None, UNKNOWN)
    assert found(call(LENGTHS)) == (None, UNKNOWN)
    for mask in (OF_KEYS, LENGTHS):
        assert found(call(mask, crosses=False)) == (PADDED, KNOWN)
    assert found(call(OF_KEYS & sl.masks.causal())) == (PADDED, KNOWN)
    assert padding._is_of_keys_alone(OF_KEYS) is True
    assert padding._is_of_keys_alone(Mask()) is False
    assert padding._is_of_keys_alone(CAUSAL) is False
    assert padding._is_of_keys_alone(OF_KEYS & sl.masks.causal()) is False


def test_masks_that_show_no_padding():
    assert found(call()) == (None, NONE)
    assert found(call(sl.masks.causal())) == (None, NONE)
    assert found(call(crosses=True)) == (None, NONE)
    assert found(call(Mask(allowed=(torch.ones(B, 1, T, T).tril().bool(),)))) == (None, NONE)
    assert found(call(OF_KEYS, t=1)) == (None, NONE)
    longer = torch.ones(B, 1, T, 7, dtype=torch.bool)
    assert found(call(Mask(allowed=(longer,)), s=7)) == (None, UNKNOWN)
    cache = torch.zeros(B, 1, T, 7, dtype=torch.bool)
    cache[..., :T] = torch.ones(T, T).tril().bool()
    assert found(call(Mask(allowed=(cache,)), s=7)) == (None, NONE)
    left = torch.tensor([[False, True, True, True, True], [True] * 5])
    cache[..., :T] &= left[:, None, None]
    cache[0, 0, 0] = False
    assert found(call(Mask(allowed=(cache,)), s=7)) == ((~left).tolist(), KNOWN)
    assert found(call(Mask(allowed=(cache,)), s=7, crosses=True)) == (None, UNKNOWN)


@pytest.mark.plain
def test_what_was_said_counts_before_what_is_shown():
    said = ~torch.tensor([[True] * 5, [True, True, False, False, False]])
    assert found(call(), said) == (said.tolist(), KNOWN)
    assert found(call(CAUSAL), said) == (said.tolist(), KNOWN)
    assert found(call(CAUSAL), said[:, :4]) == (PADDED, KNOWN)
    assert found(call(CAUSAL), said[:1]) == (PADDED, KNOWN)
    # One sequence looks into another of its length: what was said is what its keys show.
    assert found(call(ADDED, crosses=True), ~REAL) == (None, UNKNOWN)
    assert found(call(ADDED, crosses=True), said) == (said.tolist(), KNOWN)
    assert found(call(crosses=True), said) == (said.tolist(), KNOWN)
    assert found(call(crosses=True), torch.zeros_like(said)) == (None, NONE)
    known = call(padding=~REAL[:, None])
    assert found(known, said) == (PADDED, KNOWN)


def test_weights_by_hand_show_what_their_scores_show():
    scores = torch.zeros(B, H, T, T).masked_fill(~REAL[:, None, None], -1e9)
    made = stored_call(scores.softmax(-1), scores.logsumexp(-1), H)
    assert found(made) == (None, NONE)
    shown = replace(made, unseen=UnseenKeys.of(scores))
    assert found(shown) == (PADDED, KNOWN)
    assert found(replace(shown, crosses=True)) == (None, UNKNOWN)
    nothing = replace(made, unseen=UnseenKeys(None, torch.tensor(False)))
    assert found(nothing) == (None, NONE)
    doubtful = replace(made, unseen=UnseenKeys(None, torch.tensor(True)))
    assert found(doubtful) == (None, UNKNOWN)


def test_a_function_that_says_who_looks_at_itself():
    def flex(own):
        made = call(modify=lambda x, *_: x)
        modify = replace(
            made.inputs.modify, looks_at_itself=lambda b, h, i: own[b][:, None].expand(-1, len(h), -1)
        )
        return replace(made, inputs=replace(made.inputs, modify=modify))

    assert found(flex(REAL)) == (PADDED, KNOWN)
    assert found(flex(torch.ones_like(REAL))) == (None, NONE)
    assert found(flex(torch.zeros_like(REAL))) == ([[False] * 5] * 2, KNOWN)
    assert found(replace(flex(REAL), crosses=True)) == (None, UNKNOWN)
    assert found(call(modify=lambda x, *_: x)) == (None, NONE)


# Torch's whole layers


def layer_arguments(**more):
    e = H * D
    given = {
        "src": randn(B, T, e),
        "query": randn(B, T, e),
        "num_heads": H,
        "num_head": H,
        "norm_first": False,
        "norm_weight_1": randn(e, seed=2),
        "norm_bias_1": randn(e, seed=3),
        "eps": 0.1,
        "qkv_weight": randn(3 * e, e, seed=4),
        "qkv_bias": randn(3 * e, seed=5),
    }
    return given | more


LAYER = adapter_of(torch.ops.aten._transformer_encoder_layer_fwd.default)
MHA = adapter_of(torch.ops.aten._native_multi_head_attention.default)


def projected(x, given):
    w, b = given["qkv_weight"].chunk(3), given["qkv_bias"].chunk(3)
    q, k = (F.linear(x, w[i], b[i]).view(B, T, H, D).transpose(1, 2) for i in range(2))
    return q @ k.mT * D**-0.5


def scores_of(call):
    return call.inputs.scores(Tile(slice(0, B), slice(0, H), (0, T), (0, T)))


def test_whole_layers_are_projected_once_more():
    given = layer_arguments()
    near(scores_of(LAYER(given, None)), projected(given["src"], given))
    near(scores_of(MHA(given, None)), projected(given["query"], given))
    first = layer_arguments(norm_first=True)
    normed = F.layer_norm(first["src"], (H * D,), first["norm_weight_1"], first["norm_bias_1"], 0.1)
    near(scores_of(LAYER(first, None)), projected(normed, first))


def test_masks_of_whole_layers():
    forbidden = ~REAL
    for mask in (forbidden, forbidden.float()):
        of_keys = MHA(layer_arguments(mask=mask, mask_type=1), None)
        assert torch.equal(scores_of(of_keys) == -torch.inf, forbidden[:, None, None].expand(B, H, T, T))
    of_pairs = torch.ones(T, T).triu(1).bool()
    for read in (LAYER, MHA):
        one = read(layer_arguments(mask=of_pairs, mask_type=0), None)
        assert torch.equal(scores_of(one) == -torch.inf, of_pairs.expand(B, H, T, T))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_inputs_are_padded():
    parts = [randn(3, H * D), randn(5, H * D, seed=1)]
    given = layer_arguments(src=torch.nested.nested_tensor(parts))
    one = LAYER(given, None)
    assert torch.equal(one.inputs.padding[:, 0], ~REAL)
    x = torch.zeros(B, T, H * D, dtype=torch.float64)
    x[0, :3], x[1] = parts
    expected = projected(x, given).masked_fill(~REAL[:, None, None], -torch.inf)
    near(scores_of(one), expected.masked_fill(~REAL[:, None, :, None], -torch.inf))
    assert adapters._dense(x) == (x, None)


def test_what_was_heard_inside_is_enough():
    q, k = randn(B, H, T, D), randn(B, H, T, D, seed=1)
    near(scores_of(LAYER(layer_arguments() | {HEADS: (q, k)}, None)), q @ k.mT)
    kernel = {"query": q, "key": k, "value": k, "scale": 0.3}, (q, randn(B, H, T))
    for read in (LAYER, MHA):
        one = read(layer_arguments() | {KERNEL: kernel, HEADS: (k, q)}, None)
        near(scores_of(one), q @ k.mT * 0.3)
        assert one.lse is kernel[1][1]


# Steps


def test_steps_of_which_some_queries_were_taken_back():
    x = randn(1, 2, 9, D)

    def look(a, b):
        return sl.look(
            x[..., a:b, :], x[..., :b, :], x[..., :b, :], sl.masks.causal(), measure=sl.Look(top=2)
        )

    whole, steps = look(0, 9), [look(0, 5), look(5, 8), look(6, 8), look(7, 9)]
    stacked = stack(steps)
    assert (stacked.t, stacked.s) == (9, 9)
    for name in ("lse", "entropy", "peak", "peak_at", "output", "received", "top", "top_at"):
        near(stacked.statistics[name], whole.statistics[name])
    near(stacked.map((9, 9)), whole.map((9, 9)))
    without = stack([one.forget() for one in steps])
    assert "received" not in without.statistics
    near(without.entropy, whole.entropy)


def test_steps_of_a_cache_that_slides():
    x, window = randn(1, 2, 6, D), sl.masks.window(2, 0)

    def look(a, b, first):
        part = x[..., first:b, :]
        return sl.look(x[..., a:b, :], part, part, window, measure=sl.Look(top=2))

    whole = look(0, 6, 0)
    steps = [look(0, 3, 0), look(3, 4, 1), look(4, 5, 2), look(5, 6, 3)]
    stacked = stack(steps)
    assert [piece.first_key for piece in stacked.kept] == [0, 1, 2, 3]
    for name in ("lse", "entropy", "peak", "peak_at", "received", "top", "top_at"):
        near(stacked.statistics[name], whole.statistics[name])
    near(stacked.map((6, 6)), whole.map((6, 6)))
    values, places = stacked.top(3)
    near(values, whole.map((6, 6)).topk(3).values)
    near(places.clamp(min=0).float(), whole.top(3)[1].clamp(min=0).float())


def test_whether_items_were_followed():
    steps = [sl.look(*(randn(2, 3, n, D, seed=n),) * 3, sl.masks.causal()) for n in (4, 4)]
    first = steps[0]
    plain = stack([first])
    assert plain.is_followed is False
    moved = replace(steps[1], parents=torch.tensor([1, 0]))
    assert stack([first, moved]).is_followed is True
    assert stack([first, moved], follow=False).is_followed is False
    assert stack([first, steps[1]], [0, 1]).is_followed is True
    near(
        stack([first, steps[1]], [0, 1]).entropy[0, 0],
        torch.cat([first.entropy[0, 0], steps[1].entropy[1, 0]]),
    )
    named = [replace(one, tokens=(("a",), ("b",))) for one in steps]
    assert stack(named, [1, 1]).tokens == (("b",),)
    assert stack(named).tokens == (("a",), ("b",))
    x = randn(1, 2, 2, D)
    tops = [
        sl.look(x[..., a:b, :], x[..., :b, :], x[..., :b, :], measure=sl.Look(top=b))
        for a, b in ((0, 1), (1, 2))
    ]
    values, places = stack([one.forget() for one in tops]).top(2)
    assert values[0, 0, 0].tolist() == [1.0, 0.0]
    assert places[0, 0, 0].tolist() == [0, -1]
    ended = stack([first, steps[1]], [1, -1])
    assert (ended.t, ended.lead) == (4, (1, 3))


# Sequences that are spread over processes


class Ring:
    """What stands for the calls of other processes."""

    def __init__(self, *_):
        self.told = []

    def measure(self, name, call, look, note, *, keep):
        self.told.append((name, keep, call.ring.whole))

    def finish(self, *, keep):
        self.told.append(("finish", keep))

    def drop(self):
        self.told.append("drop")


@pytest.mark.plain
@pytest.mark.parametrize("failed", [False, True])
@pytest.mark.parametrize("keep", [False, True])
def test_calls_that_are_spread_over_processes(failed, keep, monkeypatch):
    monkeypatch.setattr("sightline.look.sharded.watching.RingCalls", Ring)
    seen = Seen("Model", {})
    plain = WatchOptions(
        is_selected=bool, every=1, measure=sl.Look(), keep=keep, in_main_memory=False, limit=1, padding=None,
        tokens=(), grad=False,
    )  # fmt: skip
    spread = replace(call(), ring=SimpleNamespace(whole=(20, 30)))
    notes = NoteTaker(nn.Linear(2, 2), seen, ())
    measurer = CallMeasurer(seen, plain, notes)
    for name in "ab":
        assert measurer.measure_call(name, spread, now=False) is None
    ring = measurer._ring
    measurer.finish(failed=failed)
    told = [("a", keep, (20, 30)), ("b", keep, (20, 30))]
    assert ring.told == [*told, "drop" if failed else ("finish", keep)]
    assert measurer._ring is None
    for options, said in (
        ({"padding": lambda _: None}, "attention_mask= or lengths= is not; leave it out"),
        ({"grad": True}, "where grad=True keeps no graph"),
    ):
        with pytest.raises(UnreadableError, match=said):
            CallMeasurer(seen, plain._replace(**options), notes).measure_call("a", spread, now=False)


def test_a_group_of_calls_that_can_not_be_measured(monkeypatch):
    monkeypatch.setattr(waiting, "_DEVICES", frozenset({"cpu"}))

    def fail(_members):
        raise RuntimeError("no memory\nat all")

    monkeypatch.setattr(waiting, "_stack", fail)
    model = nn.ModuleDict({"a": Sdpa(), "b": Sdpa()})
    x = randn(1, 2, T, D)
    told = pytest.warns(
        UserWarning, match=r"2 attentions of ModuleDict ran and could not be read: a, b \(Runtime"
    )
    with told, torch.no_grad(), sl.watch(model) as seen:
        for one in model.values():
            one(x, x, x)
    assert seen.unseen() == dict.fromkeys("ab", "RuntimeError: no memory")


def test_a_mode_leaves_compiled_code_as_it_is():
    assert listen._ListenMode.ignore_compile_internals() is True
    assert listen._ListenMode.supports_higher_order_operators is True
