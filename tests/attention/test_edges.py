"""Edges that a small mistake would move: two blocks, one row, keys that all queries see, and the like."""

import importlib
import re

import pytest
import torch
from torch import nn

import sightline as sl
from sightline import untrusted
from sightline.attention import mask_values
from sightline.attention.additive import TILE, additive_scores
from sightline.attention.band import Band
from sightline.attention.cache import Cache
from sightline.attention.from_torch import _unshared
from sightline.attention.mask_shapes import cut
from sightline.attention.masks import Mask
from sightline.attention.observers import observe
from sightline.attention.softmax import masked_softmax
from sightline.watch.readers.operators import FusedCallRecorder
from tests.attention.attend_oracle import close, in_blocks, plain, qkv
from tests.attention.created import created

averaged = importlib.import_module("sightline.attention.averaged")  # sl.attention is the function

B, H, T, S, D = 2, 7, 5, 11, 3


@pytest.mark.parametrize("t", [2, 3, 4, 5])
def test_blocks_are_put_together_however_many_they_are(t):
    q, k, v = qkv(2, 3, t=t, s=7)
    allowed = torch.arange(7) - torch.arange(t)[:, None] <= 7 - t + 1
    with in_blocks(block=2):
        found = sl.attention(q, k, v, sl.masks.window(None, 1))
    close([found], [plain(q, k, v, allowed)])


@pytest.mark.parametrize(("t", "calls"), [(2, 1), (3, 4)])
def test_what_fits_into_one_block_is_not_computed_again_for_the_gradients(t, calls):
    class Counting(sl.scores.Score):
        calls = 0

        def forward(self, q, k):
            self.calls += 1
            return q @ k.mT

    q, k, v = (x.requires_grad_() for x in qkv(1, 1, t=t, s=7))
    score = Counting()
    with in_blocks(pairs=2 * 7):
        sl.attention(q, k, v, score=score).sum().backward()
    assert score.calls == calls


@pytest.mark.parametrize("lead", [(), (2,), (2, 1, 3)])
def test_few_pairs_of_other_than_four_dimensions_have_a_second_derivative(lead):
    tensors = [x.requires_grad_() for x in qkv(*lead, t=2, s=3, d=2, d_v=2)]
    assert torch.autograd.gradgradcheck(lambda *x: sl.attention(*x, scale=0.7), tensors)


@pytest.mark.bad_input
def test_a_bias_as_long_as_a_key_is_wide_is_no_bias_over_the_keys():
    q, k, v = qkv(1, 1, t=5, s=3, d=7, d_v=7)
    with pytest.raises(ValueError, match=r"the mask .*\(1, 1, 5, 7\)"):
        sl.attention(q, k, v, torch.full((1, 1, 5, 7), 0.5, dtype=q.dtype))


def test_keys_that_all_of_some_queries_see():
    t, s = 5, 7
    for left in (None, 0, 2, 9):
        for right in (None, 0, 3, 9):
            for align in ("start", "end"):
                band = Band(left, right, align)
                seen = band.allows(torch.arange(t), torch.arange(s), t, s)
                for queries in ((0, 1), (1, 3), (2, 5), (0, 5)):
                    first, last = band.keys_of_all(queries, t, s)
                    by_all = seen[slice(*queries)].all(0).nonzero().flatten().tolist()
                    assert list(range(first, last)) == by_all
                    first, last = band.keys(queries, t, s)
                    by_any = seen[slice(*queries)].any(0).nonzero().flatten().tolist()
                    assert set(by_any) <= set(range(first, last))
                    assert len(by_any) in (0, last - first)


@pytest.mark.parametrize("shape", [(5, 7), (1, 7), (5, 1), (1, 1), (2, 2)])
def test_a_mask_is_cut_where_it_is_not_of_one(shape):
    x = torch.arange(shape[0] * shape[1]).reshape(1, *shape)
    rows = [1] if shape[0] != 1 else [0]
    columns = [1] if shape[1] != 1 else [0]
    assert torch.equal(cut(x, (1, 2), (1, 2)), x[:, rows][:, :, columns])


def test_no_more_hidden_values_of_additive_scores_live_than_a_tile():
    a, b, v = torch.randn(607, 7), torch.randn(601, 7), torch.randn(7)
    with created() as seen:
        found = additive_scores(a, b, v)
    assert max(size for size, _ in seen) <= TILE < 607 * 601 * 7
    truth = torch.cat([(x[:, None] + b).tanh() @ v for x in a.split(100)])
    torch.testing.assert_close(found, truth)


def test_softmax_without_a_mask():
    scores = torch.randn(3, 5)
    assert torch.equal(masked_softmax(scores), scores.softmax(-1))


# Weights averaged over the heads


def of_heads():
    return (torch.randn(B, H, n, D, dtype=torch.float64) for n in (T, S, S))


def test_large_inputs_take_the_fused_kernel_for_their_output(monkeypatch):
    monkeypatch.setattr(averaged, "_SMALL", 0)
    q, k, v = of_heads()
    calls = []
    with FusedCallRecorder(calls.append):
        output, average = averaged.attention_with_average(q, k, v, Mask())
    assert len(calls) == 1
    weights = (q @ k.mT * D**-0.5).softmax(-1)
    close([output, average], [weights @ v, weights.mean(1)])


@pytest.mark.parametrize(("heads", "parts"), [(1, 7), (2, 4), (3, 3), (4, 3)])
def test_small_inputs_go_as_many_heads_at_a_time_as_are_small_but_never_all(monkeypatch, heads, parts):
    monkeypatch.setattr(averaged, "_SMALL", heads * B * T * S)
    q, k, v = of_heads()
    with created() as seen:
        output, average = averaged._head_by_head(q, k, v, Mask(), 0.0)
    assert sum("softmax" in name for _, name in seen) == parts
    weights = (q @ k.mT * D**-0.5).softmax(-1)
    close([output, average], [weights @ v, weights.mean(1)])


@pytest.mark.parametrize(("weights", "rows"), [(1, 1), (B * S, 1), (2 * B * S, 2), (99 * B * S, T)])
def test_tiles_cover_heads_and_queries_once(monkeypatch, weights, rows):
    monkeypatch.setitem(averaged._TILE, "cpu", weights)
    q, k, _ = of_heads()
    queries = [slice(top, min(top + rows, T)) for top in range(0, T, rows)]
    expected = [(slice(head, head + 1), some) for head in range(H) for some in queries]
    assert list(averaged._tiles(q, k)) == expected


@pytest.mark.parametrize("name", ["attention_with_weights", "attention_with_average"])
def test_an_observer_hands_back_output_and_weights(name):
    function, calls = getattr(averaged, name), []
    tensors = (*of_heads(), sl.masks.causal())
    expected = function(*tensors)

    def observer(called, args, options):
        calls.append((called, args, options))
        return called(*args, **options)

    stop = observe(observer)
    try:
        found = function(*tensors)
    finally:
        stop()
    assert calls[0] == (function, tensors, {"dropout_p": 0.0})
    assert found[0].shape != found[1].shape
    close(found, expected, atol=0)


# The drop-in


def test_values_of_their_own_beside_queries_that_are_the_keys():
    torch.manual_seed(3)
    ours, x, y = sl.nn.MultiheadAttention(6, 2, batch_first=True), torch.randn(2, 5, 6), torch.randn(2, 5, 6)
    theirs = nn.MultiheadAttention(6, 2, batch_first=True)
    theirs.load_state_dict(ours.state_dict())
    for query, key, value in ((x, x, y), (x, y, y), (x, y, x), (x, x, x)):
        torch.testing.assert_close(ours(query, key, value), theirs(query, key, value))


@pytest.mark.bad_input
def test_the_mask_that_is_wrong_is_named():
    layer, x = sl.nn.MultiheadAttention(6, 2, batch_first=True), torch.randn(2, 5, 6)
    with pytest.raises((TypeError, ValueError), match=r"\battn_mask\b"):
        layer(x, x, x, attn_mask=torch.zeros(5, 5, dtype=torch.int64))
    with pytest.raises((TypeError, ValueError), match=r"\bkey_padding_mask\b"):
        layer(x, x, x, key_padding_mask=torch.zeros(2, 5, dtype=torch.int64))


def test_a_module_to_be_compiled_has_tables_of_its_own_all_the_way_down():
    inner = nn.Sequential(nn.Linear(2, 3))
    outer = nn.Sequential(inner, nn.ReLU())
    twin = _unshared(outer)
    assert twin is not outer
    assert twin[0] is not inner
    assert twin[0]._modules is not inner._modules
    assert list(twin._modules) == ["0", "1"]
    assert twin[0][0].weight is inner[0].weight
    assert _unshared(None) is None


@pytest.mark.bad_input
def test_a_cache_and_a_layer_keep_to_their_dtype():
    k = torch.randn(1, 2, 3, 5)
    with pytest.raises(TypeError, match=r"torch\.float64 on cpu for torch\.float32 on cpu"):
        Cache().append(k, k).append(k.double(), k.double())
    with pytest.raises(TypeError, match=r"torch\.float32, got torch\.float64"):
        sl.nn.SelfAttention(3, 5, 7)(torch.randn(2, 3, dtype=torch.float64))


# What a GPU has to say of masks when the program ends


def test_the_last_masks_of_a_gpu_are_judged_at_the_end(monkeypatch, capsys):
    waited = []

    class Late:
        query = staticmethod(lambda: False)
        synchronize = staticmethod(lambda: waited.append(1))

    monkeypatch.setattr(mask_values, "_pending", mask_values.deque())
    mask = torch.eye(T, S)
    closer = mask_values._NO_ONES.judge([0, 1])
    pending = mask_values._Pending(Late, torch.tensor([True]), closer, mask, mask._version, "attn_mask")
    mask_values._pending.append(pending)
    mask_values._collect()
    assert len(mask_values._pending) == 1
    mask_values._collect_the_last()
    assert waited == [1]
    assert not mask_values._pending
    assert capsys.readouterr().err.startswith("sightline: an earlier call: a float mask is added")


def test_a_bias_between_nothing_and_one_is_looked_at_whole_and_no_other():
    rule = mask_values._ones_and_zeros("a sentence", refused=True)
    assert rule.refused
    assert rule.summary(torch.tensor([[0.5, -2.0], [3.0, 1.0]])).tolist() == [-2.0, 3.0]
    assert rule.judge([0, 2]) is None
    closer = rule.judge([0, 1])
    assert closer.summary(torch.tensor([0.0, 1.0])).tolist() == [True]
    assert closer.summary(torch.tensor([0.0, 0.5, 1.0])).tolist() == [False]
    assert closer.judge([True]) == "a sentence"
    assert closer.judge([False]) is None


# Sentences


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("build", "need", "sentence"),
    [
        (lambda: sl.scores.General(3, 5), 4 * 3 * 5, "^the score's matrix needs .*; choose smaller widths$"),
        (
            lambda: sl.nn.SelfAttention(3, 5, 7),
            4 * 3 * (5 + 5 + 7),
            "^SelfAttention needs .*; choose smaller widths$",
        ),
        (
            lambda: sl.nn.MultiHeadSelfAttention(3, 10, 14, 2),
            4 * (14 * 14 + 3 * (10 + 10 + 14)),
            "^MultiHeadSelfAttention needs .*; choose smaller widths$",
        ),
        (lambda: sl.masks.causal().dense(5, 7), 5 * 7, "^a mask of 5 x 7 needs .*; choose less$"),
    ],
)
def test_what_needs_more_memory_than_there_is_says_how_much(monkeypatch, build, need, sentence):
    monkeypatch.setattr(untrusted, "free_memory", lambda: need)
    build()
    monkeypatch.setattr(untrusted, "free_memory", lambda: need - 1)
    with pytest.raises(ValueError, match=sentence):
        build()


def test_a_score_of_width_one_is_a_product():
    score = sl.scores.General(1, 1)
    q, k = torch.randn(3, 1), torch.randn(5, 1)
    torch.testing.assert_close(score(q, k), q * k.mT * next(score.parameters()))


@pytest.mark.bad_input
def test_a_score_with_parameters_is_shown_as_it_is_built():
    for name, built in (
        ("general", "General(d_q, d_k)"),
        ("low_rank", "LowRank(d_q, d_k, rank)"),
        ("additive", "Additive(d_q, d_k, d_attn)"),
    ):
        with pytest.raises(ValueError, match=re.escape(f"build it once, sl.scores.{built}, and pass that")):
            sl.scores.named(name)


def test_the_former_name_of_the_heads_points_to_the_caller():
    with pytest.warns(DeprecationWarning, match="^n_heads is num_heads now, as in torch$"):
        assert len(sl.nn.MultiHeadSelfAttention(3, 10, 14, n_heads=2).heads) == 2


@pytest.mark.bad_input
def test_a_sparse_mask_is_refused():
    with pytest.raises(TypeError, match=r"^mask must be a dense tensor, got "):
        sl.attention(*qkv(1, 1, t=5, s=7), torch.eye(5, 7).bool().to_sparse())


@pytest.mark.bad_input
def test_what_does_not_fit_the_weights_of_a_layer_is_refused():
    layer = sl.nn.SelfAttention(7, 5, 3)
    for shape in ((2, 5, 6), (7,)):
        with pytest.raises(ValueError, match=re.escape(f"with d_in=7, got x {shape}")):
            layer(torch.zeros(shape))
    with pytest.raises(ValueError, match=r"x must be on the device of the weights, cpu, got meta; x\.to"):
        layer(torch.zeros(2, 5, 7, device="meta"))


@pytest.mark.bad_input
def test_a_mask_that_is_read_as_it_is_says_no_more():
    q = torch.zeros(2, 3, T, 4)
    with pytest.raises(
        ValueError, match=rf"got a mask of shape \({T}, {T + 1}\), read as \(1, 1, {T}, {T + 1}\);"
    ):
        sl.attention(q, q, q, torch.ones(T, T + 1) > 0)
    with pytest.raises(ValueError, match=rf"got a mask of shape \(2, 3, {T}, {T + 1}\);"):
        sl.attention(q, q, q, torch.ones(2, 3, T, T + 1) > 0)


@pytest.mark.parametrize("mask", [None, sl.masks.causal(), sl.masks.bias(torch.zeros(T, T))])
@pytest.mark.parametrize("lead", [(2, 0), (0,), (2, 3, 0)])
def test_no_heads_have_no_output(lead, mask):
    """Torch 2.11's kernel for a CPU would end the process."""
    q = torch.zeros(*lead, T, 4, requires_grad=True)
    v = torch.zeros(*lead, T, 3)
    output = sl.attention(q, q, v, mask)
    assert output.shape == (*lead, T, 3)
    output.sum().backward()
    assert q.grad.shape == q.shape


def test_an_empty_cache_has_no_items_to_select():
    empty = Cache()
    assert empty.select(torch.tensor([1, 0])) is empty


def test_a_module_that_stands_for_torchs_is_shared_as_it_is():
    drop_in = sl.nn.MultiheadAttention(6, 2)
    assert _unshared(drop_in) is drop_in
    assert _unshared(None) is None


def test_the_heads_of_the_equation_have_biases_unless_told_otherwise():
    layer = sl.nn.MultiHeadSelfAttention(5, 4, 6, 2)
    assert [part.bias is not None for part in layer.modules() if isinstance(part, nn.Linear)] == [True] * 7
    bare = sl.nn.MultiHeadSelfAttention(5, 4, 6, 2, bias=False)
    assert not [part for part in bare.modules() if isinstance(part, nn.Linear) and part.bias is not None]


def test_two_items_and_two_heads_are_told_apart_too():
    q, k, v = torch.zeros(2, 2, 3, 7), torch.zeros(2, 2, 5, 7), torch.zeros(2, 2, 5, 11)
    with pytest.raises(ValueError, match="could mean the batch or the heads"):
        sl.attention(q, k, v, torch.zeros(2, 3, 5))


def test_a_score_refuses_what_has_another_dtype():
    q, k = torch.zeros(3, 7), torch.zeros(5, 7, dtype=torch.float64)
    with pytest.raises(TypeError, match=r"the same dtype, got torch\.float32, torch\.float64"):
        sl.scores.Dot()(q, k)
