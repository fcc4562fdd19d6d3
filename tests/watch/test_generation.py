"""Generation that moves its caches about: beams, assistants, quantised keys; rows are those of the text."""

import copy
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import sightline as sl
from sightline.look.heads import head_table
from tests.look.look_oracle import near, randn

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    transformers = pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"
)

V, E, H, T = 97, 12, 6, 5
SIZES = {
    "vocab_size": V,
    "hidden_size": E,
    "num_hidden_layers": 2,
    "num_attention_heads": H,
    "num_key_value_heads": 2,
    "intermediate_size": 7,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


def model_of(which="llama", **settings):
    torch.manual_seed(0)
    if which == "t5":
        config = transformers.T5Config(
            d_model=E,
            num_layers=2,
            num_heads=3,
            d_kv=4,
            d_ff=7,
            vocab_size=V,
            decoder_start_token_id=0,
            **settings,
        )
        model = transformers.T5ForConditionalGeneration(config)
    else:
        name = {"llama": "Llama", "mistral": "Mistral"}[which]
        config = getattr(transformers, f"{name}Config")(**SIZES, **settings)
        model = getattr(transformers, f"{name}ForCausalLM")(config)
    for p in model.parameters():  # random models look everywhere alike; let these look somewhere
        if p.dim() > 1:
            p.data.mul_(3)
    return model.eval()


def tokens(*shape):
    return torch.randint(3, V, shape, generator=torch.Generator().manual_seed(0))


def generate(model, start, **options):
    settings = {"do_sample": False, "max_new_tokens": 9, "attention_mask": torch.ones_like(start)} | options
    return model.generate(start, **settings)


def at_once(model, ids, **inputs):
    with torch.no_grad(), sl.watch(model, keep=True) as seen:
        model(ids, **inputs)
    return seen


@pytest.mark.plain  # long, and its shapes are others' too
@pytest.mark.parametrize(
    ("implementation", "cache"),
    [
        ("sdpa", "dynamic"),
        ("eager", "static"),
        pytest.param("sdpa", "static", marks=pytest.mark.long),
        pytest.param("eager", "dynamic", marks=pytest.mark.long),
    ],
)
def test_the_rows_of_a_beam_are_those_of_its_own_history(implementation, cache):
    model = model_of()
    model.set_attn_implementation(implementation)
    beams = {"num_beams": 3, "num_return_sequences": 3, "return_dict_in_generate": True}
    with sl.watch(model, keep=True) as seen:
        out = generate(
            model, tokens(2, T), **beams, min_new_tokens=9, cache_implementation=cache, disable_compile=True
        )
    assert any(call.parents is not None for call in seen.calls(seen.names()[0]))
    moved = out.beam_indices[:, 1:] - torch.arange(2).repeat_interleave(3)[:, None] * 3
    assert (moved != moved[:, :1]).any()  # they did change places
    for name in seen.names():
        for sequence, path in zip(out.sequences, out.beam_indices, strict=True):
            text = sequence[None, :-1]
            expected = at_once(model, text)[name].rows(range(text.size(1)))
            found = seen.stack(name, beams=path)
            assert found.lead == (1, H)
            near(found.rows(range(found.t))[..., : text.size(1)], expected, atol=1e-5)


def test_beams_are_followed_unasked():
    """What stands in the batch at the end: items are followed back to where they came from."""
    model = model_of()
    with sl.watch(model, keep=True) as seen:
        out = generate(
            model,
            tokens(2, T),
            num_beams=3,
            num_return_sequences=3,
            min_new_tokens=9,
            return_dict_in_generate=True,
        )
    for name in seen.names():
        (run,) = seen.runs(name)
        assert run.lead == (6, H)
        for sequence, path in zip(out.sequences, out.beam_indices, strict=True):
            expected = at_once(model, sequence[None, :-1])[name].rows(range(T + 8))
            near(run[int(path[-1])].rows(range(T + 8)), expected[0], atol=1e-5)
    assert [head.layer for head in head_table(seen)][::H] == seen.names()


def test_a_hypothesis_that_has_ended():
    model = model_of()
    with sl.watch(model, keep=True) as seen:
        beams = {"num_beams": 5, "num_return_sequences": 5, "return_dict_in_generate": True}
        out = generate(model, tokens(2, T), **beams, eos_token_id=list(range(2, V, 7)))
    ended = (out.beam_indices < 0).any(-1).nonzero()[:, 0].tolist()
    assert ended  # some end before the others
    for i in ended:
        n = int((out.beam_indices[i] >= 0).sum()) + T - 1
        for name in seen.names():
            found = seen.stack(name, beams=out.beam_indices[i])
            expected = at_once(model, out.sequences[i : i + 1, :n])[name]
            assert found.t == n
            near(found.rows(range(n))[..., :n], expected.rows(range(n)), atol=1e-5)


def test_beams_of_an_encoder_decoder():
    model = model_of("t5")
    source = tokens(2, T)
    with sl.watch(model, keep=True) as seen:
        out = generate(
            model, source, num_beams=3, num_return_sequences=3, min_new_tokens=9, return_dict_in_generate=True
        )
    for i, path in enumerate(out.beam_indices):
        text = out.sequences[i : i + 1, :-1]
        expected = at_once(model, source[i // 3][None], decoder_input_ids=text)
        for name in (n for n in seen.names() if n.startswith("decoder")):
            found = seen.stack(name, beams=path)
            near(found.rows(range(found.t)), expected[name].rows(range(text.size(1))), atol=1e-5)


@pytest.mark.plain  # long, and its shapes are others' too
def test_beams_with_steps_left_out(tmp_path):
    model = model_of()
    with sl.watch(model, keep=True, every=2) as seen:
        out = generate(
            model,
            tokens(2, T),
            num_beams=3,
            num_return_sequences=3,
            min_new_tokens=9,
            return_dict_in_generate=True,
        )
    seen.save(tmp_path / "seen.safetensors", keep=True)
    measured = [*range(T), *range(T + 1, T + 8, 2)]
    for one in (seen, type(seen).load(tmp_path / "seen.safetensors")):
        for name in one.names():
            (run,) = one.runs(name)
            for sequence, path in zip(out.sequences, out.beam_indices, strict=True):
                expected = at_once(model, sequence[None, :-1])[name].rows(measured)
                near(one.stack(name, beams=path).rows(range(run.t)), expected, atol=1e-5)
                near(run[int(path[-1])].rows(range(run.t)), expected[0], atol=1e-5)


@pytest.mark.bad_input
def test_beams_that_can_not_be():
    model = model_of()
    with sl.watch(model, keep=True) as seen:
        generate(model, tokens(2, T), num_beams=3, min_new_tokens=9)
    name = seen.names()[0]
    with pytest.raises(ValueError, match=r"each in 0\.\.5, got \[0, 7\]"):
        seen.stack(name, beams=[0, 7])
    with pytest.raises(ValueError, match="a beam search moved 6 items of a batch, got sights of 1"):
        sl.look.steps.stack([x[:1] for x in seen.calls(name)])
    with pytest.raises(ValueError, match="have been followed through the beam search already, got beams="):
        sl.align(seen.stack(name), beams=torch.zeros(2, 13, dtype=torch.long))


@pytest.mark.combinations
@pytest.mark.plain  # long, and its shapes are others' too
@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("noise", [0.0, 0.3, 3.0])
def test_an_assistant_guesses_and_is_no_part_of_the_model(noise, every):
    """Right guesses, some, none: rows are those of the text, and the assistant's own are nobody's."""
    model = model_of()
    assistant = copy.deepcopy(model)
    for p in assistant.parameters():
        if p.dim() > 1:
            p.data.add_(randn(*p.shape, seed=3, dtype=torch.float32) * noise)
    start = tokens(1, T)
    with sl.watch(model, keep=True, every=every) as seen:
        out = generate(model, start, assistant_model=assistant, min_new_tokens=9, max_new_tokens=14)
    assert seen.names() == [f"model.layers.{i}.self_attn" for i in range(2)]
    expected = at_once(model, out[:, :-1])
    for name in seen.names():
        calls = seen.calls(name)
        (run,) = seen.runs(name)
        rows = expected[name].rows(range(out.size(1) - 1))
        if every == 1:
            assert run.t == out.size(1) - 1
            near(run.rows(range(run.t)), rows, atol=1e-5)
            near(run.received, rows.sum(-2), atol=1e-5)
            assert (sum(call.t for call in calls) > run.t) == (noise > 0)  # wrong guesses are no rows
        else:
            assert run.t < out.size(1) - 1
            at = [piece.position + i for piece in run.kept for i in range(piece.inputs.shape[2])]
            near(run.rows(range(run.t)), rows[..., at, : run.s], atol=1e-5)


def test_guesses_without_q_and_k():
    model = model_of()
    with sl.watch(model) as seen:
        out = generate(model, tokens(1, T), prompt_lookup_num_tokens=3, min_new_tokens=14, max_new_tokens=14)
    expected = at_once(model, out[:, :-1])
    assert seen.names() == [f"model.layers.{i}.self_attn" for i in range(2)]
    for name in seen.names():
        run = seen.stack(name)
        near(run.entropy, expected[name].entropy, atol=1e-5)
        assert torch.equal(run.peak_at, expected[name].peak_at)


class Quantised(transformers.cache_utils.QuantizedLayer):
    """Keys of eight bits, as quanto's and HQQ's are: one scale for each head and place."""

    def _quantize(self, tensor, axis):
        scale = tensor.abs().amax(-1, keepdim=True).clamp(min=1e-9) / 127
        return (tensor / scale).round().to(torch.int8), scale

    def _dequantize(self, q_tensor):
        return q_tensor[0] * q_tensor[1]


def test_a_quantised_cache_is_seen_as_the_model_reads_it():
    model = model_of()
    start = tokens(1, T)

    def cache():
        made = transformers.DynamicCache()
        made.layers = [Quantised(residual_length=3) for _ in range(2)]
        made.layer_class_to_replicate = None
        return made

    blind = generate(model, start, past_key_values=cache(), min_new_tokens=9)
    keys = []
    plain = F.scaled_dot_product_attention

    def overhear(q, k, *args, **kwargs):
        keys.append((q, k))
        return plain(q, k, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch, sl.watch(model, keep=True) as seen:
        patch.setattr(F, "scaled_dot_product_attention", overhear)
        out = generate(model, start, past_key_values=cache(), min_new_tokens=9)
    assert torch.equal(blind, out)
    for layer, name in enumerate(seen.names()):
        run = seen.stack(name)
        assert (run.t, run.s) == (T + 8, T + 8)
        first = 0
        for q, k in keys[layer::2]:
            t, s = q.size(2), k.size(2)
            scores = (
                q.double() @ k.double().repeat_interleave(q.size(1) // k.size(1), 1).mT * q.size(-1) ** -0.5
            )
            weights = scores.masked_fill(~torch.ones(t, s, dtype=torch.bool).tril(s - t), -torch.inf).softmax(
                -1
            )
            near(run.rows(range(first, first + t))[..., :s], weights, atol=1e-5)
            first += t


class Unregistered(nn.Module):
    """Holds an attention in a list, where ``named_modules`` does not find it."""

    def __init__(self):
        super().__init__()
        self.hidden = [nn.MultiheadAttention(E, 3, batch_first=True)]

    def forward(self, x):
        return self.hidden[0](x, x, x, need_weights=False)[0]

    def encode(self, x):
        return self.hidden[0](x, x, x, need_weights=False)[0]

    def ask(self, other, x):
        return other(x, x, x, need_weights=False)[0]


def test_what_a_model_holds_is_its_own_and_what_it_is_given_is_not():
    model, other = Unregistered(), nn.MultiheadAttention(E, 3, batch_first=True)
    x = randn(2, T, E, dtype=torch.float32)
    with sl.watch(model) as seen:
        model(x)
        model.encode(x)
        model.ask(other, x)
    assert len(seen.calls("")) == 2


@pytest.mark.parametrize("batch", [1, 2])
def test_single_steps_beside_a_sink(batch):
    """A step's weights without the sink's column are a view with a row alone: it was taken for a block."""
    own = {"num_local_experts": 2, "num_experts_per_tok": 1, "sliding_window": 5, "head_dim": 8}
    sizes = SIZES | {"intermediate_size": 8} | own
    torch.manual_seed(0)
    model = transformers.GptOssForCausalLM(transformers.GptOssConfig(**sizes)).eval()
    model.set_attn_implementation("eager")
    with sl.watch(model, keep=True) as seen:
        out = generate(model, tokens(batch, T), min_new_tokens=9)
    expected = at_once(model, out[:, :-1])
    for name in expected.names():
        (run,) = seen.runs(name)
        near(run.rows(range(run.t)), expected[name].rows(range(T + 8)), atol=1e-5)
