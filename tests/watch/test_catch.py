"""The kernel that torch would choose, called without torch's function around it."""

import warnings
from contextlib import contextmanager

import pytest
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import sightline as sl
from sightline.watch import catch

B, H, T, S, D = 2, 3, 7, 11, 5
causal = sl.masks.causal


def make(dtype=torch.float32, t=T, s=S, d=D):
    torch.manual_seed(13)
    return tuple(torch.randn(B, H, n, d, dtype=dtype) for n in (t, s, s))


def refuse(*_args, **_kwargs):
    raise AssertionError("the detour was taken")


MASKS = {"no mask": None, "causal": causal(), "causal from the start": causal(align="start")}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_a_plain_look_calls_the_kernel_alone_and_gives_what_attention_gives(monkeypatch, dtype, mask):
    q, k, v = make(dtype, s=T)
    monkeypatch.setattr("sightline.look.look.run_with_lse", refuse)
    sight = sl.look(q, k, v, mask)
    assert torch.equal(sight.output, sl.attention(q, k, v, mask))
    scores = q.double() @ k.double().mT * D**-0.5
    if mask is not None:
        scores = scores.masked_fill(~mask.dense(T, T), -torch.inf)
    torch.testing.assert_close(sight.lse.double(), scores.logsumexp(-1), atol=1e-5, rtol=1e-5)


def test_more_keys_than_queries_are_lined_up_as_the_kernel_does():
    q, k, v = make()
    output, lse = catch.call_kernel(q, k, v, is_causal=True)
    assert torch.equal(output, F.scaled_dot_product_attention(q, k, v, is_causal=True))
    scores = (q @ k.mT * D**-0.5).masked_fill(~torch.ones(T, S, dtype=torch.bool).tril(), -torch.inf)
    torch.testing.assert_close(lse, scores.logsumexp(-1))


OTHERS = {
    "a bias": lambda q, k, v: sl.look(q, k, v, torch.randn(T, S)),
    "a scale": lambda q, k, v: sl.look(q, k, v, scale=0.25),
    "a score": lambda q, k, v: sl.look(q, k, v, score="dot"),
    "three dimensions": lambda q, k, v: sl.look(q[0], k[0], v[0]),
    "causal at the end": lambda q, k, v: sl.look(q, k, v, causal()),
    "grouped heads": lambda q, k, v: sl.look(torch.cat([q, q], 1), k, v),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_what_attention_does_more_for_goes_through_attention(monkeypatch, other):
    monkeypatch.setattr("sightline.look.look.call_kernel", refuse)
    assert other(*make()).output.shape[-2:] == (T, D)


class DispatchMode(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class FunctionMode(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@contextmanager
def another_function():
    kept, F.scaled_dot_product_attention = F.scaled_dot_product_attention, lambda *args: args[2]
    try:
        yield
    finally:
        F.scaled_dot_product_attention = kept


@contextmanager
def another_implementation():
    with torch.library._scoped_library("aten", "IMPL") as library, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is replaced
        library.impl("scaled_dot_product_attention", lambda q, k, v, *_args, **_kwargs: q * 0, "CPU")
        yield


CONTEXTS = {
    "another function": another_function,
    "another implementation": another_implementation,
    "watched": lambda: sl.watch(torch.nn.Linear(2, 3)),
    "edited": lambda: sl.edit(torch.nn.MultiheadAttention(2, 1), scale=0.5),
    "a dispatch mode": DispatchMode,
    "a function mode": FunctionMode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "nothing": torch.no_grad,
}


@pytest.mark.parametrize("context", CONTEXTS)
def test_who_listens_or_changes_calls_still_does(context):
    q, k, v = make()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a watch in which no model runs
        with CONTEXTS[context]():
            known = catch.call_kernel(q, k, v, is_causal=False)
    assert (known is None) is (context != "nothing")


def test_gradients_transforms_traces_and_backward_passes_take_the_whole_way():
    q, k, v = make()
    leaf = q.clone().requires_grad_()
    assert catch.call_kernel(leaf, k, v, is_causal=False) is None
    assert catch.call_kernel(q, leaf[:, :, :T], k[:, :, :T], is_causal=False) is None
    assert catch.call_kernel(q, k[:, :, :T], leaf, is_causal=False) is None
    with torch.no_grad():
        assert catch.call_kernel(leaf, k, v, is_causal=False) is not None
    found = []

    def note(x):
        found.append(catch.call_kernel(q, k, v, is_causal=False))
        return x

    torch.vmap(note)(torch.zeros(2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch would rather compile
        torch.jit.trace(note, torch.zeros(2), check_trace=False)
    y = torch.zeros(2, requires_grad=True)
    y.register_hook(note)
    y.sum().backward()
    assert found == [None] * 3
    sight = sl.look(leaf, k, v)
    sight.output.sum().backward()
    assert leaf.grad is not None


def test_other_devices_go_their_own_way(monkeypatch):
    q, k, v = (x.to("meta") for x in make())
    monkeypatch.setattr(torch, "_fused_sdp_choice", refuse)
    assert catch.call_kernel(q, k, v, is_causal=False) is None


GPU_KERNELS = {
    "_scaled_dot_product_cudnn_attention": (torch.nn.attention.SDPBackend.CUDNN_ATTENTION, (None, True, 0.0)),
    "_scaled_dot_product_efficient_attention": (
        torch.nn.attention.SDPBackend.EFFICIENT_ATTENTION,
        (None, True, 0.0),
    ),
}


@pytest.mark.parametrize("name", GPU_KERNELS)
@pytest.mark.parametrize("is_causal", [False, True])
def test_torch_chooses_the_kernel(monkeypatch, name, is_causal):
    q, k, v = make()
    backend, rest = GPU_KERNELS[name]
    lse = torch.randn(B, H, T, 1)
    chosen, called = [], []
    monkeypatch.setattr(torch, "_fused_sdp_choice", lambda *args: chosen.append(args) or backend.value)
    monkeypatch.setattr(torch, name, lambda *args: called.append(args) or (q, lse, None))
    output, found = catch.call_kernel(q, k, v, is_causal=is_causal)
    assert output is q
    assert torch.equal(found, lse[..., 0])
    assert chosen[0][:3] == called[0][:3] == (q, k, v)
    assert chosen[0][3:] == (None, 0.0, is_causal)
    assert called[0][3:] == (*rest, is_causal)


def test_no_kernel_at_all_is_torchs_business():
    q, k, v = make()
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        assert catch.call_kernel(q, k, v, is_causal=False) is None
        sight = sl.look(q, k, v)
        assert torch.equal(sight.output, sl.attention(q, k, v))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("backend", ["CUDNN_ATTENTION", "FLASH_ATTENTION", "EFFICIENT_ATTENTION"])
@pytest.mark.parametrize("width", [61, 64, 128])
@pytest.mark.parametrize("is_causal", [False, True])
def test_kernels_on_a_gpu_give_what_torchs_function_gives(backend, width, is_causal):
    q, k, v = (x.to("cuda", torch.bfloat16) for x in make(t=257, s=257, d=width))
    with torch.nn.attention.sdpa_kernel(getattr(torch.nn.attention.SDPBackend, backend)):
        try:
            expected = F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)
        except RuntimeError:
            pytest.skip("torch has no such kernel for this width")
        known = catch.call_kernel(q, k, v, is_causal=is_causal)
        assert (known is None) is (backend == "FLASH_ATTENTION" and width == 61)
        assert torch.equal(sl.look(q, k, v, causal() if is_causal else None).output, expected)
        if known is not None:
            output, lse = known
            assert torch.equal(output, expected)
            scores = q.double() @ k.double().mT * width**-0.5
            if is_causal:
                scores = scores.masked_fill(~causal().dense(257, 257, device="cuda"), -torch.inf)
            torch.testing.assert_close(lse.double(), scores.logsumexp(-1), atol=2e-5, rtol=2e-5)
