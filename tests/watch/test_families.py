"""Models that other people wrote: the same output and gradients, and the weights that eager shows."""

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
PAIR = {
    "d_model": E,
    **{f"{side}_layers": 2 for side in ("encoder", "decoder")},
    **{f"{side}_attention_heads": H for side in ("encoder", "decoder")},
    **{f"{side}_ffn_dim": 7 for side in ("encoder", "decoder")},
}
KV = {"num_key_value_heads": 2}


def tokens(*shape):
    return torch.randint(3, V, shape, generator=torch.Generator().manual_seed(0))


def padded(side):
    real = torch.arange(S) < torch.tensor([[S], [7]])
    return (real if side == "right" else real.flip(-1)).long()


def towers(encoder, decoder, cross):
    """The names of two layers each, in the order of their calls."""
    return [encoder.format(i) for i in range(2)] + [n.format(i) for i in range(2) for n in (decoder, cross)]


FAMILIES = {
    "bert": lambda tf: (
        tf.BertModel(tf.BertConfig(**TEXT, vocab_size=V)),
        {"input_ids": tokens(B, S), "attention_mask": padded("right")},
        [f"encoder.layer.{i}.attention.self" for i in range(2)],
    ),
    "gpt2": lambda tf: (
        tf.GPT2LMHeadModel(tf.GPT2Config(n_embd=E, n_layer=2, n_head=H, **SMALL)),
        {"input_ids": tokens(B, S)},
        [f"transformer.h.{i}.attn" for i in range(2)],
    ),
    "llama": lambda tf: (
        tf.LlamaForCausalLM(tf.LlamaConfig(**TEXT, **KV, **SMALL)),
        {"input_ids": tokens(B, S), "attention_mask": padded("left")},
        [f"model.layers.{i}.self_attn" for i in range(2)],
    ),
    "mistral": lambda tf: (
        tf.MistralForCausalLM(tf.MistralConfig(**TEXT, **KV, **SMALL, sliding_window=3)),
        {"input_ids": tokens(B, S)},
        [f"model.layers.{i}.self_attn" for i in range(2)],
    ),
    "t5": lambda tf: (
        tf.T5ForConditionalGeneration(
            tf.T5Config(
                d_model=E, num_layers=2, num_heads=H, d_kv=2, d_ff=7, vocab_size=V, decoder_start_token_id=0
            )
        ),
        {"input_ids": tokens(B, S), "attention_mask": padded("right"), "decoder_input_ids": tokens(B, T)},
        towers(
            "encoder.block.{}.layer.0.SelfAttention",
            "decoder.block.{}.layer.0.SelfAttention",
            "decoder.block.{}.layer.1.EncDecAttention",
        ),
    ),
    "bart": lambda tf: (
        tf.BartForConditionalGeneration(
            tf.BartConfig(**PAIR, **SMALL, max_position_embeddings=32, decoder_start_token_id=1)
        ),
        {"input_ids": tokens(B, S), "attention_mask": padded("right"), "decoder_input_ids": tokens(B, T)},
        towers(
            "model.encoder.layers.{}.self_attn",
            "model.decoder.layers.{}.self_attn",
            "model.decoder.layers.{}.encoder_attn",
        ),
    ),
    "whisper": lambda tf: (
        tf.WhisperForConditionalGeneration(
            tf.WhisperConfig(
                **PAIR,
                **SMALL,
                num_mel_bins=3,
                max_source_positions=13,
                max_target_positions=17,
                decoder_start_token_id=1,
                suppress_tokens=None,
                begin_suppress_tokens=None,
            )
        ),
        {"input_features": randn(B, 3, 26, dtype=torch.float32), "decoder_input_ids": tokens(B, T)},
        towers(
            "model.encoder.layers.{}.self_attn",
            "model.decoder.layers.{}.self_attn",
            "model.decoder.layers.{}.encoder_attn",
        ),
    ),
    "vit": lambda tf: (
        tf.ViTModel(tf.ViTConfig(**TEXT, image_size=15, patch_size=5)),
        {"pixel_values": randn(B, 3, 15, 15, dtype=torch.float32)},
        None,  # the names changed between versions
    ),
}


@pytest.fixture(scope="module", params=FAMILIES)
def family(request):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        model, inputs, names = FAMILIES[request.param](transformers)
        for p in model.parameters():  # random models look everywhere alike; let these look somewhere
            if p.dim() > 1:
                p.data.mul_(3)
        model.set_attn_implementation("sdpa")
    return model, inputs, names


def result(model, inputs):
    torch.manual_seed(1)
    model.zero_grad()
    outputs = model(**inputs)
    y = outputs["logits"] if "logits" in outputs else outputs["last_hidden_state"]
    y.square().sum().backward()
    return [y.detach(), *(p.grad for p in model.parameters())]


@pytest.mark.parametrize("train", [True, False])
def test_output_and_gradients_are_bit_equal(family, train):
    model, inputs, names = family
    model.train(train)
    blind = result(model, inputs)
    with sl.watch(model) as seen:
        watched = result(model, inputs)
    for a, b in zip(blind, watched, strict=True):
        assert (a is None and b is None) or torch.equal(a, b)
    assert names is None or seen.names() == names
    assert seen.unseen() == {}


def eager_weights(model, inputs):
    """The matrices that eager attention shows, in the order of the calls."""
    model.set_attn_implementation("eager")
    for part in model.modules():  # T5's stacks hold copies of the configuration
        if getattr(part, "config", None) is not None:
            part.config._attn_implementation = "eager"
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            out = model(**inputs, output_attentions=True)
    finally:
        model.set_attn_implementation("sdpa")
        for part in model.modules():
            if getattr(part, "config", None) is not None:
                part.config._attn_implementation = "sdpa"
    if "attentions" in out:
        return list(out["attentions"])
    decoding = zip(out["decoder_attentions"], out["cross_attentions"], strict=True)
    return [*out["encoder_attentions"], *(x for pair in decoding for x in pair)]


def test_received_is_the_column_sum_of_eager_attention(family):
    model, inputs, _ = family
    model.eval()
    weights = eager_weights(model, inputs)
    with torch.no_grad(), sl.watch(model, keep=True) as seen:
        model(**inputs)
    sights = [x for _, (x,) in seen.items()]
    assert len(sights) == len(weights)
    for sight, expected in zip(sights, weights, strict=True):
        assert expected.shape == (B, H, sight.t, sight.s)
        real = torch.ones(B, sight.t, dtype=torch.bool)
        if sight.t == S and "attention_mask" in inputs:  # what a padded query looks at is nobody's business
            real = inputs["attention_mask"].bool()
        for item in range(B):
            rows = real[item].nonzero()[:, 0]
            found = sight[item].rows(rows)
            near(found, expected[item][:, rows], rtol=1e-5, atol=1e-5)
            if real[item].all():
                near(sight[item].received, expected[item].sum(-2), rtol=1e-5, atol=1e-5)
                near(sight[item].peak, expected[item].amax(-1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("which", ["gpt2", "llama"])
def test_generation_is_one_sight_per_step_and_one_picture(which):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        model, _, names = FAMILIES[which](transformers)
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


def test_eager_attention_is_seen(family):
    """The same weights by hand: the same sights, and the output is eager's own."""
    model, inputs, _ = family
    model.eval()
    with torch.no_grad(), sl.watch(model, keep=True) as fused:
        model(**inputs)
    model.set_attn_implementation("eager")
    for part in model.modules():
        if getattr(part, "config", None) is not None:
            part.config._attn_implementation = "eager"
    try:
        blind = result(model, inputs)
        with sl.watch(model, keep=True) as seen:
            watched = result(model, inputs)
    finally:
        model.set_attn_implementation("sdpa")
        for part in model.modules():
            if getattr(part, "config", None) is not None:
                part.config._attn_implementation = "sdpa"
    assert all((a is None and b is None) or torch.equal(a, b) for a, b in zip(blind, watched, strict=True))
    assert seen.names() == fused.names()
    assert seen.unseen() == {}
    for name in seen.names():
        assert seen[name].source == "weights"
        near(seen[name].received, fused[name].received, rtol=1e-5, atol=1e-5)
        near(seen[name].entropy, fused[name].entropy, rtol=1e-5, atol=1e-5)


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
        model, inputs, names = FAMILIES["llama"](transformers)
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
