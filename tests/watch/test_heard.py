"""Small models that attend in every way, heard by keys or by a mode: each sight is that of the matrix."""

import contextlib
import warnings
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import sightline as sl
from sightline.look.recording import Recording
from sightline.watch import batching, intercept, kernel_calls, listeners
from sightline.watch.attention_call import kernel_call
from sightline.watch.kernel_calls import KernelCall, kernel_of
from sightline.watch.padding import Padding
from tests.look.look_oracle import matrix, near, randn
from tests.seams import batched_on

pytestmark = pytest.mark.plain
B, H, T, S, D = 2, 3, 5, 7, 4


@pytest.fixture(params=["by keys", "by a mode"])
def _either_way(request, monkeypatch):
    monkeypatch.setattr(intercept, "uses_compiled_code", lambda: request.param == "by a mode")


class Attends(nn.Module):
    """Calls a function of q, k and v in a module of a name that says nothing."""

    def __init__(self, function):
        super().__init__()
        self.inner = nn.Module()
        self.inner.forward = function
        self.inner.__dict__["_function"] = function

    def forward(self, *args):
        return self.inner(*args)


def softmax(q, k, v):
    return ((q @ k.mT) * D**-0.5).softmax(-1) @ v


def einsum(q, k, v):
    weights = torch.softmax(torch.einsum("bhtd,bhsd->bhts", q, k) / D**0.5, -1)
    return torch.einsum("bhts,bhsd->bhtd", weights.to(v.dtype), v)


def dropped(q, k, v):
    scores = torch.matmul(q, k.transpose(-2, -1)) * D**-0.5 + torch.zeros(T, S)
    return F.dropout(F.softmax(scores.masked_fill(torch.zeros(T, S) > 0, -9e9), dim=3), 0.0).matmul(v)


def flattened(q, k, v):
    q, k, v = (x.flatten(0, 1) for x in (q, k, v))
    bias = torch.zeros(B * H, T, S, dtype=q.dtype)
    weights = torch.baddbmm(bias, q, k.mT, beta=0.0, alpha=D**-0.5).softmax(2)
    return torch.bmm(weights.reshape(B, H, T, S).contiguous().flatten(0, 1), v).view(B, H, T, -1)


WAYS = {
    "sdpa": F.scaled_dot_product_attention,
    "ours": sl.attention,
    "ours, scaled": lambda q, k, v: sl.attention(q, k, v, scale=D**-0.5),
    "softmax": softmax,
    "einsum": einsum,
    "dropped": dropped,
    "flattened": flattened,
}


@pytest.mark.usefixtures("_either_way")
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_attend_is_seen(way, mode):
    q, k, v = randn(B, H, T, D), randn(B, H, S, D, seed=1), randn(B, H, S, D, seed=2)
    model = Attends(WAYS[way])
    weights, lse = matrix(q, k)
    with mode(), sl.watch(model, keep=True) as seen:
        output = model(q, k, v)
    assert torch.equal(output, WAYS[way](q, k, v))
    assert seen.names() == ["inner"]
    sight = seen["inner"]
    assert sight.source == ("kernel" if way in {"sdpa", "ours", "ours, scaled"} else "weights")
    near(sight.received.reshape(B, H, S), weights.sum(-2))
    near(sight.lse.reshape(B, H, T), lse)
    near(sight.map((T, S)).reshape(B, H, T, S), weights, atol=1e-6)
    assert not listeners.THREAD.open
    assert listeners.LISTENERS.get() == ()
    assert listeners.THREAD.has_told is False


@pytest.mark.usefixtures("_either_way")
def test_one_head_without_a_batch():
    q, k, v = randn(T, D), randn(S, D, seed=1), randn(S, D, seed=2)
    model = Attends(softmax)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode(), sl.watch(model) as seen:
            model(q, k, v)
        near(seen["inner"].received, matrix(q, k)[0].sum(-2))
        assert seen["inner"].lead == ()


@pytest.mark.usefixtures("_either_way")
def test_which_calls_and_modules_are_chosen():
    model = nn.ModuleDict({"a": Attends(F.scaled_dot_product_attention), "b": Attends(softmax)})
    x = randn(1, 2, T, D)

    def run():
        for _ in range(3):
            model["a"](x, x, x)
            model["b"](x, x, x)

    with torch.no_grad(), sl.watch(model, every=2) as seen:
        run()
    assert [len(calls) for _, calls in seen.items()] == [2, 2]
    assert [len(x.skipped) for x in seen.calls("a.inner")] == [0, 1]
    assert seen.calls("a.inner")[0].after.t == T
    with torch.no_grad(), sl.watch(model, layers="a.*") as seen:
        run()
    assert seen.names() == ["a.inner"]
    with warnings.catch_warnings(record=True) as told, torch.no_grad():
        warnings.simplefilter("always")
        with sl.watch(model, limit=0) as seen:
            run()
    assert len(seen) <= 2
    assert seen.full
    assert [x.filename for x in told] == [__file__]
    assert "sights of more than 0 bytes were collected" in str(told[0].message)


def test_nobody_is_told_in_a_backward_pass_or_by_a_closed_block():
    told = []

    class Open:
        is_open, is_following, hears_matrices = True, False, False

        def on_attention(self, call):
            told.append(call)

        def on_product(self, *_):
            return False

        on_softmax = on_change = on_select = on_product

    x = randn(1, 2, T, D)
    listener, other = Open(), Open()
    with intercept.listening(listener), intercept.listening(other):
        F.scaled_dot_product_attention(x, x, x)
        assert len(told) == 2
        with listeners.silence():
            F.scaled_dot_product_attention(x, x, x)
            assert listeners.listeners() == ()
        assert len(told) == 2
        other.is_open = False
        assert listeners.listeners() == (listener,)
        F.scaled_dot_product_attention(x, x, x)
        assert len(told) == 3
        other.is_open = True
        seen_inside = []
        y = x.clone().requires_grad_()
        y.register_hook(lambda _: seen_inside.append(listeners.listeners()))
        (y * 2).sum().backward()
        torch.vmap(lambda z: seen_inside.append(listeners.listeners()) or z)(x)
        assert seen_inside == [(), ()]
    assert listeners.listeners() == ()
    F.scaled_dot_product_attention(x, x, x)
    assert len(told) == 3
    assert listener.is_open is False


def test_a_block_that_can_not_begin_leaves_nothing(monkeypatch):
    class Listener:
        is_open = is_following = hears_matrices = False

    def fail():
        raise RuntimeError("no")

    listener = Listener()
    monkeypatch.setattr(intercept, "uses_compiled_code", fail)
    with pytest.raises(RuntimeError, match="no"), intercept.listening(listener):
        pass
    assert listeners.LISTENERS.get() == ()
    assert listener.is_open is False


# Calls that were heard


SDPA = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
OTHER_SDPA = torch.ops.aten._scaled_dot_product_cudnn_attention.default
LAYER = torch.ops.aten._native_multi_head_attention.default


def test_arguments_by_their_names_and_what_was_heard_inside():
    x = randn(1, 2, T, D)
    call = KernelCall(kernel_of(SDPA), (x, x, x, 0.0, True), {"scale": 0.5}, ("out", "lse"))
    assert call.fused is call
    assert call.is_inside is False
    assert call.arguments() == {
        "query": x,
        "key": x,
        "value": x,
        "dropout_p": 0.0,
        "is_causal": True,
        "scale": 0.5,
    }
    layer = KernelCall(kernel_of(LAYER), (x,), {}, None)
    assert layer.fused is None
    layer.parts = {}
    assert layer.fused is None
    layer.parts = {kernel_calls.KERNEL: call, kernel_calls.HEADS: "heads"}
    assert layer.fused is call
    assert layer.arguments()[kernel_calls.KERNEL] == (call.arguments(), ("out", "lse"))
    assert layer.arguments()[kernel_calls.HEADS] == "heads"
    layer.parts = {kernel_calls.HEADS: "heads"}
    assert kernel_calls.KERNEL not in layer.arguments()


# Calls that wait


@pytest.fixture
def calls():
    with batched_on("cpu"):
        yield batching.CallQueue()


def heard_call(q, k, bias=None, **more):
    kwargs = {} if bias is None else {"attn_mask": bias}
    result = (q, matrix(q, k, bias)[1])
    return KernelCall(kernel_of(SDPA), (q, k, k, 0.0, False), kwargs | more, result)


def test_what_may_wait_unread(calls, monkeypatch):
    q, k = randn(B, H, T, D), randn(B, H, S, D, seed=1)
    assert calls.put("a", heard_call(q, k)) == (B, T, S)
    assert calls.put("b", heard_call(q, k, torch.zeros(1, 1, T, S))) == (B, T, S)
    for heard_one in (
        heard_call(q.as_subclass(nn.Parameter), k),
        heard_call(q, k[:1].expand(1, H, S, D)),
        heard_call(q[..., :0, :], k),
        heard_call(q, k, torch.zeros(T, S)),
        heard_call(q, k, torch.zeros(1, 1, 1, T, S)),
    ):
        assert calls.put("c", heard_one) is None
    assert len(calls) == 2
    assert calls.nbytes == 2 * (q.nbytes + k.nbytes) + T * S * 4
    monkeypatch.setattr(batching, "_MUCH", B * H * T * D * S)
    assert calls.put("c", heard_call(q, k)) is None
    monkeypatch.undo()
    with batched_on("cuda"):
        assert calls.put("c", heard_call(q, k)) is None
    groups, lost = calls.take()
    assert ([group.names for group in groups], lost) == ([("a",), ("b",)], [])
    assert (len(calls), calls.nbytes, calls.is_full) == (0, 0, False)


def test_what_may_wait_once_it_was_read(calls, monkeypatch):
    q, k = randn(B, H, T, D), randn(B, H, S, D, seed=1)

    def call(mask=None, **more):
        return kernel_call(q, k, mask or sl.masks.causal(), 0.5, None, **more)

    assert calls.add("a", call()) is True
    assert calls.add("b", call(sl.masks.dense(torch.ones(T, S).bool()))) is True
    padding = torch.zeros(B, 1, T, dtype=torch.bool)
    assert calls.add("c", call(padding=padding)) is False
    assert calls.add("c", call(modify=lambda x, *_: x)) is False
    assert calls.add("c", call(sl.masks.padding(torch.tensor([3, 2])))) is False
    monkeypatch.setattr(batching, "_MUCH", q.numel() * S)
    assert calls.add("c", call()) is False
    monkeypatch.setattr(batching, "_MUCH", q.numel() * S + 1)
    assert calls.add("c", call()) is True
    assert calls.is_full
    assert [group.names for group in calls.take()[0]] == [("a", "c"), ("b",)]


def test_calls_of_one_shape_are_stacked(calls):
    q, k = randn(B, H, T, D), randn(B, H, S, D, seed=1)
    bias = randn(1, 1, T, S, seed=3)
    for i, name in enumerate("abc"):
        calls.put(name, heard_call(q + i, k))
    calls.put("d", heard_call(q, k, bias))
    calls.put("e", heard_call(q + 1, k, bias))
    calls.put("f", heard_call(q, k, scale=0.25))
    groups, _ = calls.take()
    assert [x.names for x in groups] == [("a", "b", "c"), ("d", "e"), ("f",)]
    assert [x.orders for x in groups] == [(0, 1, 2), (3, 4), (5,)]
    plain, biased, scaled = (x.stack() for x in groups)
    calls.put("g", heard_call(q, k), facts=(bias, True, None))
    assert len(calls.take()[0][0].stack().inputs.mask.bands) == 1
    assert plain.lead == (3 * B, H)
    assert (plain.inputs.scale, scaled.inputs.scale) == (D**-0.5, 0.25)
    near(plain.inputs.q, torch.cat([q, q + 1, q + 2]))
    near(plain.lse, torch.cat([matrix(q + i, k)[1] for i in range(3)]))
    assert biased.inputs.mask.added[0].shape == (1, 1, T, S)
    assert not plain.inputs.mask.limits
    with contextlib.ExitStack() as stack:
        stack.enter_context(groups[0].on_stream())


def test_what_a_group_has_in_common(calls):
    """The kernel too: each lays out its log-sum-exp in its own way."""
    q, k = randn(B, H, T, D), randn(B, H, S, D, seed=1)
    other = KernelCall(kernel_of(OTHER_SDPA), (q, k, k, None, True), {}, (q, matrix(q, k)[1].unsqueeze(-1)))
    for name, call in zip("abcd", (heard_call(q, k), other, heard_call(q, k), heard_call(q, q)), strict=True):
        assert calls.put(name, call) is not None
    calls.put("padded", heard_call(q, k), Padding("attention_mask", torch.ones(B, T, dtype=torch.bool)))
    groups, _ = calls.take()
    assert [group.names for group in groups] == [("a", "c"), ("b",), ("d",), ("padded",)]
    assert [group.stack().lse.shape for group in groups[:2]] == [(2 * B, H, T), (B, H, T)]


def test_layers_on_two_devices_are_two_groups(calls):
    for name in ("cpu", "meta"):
        q = torch.zeros(B, H, T, D, device=name)
        result = (q, torch.zeros(B, H, T, device=name))
        call = KernelCall(kernel_of(SDPA), (q, q.clone(), q, 0.0, False), {}, result)
        with batched_on("cpu", "meta"):
            assert calls.put(name, call) is not None
    groups, _ = calls.take()
    assert [group.names for group in groups] == [("cpu",), ("meta",)]


def test_groups_are_measured_on_their_own_stream(monkeypatch):
    entered = []
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 17 + device, raising=False)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext(entered.append(stream)))
    own, other = (SimpleNamespace(cuda_stream=18, device_index=i) for i in (1, 2))
    for stream in (None, own, other):
        with batching.WaitingGroup([], stream).on_stream():
            pass
    assert entered == [other]


def test_what_was_written_to_is_lost(calls):
    q, k = randn(B, H, T, D), randn(B, H, S, D, seed=1)
    calls.put("a", heard_call(q, k))
    k.add_(1)
    groups, lost = calls.take()
    assert (groups, lost) == ([], ["a"])
    calls.put("a", heard_call(q, k))  # it has been written to before, so it is copied at once
    k.add_(1)
    assert calls.take()[1] == []
    x = randn(B, H, T, D)
    calls.put("a", heard_call(x, x))
    calls.put("b", heard_call(randn(B, H, T, D), k))  # by then what others still hold is copied
    x.add_(1)
    assert calls.take()[1] == []


# Alignments of what was seen


def seen_crossing(n=2):
    seen = Recording("Model", {})
    for i in range(n):
        q, k = randn(1, 3, T, D, seed=i), randn(1, 3, S, D, seed=7 + i)
        seen.add(f"{i}.cross_attn", sl.look(q, k, k))
    seen.add("self_attn", sl.look(*(randn(1, 3, T, D),) * 3))
    return seen


def test_heads_of_layers():
    seen = seen_crossing()
    first, last = (seen[f"{i}.cross_attn"] for i in range(2))
    options = {"method": "peak", "filter_width": 1}

    def peaks(*heads):
        return sum(x.map((T, S))[0, head] for x, head in heads).argmax(-1)

    assert torch.equal(sl.align(seen, [(0, 1), (-1, 2)], **options), peaks((first, 1), (last, 2)))
    assert torch.equal(sl.align(seen, [("1.cross_attn", -3)], **options), peaks((last, 0)))
    assert torch.equal(sl.align(seen, [(-2, 0)], **options), peaks((first, 0)))
    everything = [(x, head) for x in (first, last) for head in range(3)]
    assert torch.equal(sl.align(seen, **options), peaks(*everything))
    for layer in (2, -3):
        with pytest.raises(ValueError, match=rf"layers of cross-attention are 0\.\.1, got {layer}"):
            sl.align(seen, [(layer, 0)])
    with pytest.raises(
        ValueError, match=r"no cross-attention in '0\.cros_attn', .* did you mean '0\.cross_attn'"
    ):
        sl.align(seen, [("0.cros_attn", 0)])
    with pytest.raises(TypeError, match=r"heads of a model are pairs \(layer, head\), got 3"):
        sl.align(seen, [3])
    with pytest.raises(ValueError, match=r"one for each of the T=5 steps, got \(1, 4\) of torch\.int64"):
        sl.align(seen, beams=torch.zeros(1, T - 1).long())
    with pytest.raises(ValueError, match="beams must hold numbers, got a tensor on the meta device"):
        sl.align(seen, beams=torch.zeros(1, T, dtype=torch.long, device="meta"))
    assert sl.align(seen, beams=torch.zeros(2, T + 1).long()).shape == (2, T)
    window = {"queries": (2, 5), "method": "peak", "filter_width": 1}
    beams = torch.zeros(1, T, dtype=torch.long)
    assert torch.equal(sl.align(first, [1], beams=beams, **window), peaks((first, 1))[2:])
