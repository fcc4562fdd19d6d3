"""Models that other people wrote: generation, gradient checkpointing, timm. tests/zoo has their weights."""

import os
import warnings

import pytest
import torch

import sightline as sl
from tests.look.look_oracle import near, randn
from tests.watch.timm_models import import_timm

os.environ.setdefault("HF_HUB_OFFLINE", "1")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    transformers = pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

V, E, H, B, T, S = 97, 12, 6, 2, 5, 11
TEXT = {"hidden_size": E, "num_hidden_layers": 2, "num_attention_heads": H, "intermediate_size": 7}
SMALL = {"vocab_size": V, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
KV = {"num_key_value_heads": 2}


def tokens(*shape):
    return torch.randint(3, V, shape, generator=torch.Generator().manual_seed(0))


MODELS = {
    "gpt2": lambda tf: (
        tf.GPT2LMHeadModel(tf.GPT2Config(n_embd=E, n_layer=2, n_head=H, **SMALL)),
        [f"transformer.h.{i}.attn" for i in range(2)],
    ),
    "llama": lambda tf: (
        tf.LlamaForCausalLM(tf.LlamaConfig(**TEXT, **KV, **SMALL)),
        [f"model.layers.{i}.self_attn" for i in range(2)],
    ),
}


def result(model, inputs):
    torch.manual_seed(1)
    model.zero_grad()
    outputs = model(**inputs)
    y = outputs["logits"] if "logits" in outputs else outputs["last_hidden_state"]
    y.square().sum().backward()
    return [y.detach(), *(p.grad for p in model.parameters())]


@pytest.mark.parametrize("which", ["gpt2", "llama"])
def test_generation_is_one_sight_per_step_and_one_picture(which):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        model, names = MODELS[which](transformers)
    model.set_attn_implementation("sdpa")
    model.eval()
    start, more = tokens(1, T), 4
    with warnings.catch_warnings(), sl.watch(model, keep=True) as seen:
        warnings.simplefilter("ignore")
        out = model.generate(
            start,
            attention_mask=torch.ones_like(start),
            max_new_tokens=more,
            min_new_tokens=more,
            do_sample=False,
        )
    length = T + more - 1  # the last token is not attended from
    for name in names:
        assert [(x.t, x.s) for x in seen.calls(name)] == [(T, T), *((1, n) for n in range(T + 1, length + 1))]
        stacked = seen.stack(name)
        assert (stacked.t, stacked.s) == (length, length)
        with torch.no_grad(), sl.watch(model, keep=True) as at_once:
            model(out[:, :length])
        near(stacked.received, at_once[name].received, atol=1e-5)
        near(stacked.map(length), at_once[name].map(length), atol=1e-6)
        near(stacked.map(3, queries=(1, 7)), at_once[name].map(3, queries=(1, 7)), atol=1e-6)


def generation(which, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        configs = {
            "mistral": (transformers.MistralConfig, transformers.MistralForCausalLM, {"sliding_window": 5}),
            "gemma 3": (
                transformers.Gemma3TextConfig,
                transformers.Gemma3ForCausalLM,
                {"sliding_window": 5, "head_dim": 4, "layer_types": ["sliding_attention", "full_attention"]},
            ),
            "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM, {}),
        }
        config, model, extra = configs[which]
        made = model(config(**TEXT, **SMALL, num_key_value_heads=1, **extra, **settings)).eval()
    made.set_attn_implementation("sdpa")
    return made


@pytest.mark.combinations
@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("which", ["mistral", "gemma 3", "llama"])
def test_generation_past_the_window_of_a_cache(which, cache):
    """Steps of generation, put together, are the whole sequence at once, whatever the cache forgets."""
    model, start, more = generation(which), tokens(1, 3), 8
    with warnings.catch_warnings(), sl.watch(model, keep=True) as seen:
        warnings.simplefilter("ignore")
        out = model.generate(
            start,
            attention_mask=torch.ones_like(start),
            max_new_tokens=more,
            min_new_tokens=more,
            do_sample=False,
            cache_implementation=cache,
            disable_compile=True,
        )
    length = out.size(1) - 1
    with torch.no_grad(), sl.watch(model, keep=True) as at_once:
        model(out[:, :length])
    assert seen.names() == at_once.names()
    for name in at_once.names():
        (run,) = seen.runs(name)
        assert run.t == length
        near(run.received[..., :length], at_once[name].received, atol=1e-5)
        assert torch.equal(run.peak_at, at_once[name].peak_at)


@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing(reentrant):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, names = MODELS["llama"](transformers)
    inputs = {
        "input_ids": tokens(B, S),
        "attention_mask": (torch.arange(S) >= torch.tensor([[0], [4]])).long(),
    }
    model.set_attn_implementation("sdpa")
    model.train()
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    model.enable_input_require_grads()
    blind = result(model, inputs)
    with sl.watch(model) as seen:
        watched = result(model, inputs)
    for a, b in zip(blind, watched, strict=True):
        assert (a is None and b is None) or torch.equal(a, b)
    assert [len(seen.calls(n)) for n in names] == [1, 1]


def test_timm_with_fused_attention():
    timm = import_timm()
    model = timm.create_model("vit_tiny_patch16_224", pretrained=False, img_size=32, depth=2, num_classes=5)
    names = [f"blocks.{i}.attn" for i in range(2)]
    x = randn(B, 3, 32, 32, dtype=torch.float32)
    for name in names:
        model.get_submodule(name).fused_attn = True
    for train in (True, False):
        model.train(train)
        outputs = []
        for watching in (False, True):
            torch.manual_seed(1)
            model.zero_grad()
            if watching:
                with sl.watch(model) as seen:
                    y = model(x)
                    y.square().sum().backward()
            else:
                y = model(x)
                y.square().sum().backward()
            outputs.append([y.detach(), *(p.grad for p in model.parameters())])
        assert all((a is None and b is None) or torch.equal(a, b) for a, b in zip(*outputs, strict=True))
        assert seen.names() == names
        near(seen[names[0]].received.sum(-1), torch.full((B, 3), 5.0), atol=1e-4)  # 4 patches and a class
    for name in names:
        model.get_submodule(name).fused_attn = False
    with sl.watch(model) as seen:
        model(x)
    assert seen.names() == names
