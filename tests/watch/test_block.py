"""``watch``: no trace when the block is left, and what happens inside it."""

import gc
import threading
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import sightline as sl
from tests.look.look_oracle import agrees, matrix, near, randn
from tests.watch.watch_oracle import B, E, H, S, Sdpa, T, mha_matrix, run, same, transformers


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


# No trace


def test_nothing_is_left_behind():
    model, inputs, _ = transformers(nn)["both"]
    before = hooks(model), traces()
    blind = run(model, *inputs)
    with sl.watch(model):
        assert hooks(model) == before[0]  # nothing is hooked into the model
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
    looks = Looks()
    with sl.watch(looks) as seen:
        looks(torch.randn(1, 2, T, 3))
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


def test_each_thread_has_its_own_watch():
    """One model in several threads: each watch sees what its thread ran, and nothing else."""
    model = nn.Sequential(nn.Identity(), sl.nn.SelfAttention(E, 5, 7))
    inputs = [randn(B, n, E, seed=n, dtype=torch.float32) for n in (3, 5, 7)]
    blind = [model(x) for x in inputs]
    together, found = threading.Barrier(3), {}

    def elsewhere(i):
        with sl.watch(model) as seen:
            together.wait()
            out = [model(inputs[i]) for _ in range(i + 1)]
            together.wait()
        found[i] = seen, out

    threads = [threading.Thread(target=elsewhere, args=(i,)) for i in range(3)]

    def run_threads():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    with pytest.warns(UserWarning, match="in the same thread: generate_batch"), sl.watch(model) as unrun:
        run_threads()
    assert "in the same thread" in repr(unrun)
    for i, (seen, out) in found.items():
        assert [(x.t, x.s) for x in seen.calls("1")] == [(inputs[i].size(1),) * 2] * (i + 1)
        assert all(torch.equal(x, blind[i]) for x in out)


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


class LinearAttention(nn.Module):
    """No softmax over scores anywhere: there is no matrix of weights to speak of."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(E, E)

    def forward(self, x):
        q, k = x.softmax(-1), x.softmax(-2)
        return self.out(q @ (k.mT @ x))


def test_attention_by_hand_is_seen():
    model = nn.Sequential(HandMadeAttention(), HandMadeAttention())
    x = randn(B, T, E, dtype=torch.float32)
    blind = run(model, x)
    with sl.watch(model, keep=True) as seen:
        assert same(blind, run(model, x))
    assert seen.names() == ["0", "1"]
    assert seen.unseen() == {}
    assert seen["0"].source == "weights"
    agrees(seen["0"], *matrix(x.double(), x.double(), scale=1.0))


def test_what_can_not_be_read_is_explained():
    model = nn.Sequential(*(LinearAttention() for _ in range(5)))
    sentence = r"5 attentions of Sequential ran and could not be read: 0 \(Linear"
    with pytest.warns(UserWarning, match=sentence), sl.watch(model) as seen:
        model(torch.randn(B, T, E))
    told = repr(seen)
    assert "0 (LinearAttention), 1 (LinearAttention), 2 (LinearAttention) and 2 more" in told
    assert "no softmax over products of queries and keys ran" in told
    assert list(seen.unseen()) == list("01234")
    with pytest.raises(ValueError, match=r"0 \(LinearAttention\)"):
        seen["0"]


def test_some_seen_and_some_not():
    model = nn.Sequential(LinearAttention(), sl.nn.SelfAttention(E, 5, E))
    sentence = "an attention of Sequential ran and could not be read: 0"
    with pytest.warns(UserWarning, match=sentence), sl.watch(model) as seen:
        model(torch.randn(B, T, E))
    assert seen.names() == ["1"]
    assert "not seen: 1, 0 (LinearAttention)" in repr(seen)
    with pytest.raises(ValueError, match="'0' attended and was not seen: no attention kernel"):
        seen["0"]


def test_a_model_without_attention():
    model = nn.Linear(3, 5)
    with sl.watch(model) as seen:
        assert "has not run yet" in repr(seen)
        model(torch.randn(2, 3))
    assert "no attention kernel and no softmax" in repr(seen)
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
        ({"measure": {"map": 3}}, r"measure must be a sl\.Look or a list of sl\.measures, got dict"),
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


@pytest.mark.parametrize("options", [{}, {"keep": True}, {"grad": True}])
def test_what_nobody_holds_any_more_is_gone_without_a_garbage_collection(options):
    """A cycle would keep what was measured on the device until Python looks for cycles."""
    model = torch.nn.TransformerEncoderLayer(14, 2, dim_feedforward=11, batch_first=True)
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        with sl.watch(model, **options) as seen:
            model(torch.randn(3, 5, 14))
        sight, whole = weakref.ref(seen["self_attn"]), weakref.ref(seen)
        del seen
        assert sight() is None
        assert whole() is None
    finally:
        if was_enabled:
            gc.enable()
