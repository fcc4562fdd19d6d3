"""``watch``: what a model attends to, the same output and gradients, and no trace."""

import threading
import warnings

import pytest
import torch
import torch.nn.functional as F
from look_oracle import MASKS, agrees, matrix, near, picture, randn
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right, causal_upper_left
from torch.utils.checkpoint import checkpoint

import sightline as sl

E, H, B, T, S = 12, 3, 2, 5, 7


def run(model, *args, backward=True, **kwargs):
    """Output and gradients, the same dice each time."""
    torch.manual_seed(3)
    model.zero_grad()
    args = [x.detach().clone().requires_grad_(backward) if x.is_floating_point() else x for x in args]
    if len(args) == 3 and args[0].shape == args[1].shape == args[2].shape:
        args = [args[0]] * 3
    out = model(*args, **kwargs)
    out = out[0] if isinstance(out, tuple) else out
    if not backward:
        return [out]
    out.square().sum().backward()
    return [out.detach(), *(x.grad for x in args), *(p.grad for p in model.parameters())]


def same(a, b):
    return all((x is None and y is None) or torch.equal(x, y) for x, y in zip(a, b, strict=True))


def hooks(model):
    return [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()]


def traces():
    return (
        torch.backends.mha.get_fastpath_enabled(),
        torch._C._len_torch_function_stack(),
        torch.utils._python_dispatch._len_torch_dispatch_stack()
        if hasattr(torch.utils._python_dispatch, "_len_torch_dispatch_stack")
        else torch._C._len_torch_dispatch_stack(),
    )


def mha_matrix(module, query, key, added=None):
    """The weights of an nn.MultiheadAttention, (B, H, T, S), from its parameters; batch first."""
    w_q, w_k, _ = module.in_proj_weight.double().chunk(3)
    b_q, b_k, _ = module.in_proj_bias.double().chunk(3)
    q, k = F.linear(query.double(), w_q, b_q), F.linear(key.double(), w_k, b_k)
    if module.bias_k is not None:
        k = torch.cat([k, module.bias_k.double().expand(k.size(0), 1, -1)], 1)
    if module.add_zero_attn:
        k = torch.cat([k, torch.zeros(k.size(0), 1, k.size(2))], 1)
    q, k = (x.unflatten(-1, (module.num_heads, -1)).transpose(1, 2) for x in (q, k))
    return matrix(q, k, added)


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


def transformers(nn):
    options = {"dim_feedforward": 5, "batch_first": True}
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(E, H, **options), 2, enable_nested_tensor=False
    )
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(E, H, **options), 2)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "enable_nested_tensor is True")  # no even number of heads
        both = nn.Transformer(E, H, 2, 2, **options)
    source, target = randn(B, S, E, seed=1, dtype=torch.float32), randn(B, T, E, seed=2, dtype=torch.float32)
    tower = [f"layers.{i}.self_attn" for i in range(2)]
    decoding = [f"layers.{i}.{kind}" for i in range(2) for kind in ("self_attn", "multihead_attn")]
    return {
        "encoder": (encoder, (source,), tower),
        "decoder": (decoder, (target, source), decoding),
        "both": (
            both,
            (source, target),
            [f"encoder.{n}" for n in tower] + [f"decoder.{n}" for n in decoding],
        ),
    }


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


class Sdpa(nn.Module):
    def __init__(self, bias=None, **options):
        super().__init__()
        self.options = options
        self.bias = None if bias is None else nn.Parameter(bias)

    def forward(self, q, k, v):
        mask = self.options | ({} if self.bias is None else {"attn_mask": self.bias})
        return F.scaled_dot_product_attention(q, k, v, **mask)


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


def test_nested_tensors_run_on_and_are_not_seen():
    model = Sdpa()
    x = torch.nested.nested_tensor([torch.randn(n, H, 4) for n in (3, 5)], layout=torch.jagged)
    x = x.transpose(1, 2)
    blind = model(x, x, x)
    with sl.watch(model) as seen:
        watched = model(x, x, x)
    assert torch.equal(watched.values(), blind.values())
    assert len(seen) == 0


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
    assert seen.unseen() == []  # the others were seen and not wanted
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
    assert not seen[""].kept[0].pairs.q.requires_grad


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
    with sl.watch(model, measure=sl.Look(map=64, top=9)) as seen:
        model(q, k, v)
    assert not {"map", "top"} & set(seen[""].statistics) or t == 0 < s


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


# No trace


def test_nothing_is_left_behind():
    model, inputs, _ = transformers(nn)["both"]
    before = hooks(model), traces()
    blind = run(model, *inputs)
    with sl.watch(model):
        assert hooks(model) != before[0]
        run(model, *inputs)
    assert (hooks(model), traces()) == before
    assert same(blind, run(model, *inputs))


class Fails(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner, self.after = inner, nn.Identity()
        self.after.register_forward_pre_hook(self.raise_)

    def raise_(self, *_):
        raise KeyError("inside")

    def forward(self, x):
        return self.after(self.inner(x, x, x)[0])


def test_nor_after_an_exception():
    model, x = Fails(nn.MultiheadAttention(E, H)), torch.randn(T, B, E)
    before = hooks(model), traces()
    with pytest.raises(KeyError, match="inside"), sl.watch(model) as seen:
        model(x)
    assert (hooks(model), traces()) == before
    assert seen.names() == ["inner"]


def test_an_exception_that_the_model_handles_itself():
    class Handles(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = Fails(nn.MultiheadAttention(E, H)), nn.MultiheadAttention(E, H)

        def forward(self, x):
            try:
                x = self.first(x)
            except KeyError:
                x = self.second(x, x, x)[0]
            q = x.reshape(B, H, T, 4)
            return F.scaled_dot_product_attention(q, q, q)

    model = Handles()
    with sl.watch(model) as seen:
        model(torch.randn(T, B, E))
    assert seen.names() == ["first.inner", "second", ""]


def test_nested_watches_and_looks_inside():
    class Looks(nn.Module):
        def forward(self, x):
            return sl.look(x, x, x).received

    model, inputs, names = transformers(nn)["encoder"]
    before = traces()
    with sl.watch(model) as outer, sl.watch(model, layers="*.1.*") as inner:
        model(*inputs)
        with sl.watch(model.layers[0]) as innermost:
            model(*inputs)
    assert [len(outer.calls(n)) for n in names] == [2, 2]
    assert [len(x) for _, x in inner.items()] == [2]
    assert innermost.names() == ["self_attn"]
    for a, b in zip(outer.calls(names[1]), inner.calls(names[1]), strict=True):
        assert torch.equal(a.received, b.received)
    assert traces() == before
    with sl.watch(Looks()) as seen:
        torch.nn.Module.__call__(seen._model, torch.randn(1, 2, T, 3))
    assert len(seen.calls("")) == 1


def test_entering_again():
    model, x = nn.MultiheadAttention(E, H), torch.randn(T, B, E)
    watching = sl.watch(model)
    with watching as first:
        model(x, x, x)
        with pytest.raises(RuntimeError, match="entered already"), watching:
            pass
        model(x, x, x)
    with watching as second:
        model(x, x, x)
    assert (len(first.calls("")), len(second.calls(""))) == (2, 1)


def test_another_thread_is_refused():
    model, x = nn.Sequential(nn.Identity(), sl.nn.SelfAttention(E, 5, 7)), torch.randn(B, T, E)
    answers = []

    def elsewhere():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                model(x)
        except RuntimeError as error:
            answers.append(str(error))

    with sl.watch(model) as seen:
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        model(x)
    assert len(answers) == 1
    assert "must run in the thread that watches it" in answers[0]
    assert len(seen.calls("1")) == 1
    threading.Thread(target=elsewhere).start()


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("need_weights", [True, False])
def test_gradient_checkpointing_does_not_count_twice(reentrant, need_weights):
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.attn = nn.MultiheadAttention(E, H)

        def forward(self, x):
            return checkpoint(self.step, x, use_reentrant=reentrant)

        def step(self, x):
            return self.attn(x, x, x, need_weights=need_weights)[0]

    model, x = Checkpointed(), randn(T, B, E, dtype=torch.float32)
    blind = run(model, x)
    with sl.watch(model) as seen:
        assert same(blind, run(model, x))
        assert len(seen.calls("attn")) == 1
        run(model, x)
    assert len(seen.calls("attn")) == 2


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients(mode):
    model, x = nn.MultiheadAttention(E, H, batch_first=True), randn(B, T, E, dtype=torch.float32)
    with mode(), sl.watch(model, keep=True) as seen:
        model(x, x, x)
        model(x, x, x, need_weights=False)
    with torch.no_grad():
        for sight in seen[""]:
            agrees(sight, *mha_matrix(model, x, x))
            agrees(sight[1, 2], *(y[1, 2] for y in mha_matrix(model, x, x)))


@pytest.mark.parametrize("options", [{}, {"dropout_p": 0.2}], ids=str)
def test_autocast(options):
    """The kernel rounds q and k to bfloat16; what is seen is exact for those."""
    q, k, v = (randn(B, H, n, 4, seed=n, dtype=torch.float32) for n in (T, S, S))
    model = Sdpa(**options)
    with torch.autocast("cpu", torch.bfloat16):
        torch.manual_seed(1)
        blind = model(q, k, v)
        with sl.watch(model, keep=True) as seen:
            torch.manual_seed(1)
            assert torch.equal(model(q, k, v), blind)
        looked = sl.look(q, k, v)
        assert torch.equal(looked.output, sl.attention(q, k, v))
    assert blind.dtype == torch.bfloat16
    rounded = matrix(q.bfloat16().double(), k.bfloat16().double())
    agrees(seen[""], *rounded)
    agrees(looked, *rounded)


def test_autocast_of_a_module_with_weights():
    model, x = nn.MultiheadAttention(E, H, batch_first=True), randn(B, T, E, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        blind = model(x, x, x)[0]
        with sl.watch(model) as seen:
            assert torch.equal(model(x, x, x)[0], blind)
    with torch.no_grad():
        near(seen[""].received, mha_matrix(model, x, x)[0].sum(-2), rtol=0, atol=0.03)


# What can't be seen


class HandMadeAttention(nn.Module):
    def forward(self, x):
        return (x @ x.mT).softmax(-1) @ x


def test_attention_by_hand_is_explained():
    model = nn.Sequential(*(HandMadeAttention() for _ in range(5)))
    with sl.watch(model) as seen:
        model(torch.randn(B, T, E))
    told = repr(seen)
    assert "0 (HandMadeAttention), 1 (HandMadeAttention), 2 (HandMadeAttention) and 2 more" in told
    assert "by hand" in told
    assert "attn_implementation='sdpa'" in told
    assert "fused_attn=True" in told
    assert seen.unseen() == list("01234")
    with pytest.raises(ValueError, match=r"0 \(HandMadeAttention\)"):
        seen["0"]


def test_some_seen_and_some_not():
    model = nn.Sequential(HandMadeAttention(), sl.nn.SelfAttention(E, 5, E))
    with sl.watch(model) as seen:
        assert "has not run yet" in repr(seen)
        model(torch.randn(B, T, E))
    assert seen.names() == ["1"]
    assert "not seen, though they look like attention: 0" in repr(seen)


def test_a_model_without_attention():
    model = nn.Linear(3, 5)
    with sl.watch(model) as seen:
        model(torch.randn(2, 3))
    assert "no fused attention ran" in repr(seen)
    assert seen.names() == []


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"every": 0}, "every must be .*got 0"),
        ({"every": -3}, "every must be .*got -3"),
        ({"every": 1.5}, r"every must be a whole number .*got 1\.5"),
        ({"every": "2"}, "every must be .*got '2'"),
        ({"layers": 3}, "layers must be a pattern or a function .*got int"),
        ({"measure": {"map": 3}}, r"measure must be a sl\.Look, got dict"),
        ({"limit": -1}, "limit must be .*got -1"),
    ],
)
def test_options_that_can_not_be(options, sentence):
    with pytest.raises((ValueError, TypeError), match=sentence):
        sl.watch(nn.Linear(2, 3), **options)


@pytest.mark.bad_input
def test_what_is_no_module():
    with pytest.raises(TypeError, match=r"takes an nn\.Module, got builtin_function_or_method; sl\.look"):
        sl.watch(F.scaled_dot_product_attention)


@pytest.mark.bad_input
def test_compiled_models():
    sentence = r"compiled module, here (the model itself|0) \(\w+\)"
    model = nn.Sequential(nn.MultiheadAttention(E, H))
    with pytest.raises(ValueError, match=sentence):
        sl.watch(torch.compile(model, backend="eager"))
    model[0].compile(backend="eager")
    with pytest.raises(ValueError, match=sentence):
        sl.watch(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(nn.Linear(2, 3), torch.randn(1, 2))
    with pytest.raises(ValueError, match=sentence):
        sl.watch(nn.Sequential(traced))
