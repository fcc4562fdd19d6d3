"""Calls of kernels as they are read, without the kernels: flash-attn's, xformers', torch's own."""

import itertools

import pytest
import torch

from sightline.attention.band import Band
from sightline.look.inputs import PrecomputedWeights, Tile
from sightline.watch import kernel_calls
from sightline.watch.attention_call import UnreadableError, stored_call
from sightline.watch.random_scores import RefuseRandom
from sightline.watch.readers import operators
from sightline.watch.readers.flash import is_hub_kernel, read_efficient, read_flash
from tests.look.look_oracle import near, randn

B, H, T, S, D = 2, 3, 5, 7, 4
EFFICIENT = torch.ops.aten._scaled_dot_product_efficient_attention.default


def all_scores(call):
    b, h, t, s = call.inputs.shape
    return call.inputs.scores(Tile(slice(0, b), slice(0, h), (0, t), (0, s)))


def flash(**more):
    return {"q": randn(B, T, H, D), "k": randn(B, S, H, D, seed=1), "v": randn(B, S, H, D, seed=2)} | more


# flash-attn and its kind


@pytest.mark.parametrize(
    ("given", "band"),
    [
        ({}, None),
        ({"causal": True}, (None, 0)),
        ({"is_causal": False, "window_size": (-1, -1)}, None),
        ({"window_size": (3, 0)}, (3, 0)),
        ({"window_size": (0, -1)}, (0, None)),
        ({"window_size_left": 2, "window_size_right": 1}, (2, 1)),
        ({"window_left": 2, "window_right": None}, (2, None)),
        ({"window_size_left": None, "window_size_right": 0}, (None, 0)),
        ({"window_size_left": 2, "window_size_right": 1, "causal": True}, (2, 0)),
        ({"window_size_left": 2, "window_size": (1, 3)}, (1, 3)),
    ],
)
def test_the_window_of_a_call(given, band):
    expected = () if band is None else (Band(*band, "end"),)
    assert read_flash(flash(**given), None).inputs.mask.bands == expected


def test_scores_scale_and_names_of_arguments():
    call = read_flash(flash(), (None, None))
    q, k = flash()["q"].transpose(1, 2), flash()["k"].transpose(1, 2)
    near(all_scores(call), q @ k.mT * D**-0.5)
    assert call.lead == (B, H)
    for name in ("scale", "softmax_scale", "softmax_scale_"):
        assert read_flash(flash(**{name: 0.3}), None).inputs.scale == 0.3
    renamed = {"query": flash()["q"], "key_": flash()["k"], "value": flash()["v"], "s_aux": torch.ones(H)}
    call = read_flash(renamed, None)
    assert call.inputs.sink.flatten().tolist() == [1.0] * H


def test_lengths_of_the_keys_that_are_used():
    call = read_flash(flash(seqused_k=torch.tensor([3, 7])), None)
    assert call.inputs.mask.lengths[0].flatten().tolist() == [3, 7]
    assert not read_flash(flash(seqused_k=None), None).inputs.mask.lengths


@pytest.mark.bad_input
def test_what_is_not_read():
    for given in ({"block_table": 1}, {"leftpad_k": 1}, {"page_table": 1}):
        with pytest.raises(UnreadableError, match="pages of a cache"):
            read_flash(flash(**given), None)
    packed = {"alibi_slopes": torch.ones(H), "cu_seqlens_q": torch.tensor([0, 5])}
    with pytest.raises(UnreadableError, match="ALiBi over packed sequences is not read"):
        read_flash(flash(**packed), None)


def test_a_log_sum_exp_counts_where_it_has_the_right_shape():
    def lse_of(lse):
        return read_flash(flash(), (None, lse)).lse

    lse = randn(B, H, T)
    assert torch.equal(lse_of(lse), lse)
    assert torch.equal(lse_of(torch.cat([lse, lse], -1)), lse)  # some kernels pad it
    for odd in (None, "lse", lse[0], lse[..., :4], lse[:1], lse[:, :2], lse[..., None], lse.transpose(0, 1)):
        assert lse_of(odd) is None
    assert read_flash(flash(), lse).lse is None
    assert read_flash(flash(), (lse,)).lse is None
    assert torch.equal(read_flash(flash(), [None, lse, None]).lse, lse)


@pytest.mark.parametrize(
    "slopes", [None, randn(H, seed=3), randn(B, H, seed=4)], ids=["none", "heads", "items"]
)
@pytest.mark.parametrize("cap", [0.0, 0.7])
def test_a_soft_cap_and_slopes(cap, slopes):
    call = read_flash(flash(softcap=cap, alibi_slopes=slopes), None)
    q, k = flash()["q"].transpose(1, 2), flash()["k"].transpose(1, 2)
    scores = q @ k.mT * D**-0.5
    scores = (scores / cap).tanh() * cap if cap else scores
    if slopes is not None:
        apart = (torch.arange(T)[:, None] + S - T - torch.arange(S)).abs()
        scores = scores - slopes.expand(B, H)[..., None, None] * apart
    near(all_scores(call), scores)
    assert (call.inputs.modify is None) is (not cap and slopes is None)


LENGTHS = [3, 1, 4]


def packed(key_lengths=None, **more):
    """Three sequences one after the other; what each of them is."""
    key_lengths = key_lengths or LENGTHS
    q, k = randn(sum(LENGTHS), H, D), randn(sum(key_lengths), H, D, seed=1)
    starts, key_starts = (torch.tensor([0, *itertools.accumulate(x)]) for x in (LENGTHS, key_lengths))
    given = {"q": q, "k": k, "v": k, "cu_seqlens_q": starts, "cu_seqlens_k": key_starts} | more
    return given, list(zip(q.split(LENGTHS), k.split(key_lengths), strict=True))


@pytest.mark.parametrize("key_lengths", [None, [5, 2, 4]], ids=str)
@pytest.mark.parametrize("window", [None, (1, 0), (-1, 1), (2, -1)], ids=str)
def test_packed_sequences_are_items_of_a_batch(key_lengths, window):
    given, each = packed(key_lengths, window_size=window)
    lse = randn(H, sum(LENGTHS))
    call = read_flash(given, (None, lse))
    scores = all_scores(call)
    assert call.lead == (3, H)
    assert call.inputs.padding[:, 0].tolist() == [[i >= n for i in range(4)] for n in LENGTHS]
    for item, (q, k) in enumerate(each):
        expected = torch.einsum("thd,shd->hts", q, k) * D**-0.5
        ahead = torch.arange(len(k)) - torch.arange(len(q))[:, None] - (len(k) - len(q))
        left, right = window or (-1, -1)
        outside = ((ahead < -left) if left >= 0 else ahead > 99) | (
            (ahead > right) if right >= 0 else ahead > 99
        )
        near(scores[item, :, : len(q), : len(k)], expected.masked_fill(outside, -torch.inf))
        assert bool((scores[item, :, len(q) :] == -torch.inf).all())
        assert bool((scores[item, ..., len(k) :] == -torch.inf).all())
        first = sum(LENGTHS[:item])
        near(call.lse[item, :, : len(q)], lse[:, first : first + len(q)])


def test_packed_sequences_in_other_ways():
    given, _ = packed([5, 2, 4])
    known = read_flash(given | {"seqused_k": torch.tensor([2, 2, 3])}, None)
    assert known.inputs.mask.lengths[0].flatten().tolist() == [2, 2, 3]
    assert known.inputs.shape == (3, H, 4, 3)
    assert known.lse is None
    around = given | {"q": given["q"][None], "k": given["k"][None]}  # xformers' have a batch of one
    near(all_scores(read_flash(around, None)), all_scores(read_flash(given, None)))
    same, _ = packed()
    del same["cu_seqlens_k"]
    near(all_scores(read_flash(same, None)), all_scores(read_flash(packed()[0], None)))
    for odd in (torch.zeros(H, 9), torch.zeros(2, 8), torch.zeros(1, H, 8), None):
        assert read_flash(given, (None, odd)).lse is None
    sink = read_flash(given | {"sink": torch.arange(3.0)}, None)
    assert sink.inputs.sink.flatten().tolist() == [0.0, 1.0, 2.0]


def test_the_kernel_under_xformers():
    given = {"query": flash()["q"], "key": flash()["k"]}
    lse = randn(B, H, 8)
    plain = read_efficient(given, (None, lse))
    near(all_scores(plain), flash()["q"].transpose(1, 2) @ flash()["k"].transpose(1, 2).mT * D**-0.5)
    assert torch.equal(plain.lse, lse[..., :T])
    assert read_efficient(given | {"scale": 0.3}, (None, lse)).inputs.scale == 0.3
    masks = [
        read_efficient(given | {"custom_mask_type": x}, (None, lse)).inputs.mask for x in (None, 0, 1, 2)
    ]
    assert [x.bands for x in masks] == [(), (), (Band(None, 0, "start"),), (Band(None, 0, "end"),)]
    window = read_efficient(given | {"window_size": 3, "custom_mask_type": 2}, (None, lse)).inputs.mask
    assert window.bands == (Band(2, 0, "end"),)
    bias = randn(B, H, T, S)
    assert torch.equal(read_efficient(given | {"bias": bias}, (None, lse)).inputs.mask.added[0], bias)
    used = read_efficient(given | {"seqlen_k": torch.tensor([3, 2])}, (None, lse)).inputs.mask
    assert used.lengths[0].flatten().tolist() == [3, 2]
    for kind, bands in ((0, ()), (1, (Band(None, 0, "end"),)), (2, (Band(None, 0, "end"),)), (None, ())):
        own, _ = packed(custom_mask_type=kind, window_size=9)
        renamed = {"query": own["q"], "key": own["k"], "value": own["v"]}
        rest = {name: x for name, x in own.items() if len(name) > 1}
        assert read_efficient(renamed | rest, (None, None)).inputs.mask.bands == bands


def test_names_of_kernels_from_a_hub():
    assert is_hub_kernel("_vllm_flash_attn3_6f4e9c::fwd")
    assert is_hub_kernel("flash_attn3::varlen_fwd")
    assert not is_hub_kernel("flash_attn3::bwd")
    assert not is_hub_kernel("aten::fwd")


# Torch's own


def test_the_log_sum_exp_is_asked_for_wherever_it_stands():
    names = operators.argument_names(EFFICIENT)
    at = names.index("compute_log_sumexp")
    q, k, v, bias = (randn(B, H, T, D, seed=i) for i in range(4))
    calls = []

    def call(*args, **kwargs):
        calls.append((args, kwargs))
        return "result"

    whole, result = operators.call_with_lse(EFFICIENT, (q, k, v, bias, False, 0.5), {"scale": 2.0}, call)
    assert (calls[-1][0][at], len(calls[-1][0]), calls[-1][1], result) == (True, 6, {"scale": 2.0}, "result")
    assert (whole["compute_log_sumexp"], whole["dropout_p"], whole["scale"]) == (True, 0.5, 2.0)
    whole, _ = operators.call_with_lse(EFFICIENT, (q, k, v, bias), {"scale": 2.0}, call)
    assert calls[-1][1] == {"scale": 2.0, "compute_log_sumexp": True}
    assert whole["compute_log_sumexp"] is True
    kernel = kernel_calls.Kernel(EFFICIENT)
    assert kernel_calls.kernel_of(EFFICIENT) is kernel_calls.kernel_of(EFFICIENT)
    assert (kernel.func, kernel.is_fused, kernel.may_leave_out_lse, kernel.is_layer) == (
        EFFICIENT,
        True,
        True,
        False,
    )
    args, kwargs = kernel.ask_lse((q, k, v, bias, False, 0.5), {})
    assert (args[at], args[at + 1], len(args), kwargs) == (True, 0.5, 6, {})
    args, kwargs = kernel.ask_lse((q, k, v), {"scale": 2.0})
    assert (len(args), kwargs) == (3, {"scale": 2.0, "compute_log_sumexp": True})
    assert kernel.facts((q, k, v, bias, True, 0.0, True), {"scale": 2.0}) == (bias, True, 2.0)
    assert kernel.facts((q, k, v), {}) == (None, False, None)
    cpu = kernel_calls.Kernel(torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default)
    assert cpu.facts((q, k, v, 0.0, True), {"attn_mask": bias}) == (bias, True, None)
    assert not cpu.may_leave_out_lse
    layer = kernel_calls.Kernel(torch.ops.aten._native_multi_head_attention.default)
    assert (layer.is_layer, layer.is_fused) == (True, False)


@pytest.mark.plain
def test_a_fused_call_as_it_is_read():
    q, k, bias = randn(B, H, T, D), randn(B, H, S, D, seed=1), randn(B, H, T, S)
    given = {"query": q, "key": k, "value": k}
    plain = operators.fused_call(given, ("output", randn(B, H, 8)))
    assert (plain.scale, plain.output, plain.lse.shape, plain.mask.limits) == (
        D**-0.5,
        "output",
        (B, H, T),
        False,
    )
    assert operators.fused_call(given | {"scale": 0.3, "is_causal": False}, ("o", None)).scale == 0.3
    for name in ("attn_mask", "attn_bias"):
        one = operators.fused_call(given | {name: bias, "is_causal": True}, ("o", randn(0)))
        assert one.mask.added[0] is bias
        assert one.mask.bands == (Band(None, 0, "start"),)
        assert one.lse is None
    assert operators.fused_call(given | {"is_causal": True}, ("o", None)).mask.bands == (
        Band(None, 0, "start"),
    )
    lse = randn(B, H, T)
    assert operators.fused_lse(q, (None, lse)) is lse
    assert torch.equal(operators.fused_lse(q, (None, lse.unsqueeze(-1))), lse)


def test_stored_weights_with_any_leading_dimensions():
    def shapes(lead, heads):
        call = stored_call(randn(*lead, T, S).softmax(-1), randn(*lead, T), heads)
        assert isinstance(call.inputs, PrecomputedWeights)
        return call.lead, call.inputs.shape[:2], tuple(call.lse.shape), call.source

    assert shapes((6,), 3) == ((2, 3), (2, 3), (2, 3, T), "weights")
    assert shapes((6,), 4) == ((6,), (6, 1), (6, 1, T), "weights")
    assert shapes((6,), None) == ((6,), (6, 1), (6, 1, T), "weights")
    assert shapes((), 2) == ((), (1, 1), (1, 1, T), "weights")
    assert shapes((2, 3), 3) == ((2, 3), (2, 3), (2, 3, T), "weights")
    assert shapes((5, 2, 3), 3) == ((5, 2, 3), (10, 3), (10, 3, T), "weights")
    call = stored_call(torch.ones(2, 3, T, S), torch.zeros(2, 3, T), None)
    padding = torch.zeros(2, T, dtype=torch.bool)
    padding[1, 3] = True
    assert call.with_padding(None) is call
    empty = ~call.with_padding(padding).inputs.q.any(-1)
    assert empty.nonzero().tolist() == [[1, i, 3] for i in range(3)]
    assert torch.equal(call.with_padding(padding).inputs.padding, padding.unsqueeze(1))


# Scores that draw random numbers


def test_what_draws_is_refused_and_nothing_else():
    x = torch.full((1009,), 0.5)
    native = torch.ops.aten.native_dropout.default
    draws = [
        lambda: torch.rand(5),
        lambda: torch.rand_like(x),
        lambda: torch.bernoulli(x),
        lambda: torch.nn.functional.dropout(x, 0.5),
        lambda: native(x, 0.25, True),
        lambda: native(x, 0.25, None),
    ]
    before = torch.get_rng_state()
    with RefuseRandom():
        for draw in draws:
            with pytest.raises(UnreadableError, match=r"draws random numbers \(aten::\w+\); watch it after"):
                draw()
        assert torch.equal(torch.nn.functional.dropout(x, 0.5, training=False), x)
        assert torch.equal(native(x, 0.25, False)[0], x)
        own = torch.rand(5, generator=torch.Generator().manual_seed(3))
    assert torch.equal(own, torch.rand(5, generator=torch.Generator().manual_seed(3)))
    assert torch.equal(torch.get_rng_state(), before)
