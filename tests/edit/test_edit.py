"""Edits: what a model would do if some of its attention were different, and that nothing of it stays."""

import os
import threading
import warnings
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import sightline as sl
from sightline.models import vit_parts
from sightline.models.vit_config import VisionTransformerConfig
from tests.look.look_oracle import near, randn
from tests.oracle.edits import EDITS, ByHand, eager_in_transformers

os.environ.setdefault("HF_HUB_OFFLINE", "1")

E, H, B, T = 12, 3, 2, 5


class Sdpa(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.options = options

    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, **self.options)


def qkv(kv_heads=H):
    return [randn(B, h, T, 4, seed=i, dtype=torch.float32) for i, h in enumerate((H, kv_heads, kv_heads))]


def edited(model, *args, options, **kwargs):
    with warnings.catch_warnings(), sl.edit(model, **options):
        warnings.filterwarnings("ignore", "forbid leaves")
        return model(*args, **kwargs)


@pytest.mark.parametrize("name", EDITS)
@pytest.mark.parametrize("mask", ["none", "causal", "boolean", "bias"])
@pytest.mark.parametrize("kv_heads", [H, 1])
def test_a_call_of_torch(name, mask, kv_heads):
    causal = torch.ones(T, T, dtype=torch.bool).tril()
    bias = randn(B, 1, T, T, seed=9, dtype=torch.float32)
    given, added = {
        "none": ({}, torch.zeros(T, T)),
        "causal": ({"is_causal": True}, torch.zeros(T, T).masked_fill(~causal, -torch.inf)),
        "boolean": ({"attn_mask": causal}, torch.zeros(T, T).masked_fill(~causal, -torch.inf)),
        "bias": ({"attn_mask": bias}, bias),
    }[mask]
    q, k, v = (x.requires_grad_() for x in qkv(kv_heads))
    found = edited(Sdpa(**given, enable_gqa=kv_heads != H), q, k, v, options=EDITS[name])
    truth = ByHand(**EDITS[name])(q, k, v, added, 0.5)
    near(found, truth, 1e-5, 1e-6)
    upstream = randn(*truth.shape, seed=5, dtype=torch.float32)
    ours, theirs = (torch.autograd.grad(x, (q, k, v), upstream, allow_unused=True) for x in (found, truth))
    for a, b in zip(ours, theirs, strict=True):
        near(torch.zeros(1) if a is None else a, torch.zeros_like(a) if b is None else b, 1e-4, 1e-5)


def encoder(batch_first=True):
    return nn.TransformerEncoderLayer(E, H, dim_feedforward=7, batch_first=batch_first, dropout=0.0)


def layer_by_hand(layer, x, edit, added):
    """A post-norm encoder layer, from its parameters; (B, T, E)."""
    q, k, v = (
        p.unflatten(-1, (H, -1)).transpose(1, 2)
        for p in F.linear(x, layer.self_attn.in_proj_weight, layer.self_attn.in_proj_bias).chunk(3, -1)
    )
    context = edit(q, k, v, added, (E // H) ** -0.5).transpose(1, 2).flatten(2)
    x = layer.norm1(x + layer.self_attn.out_proj(context))
    return layer.norm2(x + layer.linear2(F.relu(layer.linear1(x))))


@pytest.mark.combinations
@pytest.mark.parametrize("name", EDITS)
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
def test_layers_of_torch(name, training, batch_first):
    layer = encoder(batch_first).train(training)
    x = randn(B, T, E, seed=1, dtype=torch.float32)
    padding = torch.tensor([[False] * T, [False] * 4 + [True]])
    given = x if batch_first else x.transpose(0, 1)
    with torch.set_grad_enabled(training):
        found = edited(
            layer, given, src_key_padding_mask=padding, options={"layers": "self_attn"} | EDITS[name]
        )
    added = torch.zeros(B, 1, 1, T).masked_fill(padding[:, None, None], -torch.inf)
    truth = layer_by_hand(layer, x, ByHand(**EDITS[name]), added)
    near(found if batch_first else found.transpose(0, 1), truth, 1e-5, 1e-5)


def test_weights_that_a_module_returns_are_the_edited_ones():
    module = nn.MultiheadAttention(E, H, batch_first=True)
    x = randn(B, T, E, dtype=torch.float32)
    with sl.edit(module, forbid=[(None, [2])]):
        _, average = module(x, x, x)
    assert not average[..., 2].any()
    near(average.sum(-1), torch.ones(B, T), 1e-6, 1e-6)
    with sl.edit(module, heads=[1], ablate="zero"):
        _, weights = module(x, x, x, average_attn_weights=False)
    assert weights.shape == (B, H, T, T)
    near(weights.sum(-1)[0, :, 0], torch.tensor([1.0, 0.0, 1.0]), 1e-6, 1e-6)


FAMILIES = {
    "bert": (lambda tf, kw: tf.BertModel(tf.BertConfig(**kw)), "layer.1"),
    "gpt2": (lambda tf, kw: tf.GPT2Model(tf.GPT2Config(n_embd=E, n_layer=2, n_head=H, vocab_size=23)), "h.1"),
    "llama": (lambda tf, kw: tf.LlamaModel(tf.LlamaConfig(**kw, num_key_value_heads=1)), "layers.0"),
    "t5": (
        lambda tf, kw: tf.T5Model(
            tf.T5Config(d_model=E, num_layers=2, num_heads=H, d_kv=4, d_ff=7, vocab_size=23)
        ),
        "decoder.*.1.layer.1*",
    ),
    "vit": (
        lambda tf, kw: tf.ViTModel(tf.ViTConfig(**kw | {"image_size": 6, "patch_size": 3})),
        "*.0.*",
    ),
}


@pytest.fixture(scope="module", params=FAMILIES)
def family(request):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": E, "num_hidden_layers": 2, "num_attention_heads": H, "intermediate_size": 7}
    make, layers = FAMILIES[request.param]
    model = make(transformers, sizes | {"vocab_size": 23}).eval()
    for p in model.parameters():
        p.data.mul_(4.0) if p.dim() > 1 else None  # so that heads differ
    ids = torch.randint(0, 23, (B, T), generator=torch.Generator().manual_seed(1))
    real = torch.tensor([[1] * T, [1] * 4 + [0]])
    given = {"input_ids": ids, "attention_mask": real}
    if request.param == "t5":
        given["decoder_input_ids"] = ids.flip(-1)
    if request.param == "vit":
        given = {"pixel_values": randn(B, 3, 6, 6, dtype=torch.float32)}
    return model, given, layers


def set_implementation(model, name):
    for module in model.modules():  # T5's stacks have configs of their own
        if hasattr(module, "config"):
            module.config._attn_implementation = name


@pytest.mark.combinations
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("name", EDITS)
def test_models_of_hugging_face(family, name):
    model, given, layers = family
    with torch.no_grad(), sl.watch(model) as seen:
        model(**given)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "forbid leaves")
        with sl.edit(model, layers=layers, **EDITS[name]) as change:
            found = model(**given).last_hidden_state
    assert 0 < len(change.changed) < len(seen.names())
    chosen = {model.get_submodule(n) for n in change.changed}
    with torch.no_grad(), eager_in_transformers(chosen, ByHand(**EDITS[name])) as eager:
        set_implementation(model, eager)
        truth = model(**given).last_hidden_state
        set_implementation(model, "sdpa")
    real = given.get("attention_mask") if "decoder_input_ids" not in given else None
    keep = torch.ones(found.shape[:2], dtype=torch.bool) if real is None else real.bool()
    near(found[keep], truth[keep], 1e-4, 2e-5)


@pytest.mark.parametrize("name", EDITS)
def test_our_vision_transformer(name):

    torch.manual_seed(0)
    shape = {"image_size": 8, "patch": 4, "channels": 3, "d_model": E, "n_heads": H, "n_layers": 2, "d_ff": 7}
    model = sl.models.VisionTransformer(VisionTransformerConfig(n_classes=3, **shape)).eval()
    image = randn(B, 3, 8, 8, dtype=torch.float32)
    with torch.no_grad():
        found = edited(model, image, options=EDITS[name])

        def by_hand(q, k, v, mask=None):
            return ByHand(**EDITS[name])(q, k, v, torch.zeros(1, 1, 1, k.size(2)), q.size(-1) ** -0.5)

        with mock.patch.object(vit_parts, "attention", by_hand):
            truth = model(image)
    near(found, truth, 1e-4, 1e-5)


def test_other_layers_stay_as_they_are():
    model = nn.TransformerEncoder(encoder(), 2, enable_nested_tensor=False).eval()
    x = randn(B, T, E, dtype=torch.float32)
    with sl.edit(model, layers="layers.1", ablate="zero") as change:
        model(x)
    assert change.changed == ["layers.1.self_attn"]


def test_nothing_stays():
    model = encoder().eval()
    x = randn(B, T, E, dtype=torch.float32)
    fast = torch.backends.mha.get_fastpath_enabled()
    before, members = model(x), dict(model.self_attn.__dict__)
    with sl.edit(model, ablate="zero"):
        assert not torch.equal(model(x), before)
    with pytest.raises(ZeroDivisionError), sl.edit(model, ablate="zero"):
        raise ZeroDivisionError
    assert torch.equal(model(x), before)
    assert torch.backends.mha.get_fastpath_enabled() == fast
    assert dict(model.self_attn.__dict__) == members
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


@pytest.mark.parametrize("watch_first", [True, False])
def test_a_watch_sees_what_was_edited(watch_first):
    model = encoder().eval()
    x = randn(B, T, E, dtype=torch.float32)
    contexts = [lambda: sl.watch(model), lambda: sl.edit(model, heads=[1], forbid=[(None, [2])])]
    with contexts[not watch_first]() as a, contexts[watch_first]() as b:
        model(x)
    seen = a if watch_first else b
    received = seen["self_attn"].received
    assert not received[:, 1, 2].any()
    assert (received[:, [0, 2], 2] > 0).all()


@pytest.mark.parametrize("causal", [False, True])
def test_a_watch_sees_one_call_where_the_kernel_takes_blocks(causal):
    from tests.look.stream_oracle import attention_in_blocks

    model, (q, k, v) = Sdpa(is_causal=causal), qkv()
    with attention_in_blocks(3, 2), sl.edit(model, forbid=[([4], [1])]), sl.watch(model, keep=True) as seen:
        model(q, k, v)
    assert len(seen.calls("")) == 1
    assert (seen[""].columns([1])[..., 4, 0] == 0).all()


def test_edits_nest():
    model, (q, k, v) = Sdpa(), qkv()
    with sl.edit(model, heads=[0], ablate="zero"), sl.edit(model, heads=[2], temperature=3.0):
        found = model(q, k, v)
    near(found[:, 0], torch.zeros_like(found[:, 0]))
    truth = ByHand(heads=[2], temperature=3.0)(q, k, v, torch.zeros(T, T), 0.5)
    near(found[:, 1:], truth[:, 1:], 1e-5, 1e-6)


def test_a_model_that_runs_in_another_thread_confuses_no_edit():
    entered, done = threading.Event(), threading.Event()

    class Waiting(nn.Module):
        def forward(self, _x):
            entered.set()
            assert done.wait(20)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.waiting, self.attending = Waiting(), Sdpa()

    model, (q, k, v) = Model(), qkv()
    other = threading.Thread(target=model.waiting, args=(q,))
    with sl.edit(model, layers="attending", ablate="zero") as change:
        model.attending.register_forward_pre_hook(lambda *_: (other.start(), entered.wait(20), None)[-1])
        found = model.attending(q, k, v)  # the other thread is inside `waiting` while this one attends
        done.set()
        other.join()
    assert not found.any()
    assert change.changed == ["attending"]


def test_additive_scores():
    score = sl.scores.Additive(4, 4, 5)

    class Model(nn.Module):
        def forward(self, q, k, v):
            return sl.attention(q, k, v, score=score)

    model, (q, k, v) = Model(), qkv()
    found = edited(model, q, k, v, options={"temperature": 2.0})
    near(found, (score(q, k) / 2).softmax(-1) @ v, 1e-5, 1e-6)
    found = edited(model, q, k, v, options={"ablate": "uniform"})
    near(found, v.mean(-2, keepdim=True).expand_as(found), 1e-5, 1e-6)
    with pytest.raises(ValueError, match="a temperature of single heads needs scores that are dot products"):
        edited(model, q, k, v, options={"heads": [0], "temperature": 2.0})


def test_a_query_with_nothing_left_gets_zeros_and_a_warning():
    model, (q, k, v) = Sdpa(attn_mask=torch.zeros(T, T).masked_fill(~torch.eye(T).bool(), -3e38)), qkv()
    told = pytest.warns(UserWarning, match="forbid leaves 6 queries of the model itself nothing to look at")
    with told, sl.edit(model, forbid=[([3], [3])]):
        found = model(q, k, v)
    assert not found[..., 3, :].any()
    assert found[..., 2, :].all()


@pytest.mark.parametrize("name", [name for name in EDITS if "heads" not in EDITS[name]])
@pytest.mark.parametrize("lead", [(), (H,), (2, B, H)])
def test_any_leading_dimensions(name, lead):
    q, k, v = (randn(*lead, T, 4, seed=i, dtype=torch.float32) for i in range(3))
    found = edited(Sdpa(), q, k, v, options=EDITS[name])
    truth = ByHand(**EDITS[name])(*(x.reshape(-1, 1, T, 4) for x in (q, k, v)), torch.zeros(T, T), 0.5)
    near(found, truth.reshape(q.shape), 1e-5, 1e-6)


def test_the_mean_of_one_output_is_told():
    model, (q, k, v) = Sdpa(), qkv()
    told = pytest.warns(UserWarning, match="ablate='mean' changes nothing in the model itself: .* one query")
    with told as warned, sl.edit(model, ablate="mean"):
        for _ in range(2):
            model(q[:1, :, :1], k[:1], v[:1])
    assert len(warned) == 1
    with sl.edit(model, ablate="mean"):  # two items, or five queries: no warning
        model(q[:, :, :1], k, v)
        model(q[:1], k[:1], v[:1])


# Bad input


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({}, ValueError, "an edit needs something to change"),
        ({"ablate": "zeros"}, ValueError, "unknown ablate 'zeros'.*did you mean 'zero'"),
        ({"temperature": 0.0}, ValueError, r"temperature must be a finite number above 0, got 0\.0"),
        ({"scale": float("nan")}, ValueError, "scale must be a finite number, got nan"),
        ({"heads": ["a"], "scale": 2.0}, TypeError, "heads must be whole numbers, got 'a'"),
        ({"heads": [], "scale": 2.0}, ValueError, r"at least one head, got heads=\[\]"),
        ({"forbid": [[1, 2, 3]]}, TypeError, r"pairs \(queries, keys\).*got \[1, 2, 3\]"),
        ({"layers": 3, "scale": 2.0}, TypeError, "a pattern or a function .* got int"),
    ],
)
def test_edits_that_are_none(options, kind, message):
    with pytest.raises(kind, match=message):
        sl.edit(nn.Linear(2, 2), **options)


@pytest.mark.bad_input
def test_what_is_not_there():
    model, (q, k, v) = Sdpa(), qkv()
    with pytest.raises(ValueError, match=r"heads must be in 0\.\.2, got 3; the model itself has 3 heads"):
        edited(model, q, k, v, options={"heads": [3], "ablate": "zero"})
    with pytest.raises(ValueError, match=r"forbid must hold keys in 0\.\.4, got 5; there are 5 keys here"):
        edited(model, q, k, v, options={"forbid": [(None, [5])]})
    with pytest.raises(ValueError, match=r"forbid must hold queries in 0\.\.4, got 9"):
        edited(model, q, k, v, options={"forbid": [([9], None)]})
    with pytest.raises(ValueError, match=r"attends without a dimension of heads.*heads=\[0\]"):
        edited(model, q[0], k[0], v[0], options={"heads": [0], "ablate": "zero"})
    with pytest.raises(TypeError, match=r"edit takes an nn\.Module, got function"):
        sl.edit(F.relu, ablate="zero")
    with pytest.warns(UserWarning, match="chose none of the modules that attended, such as ''"):
        edited(model, q, k, v, options={"layers": "*.7.*", "ablate": "zero"})
    with pytest.warns(UserWarning, match="the edit changed nothing: no fused attention ran"):
        edited(nn.Linear(4, 4), q, options={"ablate": "zero"})
