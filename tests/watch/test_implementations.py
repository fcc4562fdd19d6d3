"""One model through every implementation of attention that Hugging Face has for it: the same sights."""

import functools
import warnings

import pytest
import torch

import sightline as sl
from tests.look.look_oracle import near
from tests.watch.flash_stand_ins import FLASH, HUB, VARLEN

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    transformers = pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()
    from torch._dynamo.utils import counters
    from torch.nn.attention.flex_attention import AuxRequest, flex_attention
    from transformers import modeling_flash_attention_utils as flash_utils
    from transformers.integrations.flex_attention import WrappedFlexAttention

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.plain]  # other watches have its shapes

V, B, T, H = 97, 2, 23, 4
SIZES = {
    "vocab_size": V,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": H,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 20,
}


def flash_attn_func(
    q, k, v, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, dropout_p=0.0
):
    return FLASH(q, k, v, dropout_p, softmax_scale, causal, *window_size, softcap, None, False)[0]


def flash_attn_varlen_func(
    q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, softmax_scale=None, causal=False,
    window_size=(-1, -1), dropout_p=0.0,
):  # fmt: skip
    sizes = (cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    return VARLEN(q, k, v, *sizes, dropout_p, softmax_scale, causal, *window_size)[0]


def hub_func(q, k, v, softmax_scale=None, causal=False, window_size=(-1, -1), s_aux=None):
    return HUB(q, k, v, None, None, None, softmax_scale, causal, *window_size, s_aux)[0]


def hub_varlen_func(
    q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, softmax_scale=None, causal=False,
    window_size=(-1, -1), s_aux=None,
):  # fmt: skip
    return HUB(q, k, v, None, cu_seqlens_q, cu_seqlens_k, softmax_scale, causal, *window_size, s_aux)[0]


def flex_with_sinks(module, query, key, value, attention_mask, scaling=None, s_aux=None, **_):
    """What Hugging Face's does on a GPU, where alone it lets sinks into FlexAttention."""
    out, aux = flex_attention(
        query,
        key,
        value,
        block_mask=attention_mask,
        scale=scaling,
        enable_gqa=True,
        return_aux=AuxRequest(lse=True),
    )
    both = torch.logaddexp(aux.lse, s_aux[:, None])
    return (out * (aux.lse - both).exp()[..., None]).transpose(1, 2).contiguous(), None


@pytest.fixture
def kernels(monkeypatch):
    """FlashAttention and FlexAttention as Hugging Face calls them, by stand-ins."""

    def imported(implementation, **_):
        fixed, packed = (flash_attn_func, flash_attn_varlen_func)
        if "hub" in implementation:
            fixed, packed = hub_func, hub_varlen_func
        functions = (fixed, packed, None, flash_utils._pad_input, flash_utils._unpad_input)
        return functions, flash_utils._lazy_define_process_function(packed)

    monkeypatch.setattr(flash_utils, "lazy_import_flash_attention", imported)
    functions = transformers.AttentionInterface()
    masks = transformers.AttentionMaskInterface()
    own = {"flash hub": ("flash_attention_2",) * 2, "flex sinks": (None, "flex_attention")}
    for name, (function, mask) in own.items():
        monkeypatch.setitem(
            functions._global_mapping, name, flex_with_sinks if function is None else functions[function]
        )
        monkeypatch.setitem(masks._global_mapping, name, masks[mask])


def compile_flex_by(backend, monkeypatch):
    """Let Hugging Face compile FlexAttention anew, by a backend."""
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=backend))
    for name in ("_instance", "_compiled_flex_attention"):
        monkeypatch.setattr(WrappedFlexAttention, name, None)
    monkeypatch.setattr(WrappedFlexAttention, "_is_flex_compiled", False)


def model_of(which):
    torch.manual_seed(0)
    if which == "llama":
        model = transformers.LlamaModel(transformers.LlamaConfig(**SIZES))
    else:
        own = {"num_local_experts": 2, "num_experts_per_tok": 1, "sliding_window": 5}
        model = transformers.GptOssModel(transformers.GptOssConfig(**SIZES, **own))
    for name, p in model.named_parameters():
        if p.dim() > 1:
            p.data.mul_(4)
        if name.endswith("sinks"):
            p.data.normal_()
    return model.eval()


def watched(model, implementation, inputs):
    for part in model.modules():
        if getattr(part, "config", None) is not None:
            part.config._attn_implementation = implementation
    with torch.no_grad():
        blind = model(**inputs).last_hidden_state
        compiled, method = counters["stats"]["unique_graphs"], WrappedFlexAttention.__call__
        with sl.watch(model, keep=True) as seen:
            out = model(**inputs).last_hidden_state
    assert torch.equal(blind, out)
    assert counters["stats"]["unique_graphs"] == compiled  # nothing was compiled again
    assert WrappedFlexAttention.__call__ is method
    assert seen.unseen() == {}
    return seen, out


WAYS = {
    "llama": {"sdpa": "kernel", "flex_attention": "flex", "flash_attention_2": "kernel"},
    "gpt-oss": {"flash hub": "kernel", "flex sinks": "flex"},
}


@pytest.mark.combinations
@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(
    ("which", "way", "backend"),
    [
        *((which, way, "aot_eager") for which in WAYS for way in WAYS[which]),
        pytest.param("llama", "flex_attention", "inductor", marks=pytest.mark.long),  # C++: 30 s
    ],
)
def test_the_same_sights(which, way, backend, padded, monkeypatch):
    compile_flex_by(backend, monkeypatch)
    model = model_of(which)
    ids = torch.randint(1, V, (B, T), generator=torch.Generator().manual_seed(1))
    real = torch.arange(T) < torch.tensor([[T], [17 if padded else T]])
    inputs = {"input_ids": ids, "attention_mask": real.long()}
    eager, expected = watched(model, "eager", inputs)
    seen, out = watched(model, way, inputs)
    near(out[real], expected[real], rtol=1e-4, atol=1e-4)
    assert seen.names() == eager.names() == [f"layers.{i}.self_attn" for i in range(2)]
    for name in seen.names():
        found, truth = seen[name], eager[name]
        assert (found.source, truth.source) == (WAYS[which][way], "weights")
        assert truth.padding == "attention_mask"
        assert found.padding in ("attention_mask", "lengths")  # of sequences that were packed
        for statistic in ("lse", "entropy", "peak", "received")[
            which == "gpt-oss" :
        ]:  # eager shifts its scores
            near(found.statistics[statistic], truth.statistics[statistic], rtol=1e-5, atol=1e-5)
        rows = truth.rows(range(T))
        near(found.rows(range(T)), rows, rtol=1e-5, atol=1e-5)
        near(found.map(5), truth.map(5), rtol=1e-5, atol=1e-5)
        near(found.top(3)[0], truth.top(3)[0], rtol=1e-5, atol=1e-5)
        near(found.mass([slice(0, 4), [7]]), truth.mass([slice(0, 4), [7]]), rtol=1e-5, atol=1e-5)
        if which == "gpt-oss":
            assert rows.sum(-1)[0, :, -1].max() < 0.999  # a sink has its share
            assert not rows[:, :, 9, :4].any() or name != "layers.0.self_attn"  # and the window is a window
