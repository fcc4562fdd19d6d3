"""``watch``: what a model attends to, the same output and gradients."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right, causal_upper_left

import sightline as sl
from tests.look.look_oracle import MASKS, agrees, matrix, near, randn
from tests.watch.watch_oracle import B, E, H, S, Sdpa, T, mha_matrix, run, same, transformers

# torch.nn.MultiheadAttention


@pytest.mark.parametrize("kind", [nn.MultiheadAttention, sl.nn.MultiheadAttention])
@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("train", [True, False])
def test_multihead_attention(kind, need_weights, dropout, train):
    model = kind(E, H, dropout=dropout, batch_first=True).train(train)
    x = randn(B, T, E, dtype=torch.float32)
    blind = run(model, x, x, x, need_weights=need_weights)
    with sl.watch(model, keep=True) as seen:
        watched = run(model, x, x, x, need_weights=need_weights)
    assert same(blind, watched)
    assert seen.names() == [""]
    with torch.no_grad():
        agrees(seen[""], *mha_matrix(model, x, x))


@pytest.mark.combinations
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("extra", [{}, {"add_bias_kv": True}, {"add_zero_attn": True}], ids=str)
@pytest.mark.parametrize("masked", ["nothing", "padding", "boolean", "float", "of heads"])
def test_cross_attention_with_every_mask(batch_first, need_weights, extra, masked):
    model = nn.MultiheadAttention(E, H, batch_first=batch_first, **extra)
    query, memory = randn(B, T, E, seed=1, dtype=torch.float32), randn(B, S, E, seed=2, dtype=torch.float32)
    forbidden = torch.rand(B, H, T, S) < 0.4
    forbidden[..., 0] = False
    added, masks = {
        "nothing": (torch.zeros(T, S), {}),
        "padding": (
            torch.zeros(B, 1, 1, S).masked_fill(forbidden[:, :1, :1], -torch.inf),
            {"key_padding_mask": forbidden[:, 0, 0]},
        ),
        "boolean": (
            torch.zeros(T, S).masked_fill(forbidden[0, 0], -torch.inf),
            {"attn_mask": forbidden[0, 0]},
        ),
        "float": (torch.arange(T * S).view(T, S) / 9, {"attn_mask": torch.arange(T * S).view(T, S) / 9}),
        "of heads": (
            torch.zeros(B, H, T, S).masked_fill(forbidden, -torch.inf),
            {"attn_mask": forbidden.flatten(0, 1)},
        ),
    }[masked]
    inputs = [x if batch_first else x.transpose(0, 1) for x in (query, memory, memory)]
    with torch.no_grad():
        blind = model(*inputs, need_weights=need_weights, **masks)[0]
        with sl.watch(model, keep=True) as seen:
            watched = model(*inputs, need_weights=need_weights, **masks)[0]
        assert torch.equal(blind, watched)
        added = F.pad(added, (0, len(extra)))
        agrees(seen[""], *mha_matrix(model, query, memory, added))


@pytest.mark.parametrize("need_weights", [False, True])
def test_without_a_batch(need_weights):
    model = nn.MultiheadAttention(E, H)
    x, memory = randn(T, E, seed=1, dtype=torch.float32), randn(S, E, seed=2, dtype=torch.float32)
    with torch.no_grad(), sl.watch(model, keep=True) as seen:
        model(x, memory, memory, need_weights=need_weights)
        agrees(seen[""], *mha_matrix(model, x[None], memory[None]))


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_the_causal_hint_wins_over_the_mask_as_in_torch(dropout):
    model = nn.MultiheadAttention(E, H, dropout=dropout, batch_first=True)
    x = randn(B, T, E, dtype=torch.float32)
    with sl.watch(model, keep=True) as seen, torch.no_grad():
        model(x, x, x, attn_mask=torch.zeros(T, T), is_causal=True, need_weights=False)
        agrees(seen[""], *mha_matrix(model, x, x, MASKS["causal"]((), T, T)[1]))


# Whole Transformers


@pytest.mark.combinations
@pytest.mark.parametrize("package", [nn, sl.nn], ids=["torch", "ours"])
@pytest.mark.parametrize("which", ["encoder", "decoder", "both"])
def test_transformers(package, which):
    model, inputs, names = transformers(package)[which]
    for train in (True, False):
        model.train(train)
        blind = run(model, *inputs)
        with sl.watch(model) as seen:
            watched = run(model, *inputs)
        assert same(blind, watched)
        assert seen.names() == names
        assert all(x.received.shape[:2] == (B, H) for (x,) in (calls for _, calls in seen.items()))
    with torch.no_grad():  # here torch's takes a whole-layer operator, which the block switches off
        blind = model(*inputs)
        with sl.watch(model) as seen:
            near(model(*inputs), blind, rtol=1e-5, atol=1e-5)
        assert seen.names() == names
        near(model(*inputs), blind, rtol=0, atol=0)


def test_padding_in_eval_agrees_where_it_is_real():
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(E, 4, 5, batch_first=True), 2).eval()
    x, padding = randn(B, T, E, dtype=torch.float32), torch.arange(T) >= torch.tensor([[3], [T]])
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nested tensors are a prototype
        blind = model(x, src_key_padding_mask=padding)
        with sl.watch(model) as seen:
            watched = model(x, src_key_padding_mask=padding)
    near(watched[~padding], blind[~padding], rtol=1e-5, atol=1e-5)
    assert not seen["layers.0.self_attn"].received[0, :, 3:].any()
    assert seen["layers.1.self_attn"].received[1].all()


def test_our_attention_modules():
    for model in (sl.nn.SelfAttention(E, 5, 7), sl.nn.MultiHeadSelfAttention(E, 6, 9, 3)):
        x = randn(B, T, E, dtype=torch.float32)
        blind = run(model, x, mask=sl.masks.causal())
        with sl.watch(model) as seen:
            assert same(blind, run(model, x, mask=sl.masks.causal()))
        near(seen[""].received.sum(-1), torch.full(seen[""].shape, float(T)))


# Any module that calls F.scaled_dot_product_attention


CALLS = {
    "plain": ((B, H), None, {}, "nothing"),
    "3-D": ((B,), None, {}, "nothing"),
    "2-D": ((), None, {}, "nothing"),
    "5-D": ((2, 3, 2), None, {}, "nothing"),
    "causal": ((B, H), None, {"is_causal": True}, "causal_from_start"),
    "3-D causal": ((B,), None, {"is_causal": True}, "causal_from_start"),
    "boolean": ((B, H), None, {"attn_mask": "dense"}, "dense"),
    "3-D boolean": ((B,), None, {"attn_mask": "dense"}, "dense"),
    "boolean of all": ((B, H), None, {"attn_mask": "dense_of_all"}, "dense_of_all"),
    "float": ((B, H), None, {"attn_mask": "bias"}, "bias"),
    "float with -inf": ((B, H), None, {"attn_mask": "bias_with_inf"}, "bias_with_inf"),
    "huge": ((B, H), None, {"attn_mask": "bias_with_huge"}, "bias_with_huge"),
    "float of heads": ((B, H), None, {"attn_mask": "bias_of_heads"}, "bias_of_heads"),
    "grouped": ((B, 6), 2, {"enable_gqa": True}, "nothing"),
    "grouped 3-D": ((6,), 2, {"enable_gqa": True}, "nothing"),
    "multi-query": ((B, 6), 1, {"enable_gqa": True}, "nothing"),
    "grouped and masked": ((B, 6), 3, {"enable_gqa": True, "attn_mask": "dense"}, "dense"),
    "dropout": ((B, H), None, {"dropout_p": 0.3}, "nothing"),
    "dropout, grouped, causal": (
        (B, 6),
        2,
        {"dropout_p": 0.3, "enable_gqa": True, "is_causal": True},
        "causal_from_start",
    ),
    "scale": ((B, H), None, {"scale": 0.7}, "nothing"),
    "scale and dropout": ((B, H), None, {"scale": 0.7, "dropout_p": 0.1}, "nothing"),
    "upper left": ((B, H), None, {"attn_mask": causal_upper_left(T, S)}, "causal_from_start"),
    "lower right": ((B, H), None, {"attn_mask": causal_lower_right(T, S)}, "causal"),
}


@pytest.mark.combinations
@pytest.mark.parametrize("case", CALLS)
@pytest.mark.parametrize("grad", [True, False])
def test_calls_of_torchs_function(case, grad):
    lead, kv_heads, options, mask = CALLS[case]
    kv_lead = lead if kv_heads is None else (*lead[:-1], kv_heads)
    q, k, v = (
        randn(*shape, n, 4, seed=n, dtype=torch.float32)
        for shape, n in ((lead, T), (kv_lead, S), (kv_lead, S))
    )
    given, added = MASKS[mask](lead, T, S)
    options = {n: x for n, x in options.items() if n != "attn_mask" or not isinstance(x, str)} | (
        {"attn_mask": given.added[0] if isinstance(given, sl.Mask) else given}
        if isinstance(options.get("attn_mask"), str)
        else {}
    )
    model = Sdpa(**options)
    blind = run(model, q, k, v, backward=grad)
    with sl.watch(model, keep=True) as seen:
        watched = run(model, q, k, v, backward=grad)
    assert same(blind, watched)
    if kv_heads is not None:
        k = k.repeat_interleave(lead[-1] // kv_heads, -3)
    agrees(seen[""], *matrix(q.double(), k.double(), added, scale=options.get("scale")))
    assert seen[""].lead == lead


def test_a_bias_that_learns():
    q, k, v = (randn(B, H, n, 4, seed=n, dtype=torch.float32) for n in (T, S, S))
    model = Sdpa(randn(H, T, S, seed=9, dtype=torch.float32))
    blind = run(model, q, k, v)
    with sl.watch(model, keep=True) as seen:
        assert same(blind, run(model, q, k, v))
    with torch.no_grad():
        agrees(seen[""], *matrix(q.double(), k.double(), model.bias.double()))
    assert not any(x.requires_grad for x in seen[""].statistics.values())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("options", [{}, {"dropout_p": 0.2}], ids=str)
def test_half_precision(dtype, options):
    q, k, v = (randn(B, H, n, 4, seed=n, dtype=dtype) for n in (T, S, S))
    model = Sdpa(**options)
    with sl.watch(model, keep=True) as seen:
        model(q, k, v)
    agrees(seen[""], *matrix(q.double(), k.double()))


@pytest.mark.parametrize("backend", [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION])
def test_whichever_kernel_torch_takes(backend):
    q, k, v = (randn(B, H, n, 4, seed=n, dtype=torch.float32) for n in (T, S, S))
    model = Sdpa()
    with sdpa_kernel(backend):
        blind = run(model, q, k, v)
        with sl.watch(model, keep=True) as seen:
            assert same(blind, run(model, q, k, v))
    agrees(seen[""], *matrix(q.double(), k.double()))
