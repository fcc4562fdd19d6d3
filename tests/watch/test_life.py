"""Models as people call them: by a trainer, with other weights, with hooks, until an error."""

import os
import warnings

import numpy as np
import pytest
import torch
from torch import nn

import sightline as sl
from tests.look.look_oracle import near, randn

os.environ.setdefault("HF_HUB_OFFLINE", "1")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    transformers = pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()

pytestmark = [pytest.mark.plain, pytest.mark.filterwarnings("ignore")]

V, E, H, B, T = 31, 12, 3, 2, 7
SIZES = {"hidden_size": E, "num_hidden_layers": 2, "num_attention_heads": H, "intermediate_size": 5}
IDS = {"vocab_size": V, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
NAMES = [f"model.layers.{i}.self_attn" for i in range(2)]


def llama():
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES, **IDS)).eval()


def ids(*shape):
    return torch.randint(3, V, shape, generator=torch.Generator().manual_seed(0))


def test_a_trainer(tmp_path):
    def trained(watch):
        model = llama()
        torch.manual_seed(1)
        data = [{"input_ids": x, "labels": x} for x in ids(4, T)]
        options = {"max_steps": 2, "per_device_train_batch_size": 2, "report_to": [], "disable_tqdm": True}
        arguments = transformers.TrainingArguments(tmp_path, use_cpu=True, save_strategy="no", **options)
        trainer = transformers.Trainer(model, arguments, train_dataset=data)
        if not watch:
            trainer.train()
            return model.state_dict(), None
        with sl.watch(model) as seen:
            trainer.train()
        return model.state_dict(), seen

    blind, _ = trained(watch=False)
    watched, seen = trained(watch=True)
    assert all(torch.equal(blind[name], watched[name]) for name in blind)
    assert seen.names() == NAMES
    assert [len(seen.calls(name)) for name in NAMES] == [2, 2]


def test_functional_call_with_other_weights():
    model, other, x = llama(), llama(), ids(B, T)
    weights = {name: 2 * p.detach() for name, p in model.named_parameters()}
    other.load_state_dict(weights)
    with torch.no_grad(), sl.watch(model) as seen:
        torch.func.functional_call(model, weights, (x,))
    with torch.no_grad(), sl.watch(other) as expected:
        other(x)
    assert seen.names() == NAMES
    for name in NAMES:
        near(seen[name].entropy, expected[name].entropy, atol=1e-5)


class Attending(nn.MultiheadAttention):
    """Torch's module with one input and one output, so that it fits into a chain."""

    def forward(self, x):
        return super().forward(x, x, x, need_weights=False)[0]


def test_a_chain_that_shares_a_module():
    attn = Attending(E, H, batch_first=True)
    model, x = (
        nn.Sequential(attn, nn.Sequential(attn, Attending(E, H, batch_first=True))),
        randn(B, T, E, dtype=torch.float32),
    )
    with sl.watch(model) as seen:
        model(x)
    assert {name: len(calls) for name, calls in seen.items()} == {"0": 2, "1.1": 1}


def test_hooks_that_give_another_output_stay_and_count():
    model, x = nn.Sequential(*(Attending(E, H, batch_first=True) for _ in range(2))), torch.randn(B, T, E)
    handle = model[0].register_forward_hook(lambda _module, _args, out: out * 3)
    blind = model(x)
    with sl.watch(model) as seen:
        watched = model(x)
    handle.remove()
    assert torch.equal(blind, watched)
    assert not torch.equal(model(x), watched)
    assert seen.names() == ["0", "1"]


class Breaks(nn.Module):
    def forward(self, _x):
        raise RuntimeError("midway")


def test_a_forward_that_raises_midway_leaves_what_was_seen():
    model, x = nn.Sequential(Attending(E, H, batch_first=True), Breaks()), torch.randn(B, T, E)
    watch = sl.watch(model)
    with pytest.raises(RuntimeError, match="midway"), watch as seen:
        model(x)
    assert seen.names() == ["0"]
    assert (seen["0"].t, seen["0"].s) == (T, T)
    with sl.watch(model[0]) as again:
        model[0](x)
    assert torch.equal(again[""].received, seen["0"].received)


def test_torch_transformer_is_seen_on_both_sides():
    model = nn.Transformer(E, H, 1, 1, 5, batch_first=True)
    with sl.watch(model) as seen:
        model(torch.randn(B, T, E), torch.randn(B, 5, E))
    decoder = ["decoder.layers.0.self_attn", "decoder.layers.0.multihead_attn"]
    assert seen.names() == ["encoder.layers.0.self_attn", *decoder]


def test_places_of_modules():
    model = llama()
    with torch.no_grad(), sl.watch(model) as seen:
        model(ids(B, T))
    for place in (1, -1, np.int64(1), torch.tensor(1)):
        assert seen[place] is seen[NAMES[1]]
    assert list(seen[1:]) == NAMES[1:]
    assert seen[:1][0] is seen[NAMES[0]]
    for key in (1.5, None, (0, 1), torch.tensor([0, 1]), True):
        with pytest.raises(TypeError, match="takes the name of a module, a pattern or a place"):
            seen[key]


def test_guidance_goes_through_two_sequences_in_turns():
    model = llama()
    with torch.no_grad(), sl.watch(model, keep=True) as seen:
        for n in (T, 5):
            model.generate(ids(1, n), max_new_tokens=4, guidance_scale=1.5, do_sample=False)
    assert [(run.t, run.s) for run in seen.runs(NAMES[0])] == [(T + 3, T + 3), (4, 4), (8, 8), (4, 4)]
    with torch.no_grad(), sl.watch(model, keep=True) as seen:
        model(ids(1, T))
        model.generate(ids(1, T), max_new_tokens=4, do_sample=False)
    assert [(run.t, run.s) for run in seen.runs(NAMES[0])] == [(T, T), (T + 3, T + 3)]


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("padded", [3, 0])
def test_padding_on_the_left_of_a_static_cache(implementation, padded):
    model = llama()
    model.set_attn_implementation(implementation)
    mask = torch.ones(B, T, dtype=torch.long)
    mask[0, :padded] = 0
    options = {"max_new_tokens": 4, "cache_implementation": "static", "disable_compile": True}
    with torch.no_grad(), sl.watch(model) as seen:
        model.generate(ids(B, T), attention_mask=mask, do_sample=False, **options)
    prompt = seen.calls(NAMES[0])[0]
    assert prompt.padding == ("attention_mask" if padded or implementation == "eager" else "")
    assert prompt.is_looking[:, 0].sum(-1).tolist() == [T - padded, T]
