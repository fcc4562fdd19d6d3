"""Whatever goes wrong in a look, the model's output stays what it is, and the reason is told."""

import contextlib
import copy
import gc
import io
import pickle
import sys
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention.flex_attention import flex_attention

import sightline as sl
from sightline.look import isolate
from sightline.watch import dispatch_keys, modules, recorder, session, watch
from sightline.watch.readers import eager, sdpa
from tests.look.look_oracle import matrix, near, randn
from tests.watch.watch_oracle import B, E, H, Sdpa, T, run, same, transformers

pytestmark = [
    pytest.mark.plain,
    pytest.mark.filterwarnings("ignore:.*ran and could not be read:UserWarning"),
    pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning"),
    pytest.mark.filterwarnings(
        "ignore:.*should not be instantiated:DeprecationWarning"
    ),  # torch's, of itself
]


class Everything(nn.Module):
    """A call for each listener: a kernel, FlexAttention, weights by hand, and our own attention."""

    def __init__(self):
        super().__init__()
        self.kernel, self.score = Sdpa(), sl.scores.Additive(4, 4, 5)
        self.mha = nn.MultiheadAttention(E, H, batch_first=True)
        self.layer = nn.TransformerEncoderLayer(E, 2, 5, batch_first=True)

    def forward(self, x):
        x = self.layer(self.mha(x, x, x)[0])
        q = x.unflatten(-1, (H, 4)).transpose(1, 2)
        q = self.kernel(q, q, q)
        q = (q @ q.mT).softmax(-1) @ q
        q = flex_attention(F.pad(q, (0, 12)), F.pad(q, (0, 12)), q)
        return sl.attention(q, q, q, sl.masks.causal(), score=self.score)


PLACES = {
    "reading a kernel": (sdpa, "_read_sdpa"),
    "reading a layer": (sdpa, "_read_layer"),
    "reading flex": (sdpa, "read_flex"),
    "reading our own": (watch, "read_attention_call"),
    "stored weights": (recorder, "stored_call"),
    "following scores": (eager.EagerTracker, "multiply"),
    "the softmax": (eager.EagerTracker, "_soften"),
    "measuring": (session, "measure_sight"),
    "the fused call": (sdpa, "fused_call"),
    "padding": (session, "place_padding"),
    "isolation": (watch, "isolated"),
    "names": (modules.ModuleResolver, "name_in_compiled"),
    "keeping rows": (session, "_keep_rows"),
    "local parts": (recorder, "_local"),
    "an lse": (watch, "captured_lse"),
}


@pytest.mark.combinations
@pytest.mark.parametrize("error", [KeyError, torch.OutOfMemoryError])
@pytest.mark.parametrize("where", PLACES)
def test_a_failure_anywhere_leaves_the_output_alone(monkeypatch, where, error):
    torch.manual_seed(0)
    model, x = Everything().eval(), randn(B, T, E, dtype=torch.float32)
    with torch.no_grad():
        blind = model(x)
        reference = _watched(model, x, blind).names()

        def fail(*_args, **_kwargs):
            raise error("a reason to tell")

        sdpa.adapter_of.cache_clear()
        monkeypatch.setattr(*PLACES[where], fail)
        try:
            seen = _watched(model, x, blind)
        finally:
            monkeypatch.undo()
            sdpa.adapter_of.cache_clear()
        assert set(seen.names()) <= set(reference)
        assert all("a reason to tell" in r or "no softmax" in r for r in seen.unseen().values())
        assert _watched(model, x, blind).names() == reference


def _watched(model, x, blind):
    with sl.watch(model, keep=True) as seen:
        assert torch.equal(model(x), blind)
    return seen


def test_gradients_where_everything_fails(monkeypatch):
    model, x = nn.TransformerEncoderLayer(E, 2, 5, 0.3, batch_first=True), randn(B, T, E, dtype=torch.float32)
    blind = run(model, x)
    for place in (isolate, watch):
        monkeypatch.setattr(place, "isolated", lambda: contextlib.nullcontext(1 / 0))
    with sl.watch(model) as seen:
        assert same(blind, run(model, x))
    assert any("ZeroDivisionError" in reason for reason in seen.unseen().values())


@pytest.mark.plain
def test_the_reasons_are_told_once_at_the_end(monkeypatch):
    def fail(*_, **__):
        raise ValueError("a reason to tell")

    model, x = nn.MultiheadAttention(E, H), torch.randn(T, B, E)
    monkeypatch.setattr(session, "measure_sight", fail)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with sl.watch(model) as seen:
            for _ in range(3):
                model(x, x, x)
            assert not told
    sentence = (
        "an attention of MultiheadAttention ran and could not be read: the model itself (MultiheadAttention) "
        "(ValueError: a reason to tell)"
    )
    assert [str(w.message) for w in told] == [sentence]
    assert told[0].filename == __file__
    assert seen.unseen() == {"": "ValueError: a reason to tell"}
    assert "nothing was seen: the model itself" in repr(seen)


def test_a_filter_of_the_users_that_fails():
    model, inputs, names = transformers(nn)["encoder"]
    with sl.watch(model, layers=lambda name: name.split(".")[7]) as seen:
        model(*inputs)
    assert list(seen.unseen()) == names
    assert "IndexError" in seen.unseen()[names[0]]


def test_a_limit_is_told_after_the_block_only():
    model, x = nn.MultiheadAttention(E, H), torch.randn(T, B, E)
    outputs = []

    def run_twice():
        with sl.watch(model, limit=0):
            outputs.extend(model(x, x, x)[0] for _ in range(2))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="sights of more than 0 bytes"):
            run_twice()
    assert len(outputs) == 2


# Kinds of tensors


def test_meta_and_fake_tensors_run_on():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with torch.device("meta"):
        model, x = nn.MultiheadAttention(E, H), torch.randn(T, B, E)
    with sl.watch(model) as seen:
        assert model(x, x, x, need_weights=False)[0].shape == x.shape
    assert seen.names() == []
    with FakeTensorMode() as mode:
        model = nn.MultiheadAttention(E, H)
        x = mode.from_tensor(torch.randn(T, B, E))
        with sl.watch(model) as seen:
            assert model(x, x, x, need_weights=False)[0].shape == x.shape
        assert seen.names() == []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("transform", ["vmap", "grad", "jvp", "jacrev", "functional_call"])
def test_functorch(transform):
    q = randn(3, H, T, 4, dtype=torch.float32)
    model = Sdpa()

    def attend(x):
        return model(x, x, x)

    calls = {
        "vmap": lambda: torch.func.vmap(attend)(q),
        "grad": lambda: torch.func.grad(lambda x: attend(x).square().sum())(q),
        "jvp": lambda: torch.func.jvp(lambda x: model(x, x, x), (q,), (q,))[1],
        "jacrev": lambda: torch.func.jacrev(lambda x: attend(x).sum((0, 1, 2)))(q),
        "functional_call": lambda: torch.func.functional_call(model, {}, (q, q, q)),
    }
    if transform == "jvp":  # torch's fused kernel has no forward derivative
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            _same_and_seen(model, calls[transform], q)
    else:
        _same_and_seen(model, calls[transform], q)


def _same_and_seen(model, call, q):
    blind = call()
    with sl.watch(model) as seen:
        watched = call()
    assert torch.equal(blind, watched)
    weights, _ = matrix(q.double(), q.double())
    near(seen.calls("")[0].received.reshape(3, H, T), weights.sum(-2), atol=1e-5)


def test_spectral_norm_on_an_attention():
    torch.manual_seed(0)
    blind = nn.utils.parametrizations.spectral_norm(nn.MultiheadAttention(E, H), "in_proj_weight")
    watched = copy.deepcopy(blind)
    x = torch.randn(T, B, E)
    expected = [blind(x, x, x)[0] for _ in range(3)]
    with sl.watch(watched) as seen:
        assert all(torch.equal(watched(x, x, x)[0], y) for y in expected)
    assert len(seen.calls("")) == 3


def test_strided_nested_inputs_of_an_encoder():
    torch.manual_seed(0)
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(E, 2, 5, batch_first=True), 2).eval()
    parts = [torch.randn(n, E) for n in (3, 7, 5)]
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        x = torch.nested.nested_tensor(parts)
        blind = model(x)
        with sl.watch(model) as seen:
            watched = model(x)
        assert all(torch.equal(a, b) for a, b in zip(blind.unbind(), watched.unbind(), strict=True))
        with sl.watch(model) as alone:
            model(parts[0][None])
    assert seen.names() == ["layers.0.self_attn", "layers.1.self_attn"]
    for name in seen.names():
        near(seen[name].received[0, :, :3], alone[name].received[0], atol=1e-5)
        near(seen[name].entropy[0, :, :3], alone[name].entropy[0], atol=1e-5)
        assert not seen[name].received[0, :, 3:].any()
    assert seen["layers.0.self_attn"].padding == "lengths"


def test_jagged_tensors_are_seen():
    model, parts = Sdpa(), [torch.randn(n, H, 4) for n in (3, 5)]
    x = torch.nested.nested_tensor(parts, layout=torch.jagged).transpose(1, 2)
    blind = model(x, x, x)
    with sl.watch(model) as seen:
        assert torch.equal(model(x, x, x).values(), blind.values())
    assert seen[""].lead == (2, H)
    for i, part in enumerate(parts):
        q = part.transpose(0, 1).double()
        weights, _ = matrix(q, q)
        near(seen[""].received[i, :, : part.size(0)], weights.sum(-2), atol=1e-5)


# What is done to models inside a block


class Conditional(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = nn.MultiheadAttention(E, H, batch_first=True)

    def forward(self, x):
        x = self.attn(x, x, x, need_weights=False)[0]
        return torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,))


@pytest.mark.filterwarnings("ignore")
def test_cond_export_and_trace_inside_a_block():
    torch.manual_seed(0)
    conditional, x = Conditional().eval(), randn(B, T, E, dtype=torch.float32)
    with torch.no_grad():
        blind = conditional(x)
        with sl.watch(conditional) as seen:
            assert torch.equal(conditional(x), blind)
        assert seen.names() == ["attn"]
        model = nn.TransformerDecoderLayer(E, H, 5, batch_first=True).eval()
        blind = model(x, x)
        with sl.watch(model):
            exported = torch.export.export(model, (x, x)).module()
            traced = torch.jit.trace(model, (x, x), check_trace=False)
        assert torch.equal(exported(x, x), blind)
        assert torch.equal(traced(x, x), blind)
        for each in (exported, traced):
            with sl.watch(each) as seen:
                assert torch.equal(each(x, x), blind)
            assert sum(len(calls) for _, calls in seen.items()) == 2


def test_a_copy_made_inside_a_block_is_nobodys():
    model, x = nn.MultiheadAttention(E, H), torch.randn(T, B, E)
    with sl.watch(model) as seen:
        twin = copy.deepcopy(model)
        loaded = pickle.loads(pickle.dumps(model))  # noqa: S301
        buffer = io.BytesIO()
        torch.save(model, buffer)
        twin(x, x, x)
    assert seen.names() == []
    for each in (twin, loaded):
        assert not any(m._forward_hooks or m._forward_pre_hooks for m in each.modules())


def test_what_was_seen_can_be_copied_and_sent():
    model, x = nn.MultiheadAttention(E, H, batch_first=True), randn(B, 11, E, dtype=torch.float32)
    with torch.no_grad(), sl.watch(model, keep=True) as seen:
        model(x, x, x, need_weights=False)
    rows = seen[""].rows([3, 7])
    buffer = io.BytesIO()
    torch.save(seen, buffer)
    buffer.seek(0)
    others = [copy.deepcopy(seen), pickle.loads(pickle.dumps(seen)), torch.load(buffer, weights_only=False)]  # noqa: S301
    for other in others:
        assert torch.equal(other[""].rows([3, 7]), rows)
        assert other.names() == [""]
        assert repr(other) == repr(seen)
    assert len(pickle.dumps(seen)) < 8 * seen.nbytes  # and no model


def test_five_hundred_blocks_leave_nothing():
    model, x = nn.TransformerEncoderLayer(E, H, 5, batch_first=True), randn(B, T, E, dtype=torch.float32)

    def left_by(n):
        """The objects and the pieces of Python's memory that there are more after some blocks than before."""
        before = len(gc.get_objects()), sys.getallocatedblocks()
        for _ in range(n):
            with sl.watch(model):
                model(x)
        gc.collect()
        return len(gc.get_objects()) - before[0], sys.getallocatedblocks() - before[1]

    left_by(20)  # what is imported and remembered at the first use
    runs = left_by(500), left_by(500)  # what is left once is not left by a block
    objects, pieces = (min(x) for x in zip(*runs, strict=True))
    assert objects < 50
    assert pieces < 2 * 500
    hooks = [x for m in model.modules() for x in (m._forward_hooks, m._forward_pre_hooks, m._backward_hooks)]
    assert not any(hooks)
    assert not any(map(torch._C._dispatch_tls_is_dispatch_key_included, dispatch_keys.KEYS.values()))
    assert torch._C._len_torch_dispatch_stack() == 0
