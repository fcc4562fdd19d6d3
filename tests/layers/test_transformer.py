import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import sightline as sl
from tests.oracle.layers import built, causal, padded, run, same, twins, worst_error

B, T, S, E, H, D_FF = 3, 7, 5, 10, 2, 11
SIZES = (E, H, 2, 2, D_FF, 0.0)


def some(batch_first=True, dtype=torch.float64):
    return [torch.randn(*((B, n) if batch_first else (n, B)), E, dtype=dtype) for n in (S, T)]


CASES = {
    "plain": ({}, {}),
    "causal, norm first": (
        {"norm_first": True, "batch_first": True},
        {"tgt_mask": causal(T), "tgt_is_causal": True},
    ),
    "padded": (
        {"batch_first": True, "activation": "gelu"},
        {
            "src_key_padding_mask": padded(B, S),
            "memory_key_padding_mask": padded(B, S),
            "tgt_key_padding_mask": padded(B, T),
            "tgt_mask": causal(T) != 0,
        },
    ),
    "callable, no bias": (
        {"activation": F.silu, "bias": False},
        {"src_mask": causal(S), "memory_mask": torch.randn(T, S, dtype=torch.float64)},
    ),
    "hints": (
        {"batch_first": True, "layer_norm_eps": 1e-2},
        {
            "src_mask": causal(S),
            "src_is_causal": True,
            "tgt_mask": causal(T),
            "tgt_is_causal": False,
            "memory_mask": torch.ones(T, S).triu(1) > 0,
            "memory_is_causal": True,
        },
    ),
}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_gives_torchs_numbers_and_gradients(case, training):
    arguments, masks = CASES[case]
    theirs, ours = (model.train(training) for model in twins("Transformer", *SIZES, **arguments))
    inputs = some(arguments.get("batch_first", False))
    same(run(theirs, inputs, masks), run(ours, inputs, masks))
    if not training:
        with torch.no_grad():
            same(run(theirs, inputs, masks, backward=False), run(ours, inputs, masks, backward=False))


def test_takes_sequences_without_a_batch():
    theirs, ours = twins("Transformer", *SIZES)
    inputs = [torch.randn(n, E, dtype=torch.float64) for n in (S, T)]
    same(run(theirs, inputs, {"tgt_mask": causal(T)}), run(ours, inputs, {"tgt_mask": causal(T)}))


def test_takes_a_custom_encoder_and_decoder():
    class Doubled(nn.Module):
        def forward(self, src, mask=None, src_key_padding_mask=None, is_causal=None):
            return 2 * src

    class Summed(nn.Module):
        def forward(self, tgt, memory, **masks):
            return tgt + memory.sum(0)

    for arguments in ({"custom_encoder": Doubled()}, {"custom_decoder": Summed()}):
        theirs, ours = twins("Transformer", *SIZES, **arguments)
        inputs = some(batch_first=False)
        same(run(theirs, inputs, {}), run(ours, inputs, {}))


def test_same_first_weights_same_keys_and_checkpoints_both_ways():
    theirs, ours = twins("Transformer", *SIZES)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert all(map(torch.equal, ours.state_dict().values(), theirs.state_dict().values()))
    torch.nn.init.normal_(theirs.decoder.layers[1].linear2.weight)
    ours.load_state_dict(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())
    assert torch.equal(ours.decoder.layers[1].linear2.weight, theirs.decoder.layers[1].linear2.weight)


def test_the_default_is_the_paper_and_torchs():
    theirs, ours = twins("Transformer", num_encoder_layers=1, num_decoder_layers=1, dtype=torch.float32)
    shapes = [(name, x.shape) for name, x in theirs.named_parameters()]
    assert [(name, x.shape) for name, x in ours.named_parameters()] == shapes
    for name in ("d_model", "nhead", "batch_first"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert ours.decoder.layers[0].dropout.p == theirs.decoder.layers[0].dropout.p == 0.1


def test_every_attention_in_it_is_ours():
    _, ours = twins("Transformer", *SIZES)
    inside = [m for m in ours.modules() if isinstance(m, nn.MultiheadAttention)]
    assert len(inside) == 6
    assert all(type(m) is sl.nn.MultiheadAttention for m in inside)
    assert isinstance(ours, nn.Transformer)


def test_pickled_and_copied_it_still_is_what_it_was():
    ours = twins("Transformer", *SIZES)[1].eval()
    inputs = some(batch_first=False)
    for twin in (pickle.loads(pickle.dumps(ours)), copy.deepcopy(ours)):  # noqa: S301
        assert torch.equal(twin(*inputs), ours(*inputs))


def test_float32_is_as_exact_as_torchs():
    worst = {nn: 0.0, sl.nn: 0.0}
    for seed in range(4):
        exact = twins("Transformer", 34, 2, 1, 1, 37, 0.0, batch_first=True)
        for module, model in zip(worst, exact, strict=True):
            for parameter in model.parameters():
                parameter.data = parameter.data.float().double()
            torch.manual_seed(seed)
            inputs = [torch.randn(3, n, 34) for n in (31, 29)]
            single = copy.deepcopy(model).float()
            error = worst_error(single, model, inputs, {"tgt_mask": causal(29, torch.float32)})
            worst[module] = max(worst[module], error)
    assert worst[sl.nn] <= 1.5 * worst[nn]


def test_swapping_the_names_in_torch_itself_builds_the_same_weights(monkeypatch):
    expected, _ = twins("Transformer", *SIZES)
    for name in sl.nn.__all__:
        for module in (torch.nn, torch.nn.modules.transformer):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, getattr(sl.nn, name))
    found, _ = built(torch.nn, "Transformer", *SIZES, dtype=torch.float64)
    assert all(map(torch.equal, found.parameters(), expected.parameters()))


def test_autocast_runs_in_bfloat16():
    theirs, ours = twins("Transformer", *SIZES, dtype=torch.float32)
    inputs = some(batch_first=False, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        expected, found = (m(*inputs, tgt_mask=causal(T, torch.float32)) for m in (theirs, ours))
    assert found.dtype == expected.dtype
    torch.testing.assert_close(found, expected, rtol=0.1, atol=0.1)


BAD_CALLS = {
    "batches": (torch.zeros(S, B, E), torch.zeros(T, 2, E)),
    "features of the source": (torch.zeros(S, B, 9), torch.zeros(T, B, E)),
    "features of the target": (torch.zeros(S, B, E), torch.zeros(T, B, 9)),
}


@pytest.mark.bad_input
@pytest.mark.parametrize("case", BAD_CALLS)
def test_a_bad_call_is_answered_with_torchs_words_and_the_values(case):
    theirs, ours = twins("Transformer", *SIZES, dtype=torch.float32)
    with pytest.raises(RuntimeError) as expected:
        theirs(*BAD_CALLS[case])
    with pytest.raises(RuntimeError, match=r"got .*\d") as found:
        ours(*BAD_CALLS[case])
    assert str(found.value).startswith(str(expected.value))


@pytest.mark.bad_input
def test_batches_are_compared_where_batch_first_says_they_are():
    ours = twins("Transformer", *SIZES, batch_first=True, dtype=torch.float32)[1]
    with pytest.raises(
        RuntimeError, match=r"batch number .* must be equal, got src \(3, 5, 10\) and tgt \(2, 5, 10\)"
    ):
        ours(torch.zeros(B, S, E), torch.zeros(2, S, E))


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"nhead": 3}, "embed_dim must be divisible by num_heads"),
        ({"activation": "silu"}, "activation should be relu/gelu, not silu"),
    ],
)
def test_a_bad_constructor_argument_is_answered_as_by_torch(arguments, words):
    with pytest.raises(Exception, match=words) as expected:
        nn.Transformer(**arguments)
    with pytest.raises(type(expected.value), match=words):
        sl.nn.Transformer(**arguments)
