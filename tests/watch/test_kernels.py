"""Every kernel that people use is read; packages that are not there, by operators of the same name."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import sightline as sl
from tests.look.look_oracle import agrees, matrix, near, picture, randn
from tests.watch.flash_stand_ins import FLASH, PAGED, VARLEN, band, dense, packed

B, H, T, S, D = 2, 3, 11, 13, 16

pytestmark = [
    pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning"),
]


class Calls(nn.Module):
    """Calls a function, as a module of a model would."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def inputs(t=T, s=S, kv_heads=H):
    return [
        randn(B, h, n, D, seed=i, dtype=torch.float32)
        for i, (h, n) in enumerate(((H, t), (kv_heads, s), (kv_heads, s)))
    ]


def seen_of(function, *args):
    """What is seen of one call, if its output is bit for bit what it is when nobody watches."""
    model = Calls(function)
    blind = model(*args)
    with sl.watch(model, keep=True) as seen:
        watched = model(*args)
    first, second = (x[0] if isinstance(x, tuple) else x for x in (blind, watched))
    assert torch.equal(first, second)
    assert seen.unseen() == {}
    return seen[""]


# FlexAttention


@pytest.mark.parametrize("what", ["plain", "score", "mask", "both", "grouped", "one batch of keys"])
def test_flex_attention(what):
    kv_heads = 1 if what == "grouped" else H
    q, k, v = inputs(kv_heads=kv_heads)
    slopes = torch.tensor([0.1, 0.5, 1.3])
    limits = torch.tensor([S, 5])
    options, added = {}, torch.zeros(B, H, T, S)
    i, j = torch.arange(T)[:, None], torch.arange(S)
    if what in ("score", "both"):
        options["score_mod"] = lambda score, b, h, i, j: (score + slopes[h] * (i - j)) + b * 0.0
        added = added + slopes[:, None, None] * (i - j)
    if what in ("mask", "both"):

        def may_look(b, h, i, j):
            return (j <= i + 2) & (j < limits[b])

        options["block_mask"] = create_block_mask(may_look, B, None, T, S, device="cpu")
        allowed = (j <= i + 2) & (j < limits[:, None, None, None])
        added = added.masked_fill(~allowed, -torch.inf)
    if what == "grouped":
        options["enable_gqa"] = True
    if what == "one batch of keys":  # torch allows it with a mask only
        k, v = k[:1], v[:1]
        options["block_mask"] = create_block_mask(lambda b, h, i, j: j >= 0, B, None, T, S, device="cpu")
    sight = seen_of(lambda q, k, v: flex_attention(q, k, v, **options), q, k, v)
    assert sight.source == "flex"
    assert sight.lead == (B, H)
    k = k.expand(B, H, S, D)
    agrees(sight, *matrix(q.double(), k.double(), added))
    near(sight[1].rows([3]), sight.rows([3])[1])
    near(sight[1, 2].rows([3]), sight.rows([3])[1, 2])


def test_flex_attention_and_sdpa_are_the_same_sight():
    q, k, v = inputs(s=T)
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, T, T, device="cpu")
    flex = seen_of(lambda q, k, v: flex_attention(q, k, v, block_mask=mask), q, k, v)
    fused = seen_of(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), q, k, v)
    hand = seen_of(
        lambda q, k, v: (
            (q @ k.mT / 4 + torch.full((T, T), torch.finfo().min).triu(1)).softmax(-1) @ v
        ),
        q, k, v,
    )  # fmt: skip
    for name in ("lse", "received", "entropy", "peak", "peak_at"):
        near(flex.statistics[name], fused.statistics[name], atol=1e-5)
        near(hand.statistics[name], fused.statistics[name], atol=1e-5)
    assert [x.source for x in (flex, fused, hand)] == ["flex", "kernel", "weights"]


# flash-attn, xformers and variable lengths, by stand-ins


@pytest.mark.parametrize("kv_heads", [H, 1])
@pytest.mark.parametrize("case", ["plain", "causal", "window", "softcap", "alibi"])
def test_flash_attn(case, kv_heads):
    q, k, v = inputs(kv_heads=kv_heads)
    causal, left = case in ("causal", "alibi"), 3 if case == "window" else -1
    softcap, slopes = 0.7 if case == "softcap" else 0.0, torch.tensor([0.1, 0.4, 0.9])

    def attend(q, k, v):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        return FLASH(q, k, v, 0.0, 0.3, causal, left, -1, softcap, slopes if case == "alibi" else None, False)

    sight = seen_of(attend, q, k, v)
    added = band(T, S, left, 0 if causal else -1).double()
    if case == "alibi":
        added = added - slopes[:, None, None] * (torch.arange(T)[:, None] + 2 - torch.arange(S)).abs()
    scores = q.double() @ k.double().expand(B, H, S, D).mT * 0.3
    scores = scores if not softcap else softcap * (scores / softcap).tanh()
    agrees(sight, *matrix(q, k, added, scores=scores))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", [((3, 7, 5), (3, 7, 5)), ((3, 2, 5), (3, 7, 6))], ids=str)
def test_packed_sequences(causal, lengths):
    ts, ss = lengths
    q, k, v = (randn(sum(n), H, D, seed=i, dtype=torch.float32) for i, n in enumerate((ts, ss, ss)))
    cu_q, cu_k = (torch.tensor([0, *torch.tensor(n).cumsum(0).tolist()], dtype=torch.int32) for n in lengths)

    def attend(q, k, v):
        return VARLEN(q, k, v, cu_q, cu_k, max(ts), max(ss), 0.0, 0.25, causal)

    sight = seen_of(attend, q, k, v)
    assert (sight.lead, sight.t, sight.s) == ((3, H), max(ts), max(ss))
    assert sight.padding == "lengths"
    for i, (t, s) in enumerate(zip(ts, ss, strict=True)):
        a, b = (x[cu[i] : cu[i + 1]].transpose(0, 1).double() for x, cu in ((q, cu_q), (k, cu_k)))
        weights, lse = matrix(a, b, band(t, s, -1, 0 if causal else -1), scale=0.25)
        near(sight.rows(list(range(t)))[i, ..., :s], weights, atol=1e-6)
        near(sight.received[i, :, :s], weights.sum(-2), atol=1e-6)
        near(sight.lse[i, :, :t], lse, atol=1e-5)
        assert sight.entropy[i, :, t:].isnan().all()
        assert not sight.received[i, :, s:].any()


def test_torchs_varlen_attn(monkeypatch):
    from torch.nn.attention import varlen

    ts = (3, 7, 5)
    q, k, v = (randn(sum(ts), H, D, seed=i, dtype=torch.float32) for i in range(3))
    cu = torch.tensor([0, 3, 10, 15], dtype=torch.int32)
    library = torch.library.Library("torch_attn", "IMPL")

    def kernel(q, k, v, cu_q, cu_k, _mq, _mk, is_causal=False, scale=None, window_size=None, *_args):
        scale = q.size(-1) ** -0.5 if scale is None else scale
        out, lse = packed(q, k, v, cu_q, cu_k, scale, lambda t, s: band(t, s, *(window_size or (-1, -1))))
        return out, lse, torch.zeros(2, dtype=torch.uint64)

    library.impl("_varlen_attn", kernel, "CPU", allow_override=True)
    try:
        sight = seen_of(
            lambda q, k, v: varlen.varlen_attn(q, k, v, cu, cu, 7, 7, window_size=(-1, 0)), q, k, v
        )
    finally:
        library._destroy()
    weights, _ = matrix(q[3:10].transpose(0, 1).double(), k[3:10].transpose(0, 1).double(), band(7, 7, -1, 0))
    near(sight.received[1], weights.sum(-2), atol=1e-6)


def efficient(
    q, k, v, bias, cu_q, cu_k, _mq, _mk, _p, kind, lse=False, scale=None, seqlen_k=None, window=None
):
    t, s = q.size(1), k.size(1)
    added = torch.zeros(t, s) if kind == 0 else band(t, s, -1, 0, 0 if kind == 1 else None)
    added = added if bias is None else added + bias
    out, lse = dense(q, k, v, q.size(-1) ** -0.5 if scale is None else scale, added)
    return out, F.pad(lse, (0, -lse.size(-1) % 8)), torch.empty(0), torch.empty(0), t, s


@pytest.mark.parametrize("kind", [0, 1, 2])
@pytest.mark.parametrize("biased", [False, True])
def test_xformers(kind, biased):
    library = torch.library.Library("aten", "IMPL")
    library.impl("_efficient_attention_forward", efficient, "CPU")
    q, k, v = inputs()
    bias = randn(B, H, T, S, seed=7, dtype=torch.float32) if biased else None

    def attend(q, k, v):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        call = torch.ops.aten._efficient_attention_forward
        return call(q, k, v, bias, None, None, None, None, 0.0, kind, True, scale=0.2)

    try:
        sight = seen_of(attend, q, k, v)
    finally:
        library._destroy()
    added = torch.zeros(T, S) if kind == 0 else band(T, S, -1, 0, 0 if kind == 1 else None)
    added = added if bias is None else added + bias
    agrees(sight, *matrix(q.double(), k.double(), added.double(), scale=0.2))


@pytest.mark.filterwarnings("ignore:.*ran and could not be read:UserWarning")
def test_a_paged_cache_is_named():
    q, k, v = (x.transpose(1, 2) for x in inputs())
    model = Calls(lambda q, k, v: PAGED(q, k, v, 0.3, False, torch.zeros(1, dtype=torch.int32)))
    blind = model(q, k, v)[0]
    with sl.watch(model) as seen:
        assert torch.equal(model(q, k, v)[0], blind)
    assert seen.unseen() == {"": "its keys lie in the pages of a cache, which a look does not follow"}
    model = Calls(lambda q, k, v: PAGED(q, k, v, 0.3, False, None))
    with sl.watch(model, keep=True) as seen:
        model(q, k, v)
    agrees(seen[""], *matrix(*(x.transpose(1, 2).double() for x in (q, k)), scale=0.3))


# By hand


def test_a_sink_takes_its_share():
    q, k, v = inputs()
    sinks = torch.tensor([0.3, -1.0, 2.0])

    def attend(q, k, v):
        scores = q @ k.mT / math.sqrt(D)
        with_sink = torch.cat([scores, sinks[:, None, None].expand(B, -1, T, 1)], -1)
        with_sink = with_sink - with_sink.amax(-1, keepdim=True)
        return F.dropout(with_sink.softmax(-1)[..., :-1], 0.0) @ v

    sight = seen_of(attend, q, k, v)
    scores = q.double() @ k.double().mT / math.sqrt(D)
    weights = torch.cat([scores, sinks[:, None, None].expand(B, -1, T, 1).double()], -1).softmax(-1)[..., :-1]
    assert (sight.t, sight.s) == (T, S)
    near(sight.rows(range(T)), weights, atol=1e-6)
    near(sight.received, weights.sum(-2), atol=1e-6)
    near(sight.entropy, torch.special.entr(weights).sum(-1), atol=1e-5)
    near(sight.peak, weights.amax(-1), atol=1e-6)
    near(sight.map((4, 3)), picture(weights, 4, 3), atol=1e-6)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_einsum_softcap_bias_dropout_and_head_masks(training, dtype):
    q, k, v = (x.to(dtype) for x in inputs())
    bias = randn(1, H, T, S, seed=5, dtype=dtype)
    head_mask = torch.tensor([1.0, 0.0, 2.0], dtype=dtype)[:, None, None]

    def attend(q, k, v):
        torch.manual_seed(3)
        scores = torch.einsum("bhtd,bhsd->bhts", q, k) * 0.2
        scores = 3.0 * torch.tanh(scores / 3.0) + bias
        weights = F.softmax(scores, dim=-1, dtype=torch.float32).to(dtype)
        weights = F.dropout(weights, 0.3, training) * head_mask
        return torch.einsum("bhts,bhsd->bthd", weights, v)

    sight = seen_of(attend, q, k, v)
    scores = q.double() @ k.double().mT * 0.2
    weights = (3.0 * (scores / 3.0).tanh() + bias.double()).softmax(-1)
    near(sight.received, weights.sum(-2), rtol=1e-5 if dtype == torch.float32 else 3e-2, atol=1e-5)


def test_no_softmax_is_taken_for_attention_that_is_none():
    class Head(nn.Module):
        def __init__(self):
            super().__init__()
            self.router, self.experts = nn.Linear(D, 5), nn.Parameter(torch.randn(5, D))

        def forward(self, x, y):
            mixed = self.router(x).softmax(-1) @ self.experts  # a mixture by learned logits
            similar = (x @ y.mT).softmax(-1)  # a similarity that nothing is multiplied with
            return mixed.sum() + similar.log().sum()

    model = Head()
    with sl.watch(model) as seen:
        model(torch.randn(T, D), torch.randn(S, D))
    assert seen.names() == []


# DTensors


@pytest.mark.plain  # its shapes are others' too
def test_dtensors():
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.experimental import register_sharding

    # Without this, torch finds out how the kernel for the CPU may be cut by taking it apart: 37 s.
    @register_sharding(torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default)
    def _(q, k, v, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None):
        return [([cut] * 2, [cut] * 3 + [None] * 2) for cut in (Replicate(), Shard(0), Shard(1))]

    store = dist.HashStore()
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        for placement in (Shard(0), Shard(1), Replicate()):
            q, k, v = (distribute_tensor(x, mesh, [placement]) for x in inputs(s=T))
            model = Calls(F.scaled_dot_product_attention)
            blind = model(q, k, v).full_tensor()
            with sl.watch(model, keep=True) as seen:
                watched = model(q, k, v)
            assert watched.placements == (placement,)
            assert torch.equal(watched.full_tensor(), blind)
            assert seen.unseen() == {}
            agrees(seen[""], *matrix(*(x.full_tensor().double() for x in (q, k))))
    finally:
        dist.destroy_process_group()
