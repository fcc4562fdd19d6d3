import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import sightline as sl
from tests.oracle.layers import built, causal, padded, run, same, stacks, twins, worst_error

B, T, S, E, H, D_FF = 3, 7, 5, 10, 2, 11
LAYER = "TransformerDecoderLayer"


def some(batch_first=True, dtype=torch.float64):
    return [torch.randn(*((B, n) if batch_first else (n, B)), E, dtype=dtype) for n in (T, S)]


CASES = {
    "plain": ({}, {}),
    "causal, norm first": ({"norm_first": True}, {"tgt_mask": causal(T), "tgt_is_causal": True}),
    "gelu by name": ({"activation": "gelu"}, {"memory_key_padding_mask": padded(B, S)}),
    "relu by name": ({"activation": "relu", "layer_norm_eps": 1e-2}, {"tgt_mask": causal(T)}),
    "callable": (
        {"activation": F.silu},
        {"tgt_mask": causal(T) != 0, "tgt_key_padding_mask": padded(B, T)},
    ),
    "module": (
        {"activation": nn.Tanh(), "norm_first": True},
        {"memory_mask": torch.randn(T, S, dtype=torch.float64)},
    ),
    "no bias": ({"bias": False}, {"memory_mask": torch.randn(B * H, T, S, dtype=torch.float64)}),
    "a hint across": ({}, {"memory_mask": torch.ones(T, S).triu(1) > 0, "memory_is_causal": True}),
    "mixed kinds": (
        {},
        {
            "tgt_mask": torch.randn(T, T, dtype=torch.float64),
            "tgt_key_padding_mask": padded(B, T),
            "memory_mask": torch.ones(T, S).triu(2) > 0,
            "memory_key_padding_mask": torch.randn(B, S, dtype=torch.float64),
        },
    ),
}


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_layer_gives_torchs_numbers_and_gradients(case, batch_first):
    arguments, masks = CASES[case]
    theirs, ours = twins(LAYER, E, H, D_FF, 0.0, batch_first=batch_first, **arguments)
    inputs = some(batch_first)
    same(run(theirs, inputs, masks), run(ours, inputs, masks))


@pytest.mark.parametrize("case", CASES)
def test_layer_in_eval_and_without_grad_gives_torchs_numbers(case):
    arguments, masks = CASES[case]
    theirs, ours = (x.eval() for x in twins(LAYER, E, H, D_FF, 0.1, batch_first=True, **arguments))
    inputs = some()
    same(run(theirs, inputs, masks), run(ours, inputs, masks))
    with torch.no_grad():
        same(run(theirs, inputs, masks, backward=False), run(ours, inputs, masks, backward=False))


def test_layer_takes_sequences_without_a_batch():
    theirs, ours = twins(LAYER, E, H, D_FF, 0.0)
    inputs = [torch.randn(n, E, dtype=torch.float64) for n in (T, S)]
    masks = {"tgt_mask": causal(T), "memory_key_padding_mask": padded(2, S)[1]}
    same(run(theirs, inputs, masks), run(ours, inputs, masks))


@given(data=st.data())
@settings(max_examples=12, derandomize=True, deadline=None)
def test_stack_gives_torchs_numbers_whatever_the_arguments(data):
    draw = lambda *values: data.draw(st.sampled_from(values))  # noqa: E731
    batch_first = draw(True, False)
    layers = twins(
        LAYER,
        E,
        H,
        D_FF,
        0.0,
        draw("relu", "gelu", torch.tanh),
        batch_first=batch_first,
        norm_first=draw(True, False),
        bias=draw(True, False),
    )
    norm = draw(None, nn.LayerNorm(E, dtype=torch.float64))
    theirs, ours = stacks("TransformerDecoder", layers, 2, norm)
    tilt = torch.randn(T, S, dtype=torch.float64)
    masks = {
        "tgt_mask": draw(None, causal(T), causal(T) != 0, torch.randn(T, T, dtype=torch.float64)),
        "memory_mask": draw(None, tilt, tilt > 2),
        "tgt_key_padding_mask": draw(None, padded(B, T)),
        "memory_key_padding_mask": draw(None, padded(B, S), torch.randn(B, S, dtype=torch.float64)),
        "tgt_is_causal": draw(None, False),
    }
    inputs, training = some(batch_first), draw(True, False)
    theirs.train(training), ours.train(training)
    same(run(theirs, inputs, masks), run(ours, inputs, masks))


def test_a_later_token_does_not_reach_an_earlier_output():
    ours = twins(LAYER, E, H, D_FF, 0.0, batch_first=True)[1]
    tgt, memory = some()
    tgt.requires_grad_()
    ours(tgt, memory, causal(T), tgt_is_causal=True)[:, 3, 0].sum().backward()
    assert (tgt.grad[:, 4:] == 0).all()
    assert (tgt.grad[:, :4] != 0).any(dim=-1).all()


def test_float32_is_as_exact_as_torchs():
    worst = {nn: 0.0, sl.nn: 0.0}
    for seed in range(6):
        exact = twins(LAYER, 34, 2, 37, 0.0, batch_first=True)
        for module, layer in zip(worst, exact, strict=True):
            for parameter in layer.parameters():
                parameter.data = parameter.data.float().double()
            torch.manual_seed(seed)
            inputs = [torch.randn(3, n, 34) for n in (31, 29)]
            single = copy.deepcopy(layer).float()
            error = worst_error(single, layer, inputs, {"tgt_mask": causal(31, torch.float32)})
            worst[module] = max(worst[module], error)
    assert worst[sl.nn] <= 1.5 * worst[nn]


def test_same_first_weights_same_keys_and_checkpoints_both_ways():
    theirs, ours = stacks("TransformerDecoder", twins(LAYER, E, H, D_FF), 2, nn.LayerNorm(E))
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert all(map(torch.equal, ours.state_dict().values(), theirs.state_dict().values()))
    torch.nn.init.normal_(theirs.layers[1].multihead_attn.in_proj_weight)
    ours.load_state_dict(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())
    assert torch.equal(
        ours.layers[1].multihead_attn.in_proj_weight, theirs.layers[1].multihead_attn.in_proj_weight
    )


def test_pickled_and_copied_it_still_is_what_it_was():
    ours = built(sl.nn, "TransformerDecoder", twins(LAYER, E, H, D_FF, batch_first=True)[1], 2)[0].eval()
    inputs = some()
    for twin in (pickle.loads(pickle.dumps(ours)), copy.deepcopy(ours)):  # noqa: S301
        assert torch.equal(twin(*inputs), ours(*inputs))


def test_it_is_a_torch_layer_and_torchs_stack_takes_it():
    theirs, ours = twins(LAYER, E, H, D_FF, 0.0, batch_first=True)
    assert isinstance(ours, nn.TransformerDecoderLayer)
    assert issubclass(sl.nn.TransformerDecoder, nn.TransformerDecoder)
    pure, mixed = nn.TransformerDecoder(theirs, 2), nn.TransformerDecoder(ours, 2)
    inputs, masks = some(), {"tgt_mask": causal(T)}
    same(run(pure, inputs, masks), run(mixed, inputs, masks))


@pytest.mark.parametrize("name", ["dropout", "dropout1", "dropout2", "dropout3"])
def test_every_branch_has_its_own_dropout(name):
    """One of them drops all, the others nothing: no chance is left, and torch's numbers are expected."""
    theirs, ours = twins(LAYER, E, H, D_FF, 0.0, batch_first=True)
    for layer in (theirs, ours):
        getattr(layer, name).p = 1.0
    inputs = some()
    same(run(theirs, inputs, {}), run(ours, inputs, {}))


def test_dropout_is_fixed_by_the_seed():
    ours = twins(LAYER, E, H, D_FF, 0.5, batch_first=True)[1]
    inputs, found = some(), []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        found.append(ours(*inputs))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


@pytest.mark.parametrize("batch_first", [True, False])
def test_output_can_be_viewed_as_torchs_can(batch_first):
    theirs, ours = twins(LAYER, E, H, D_FF, 0.0, batch_first=batch_first)
    inputs = some(batch_first)
    assert ours(*inputs).stride() == theirs(*inputs).stride()


@pytest.mark.filterwarnings("ignore:.*hides every key of a row:UserWarning")
def test_a_memory_of_nothing_but_padding_is_finite_and_gets_no_gradient():
    ours = twins(LAYER, E, H, D_FF, 0.0, batch_first=True)[1]
    padding = padded(B, S)
    padding[1] = True
    found = run(ours, some(), {"memory_key_padding_mask": padding})
    assert all(x.isfinite().all() for x in found.values())
    assert (found["gradient of input 1"][1] == 0).all()


@pytest.mark.plain  # the shape hook can't be compiled
def test_compiles_into_one_graph():
    torch._dynamo.reset()
    ours = built(sl.nn, "TransformerDecoder", twins(LAYER, E, H, D_FF, 0.0, batch_first=True)[1], 1)[0]
    compiled = torch.compile(ours, fullgraph=True, backend="eager")
    inputs, masks = some(), {"tgt_mask": causal(T), "memory_key_padding_mask": padded(B, S)}
    torch.testing.assert_close(compiled(*inputs, **masks), ours(*inputs, **masks), rtol=1e-12, atol=1e-12)


TGT, MEMORY = torch.zeros(B, T, E), torch.zeros(B, S, E)
BAD_CALLS = {
    "width of the target": ((torch.zeros(B, T, 9), MEMORY), {}),
    "width of the memory": ((TGT, torch.zeros(B, S, 9)), {}),
    "ranks": ((TGT, torch.zeros(S, E)), {}),
    "batches": ((TGT, torch.zeros(2, S, E)), {}),
    "target mask of another length": ((TGT, MEMORY, torch.zeros(T, S)), {}),
    "memory mask of another length": ((TGT, MEMORY, None, torch.zeros(T, T)), {}),
    "memory padding of another length": ((TGT, MEMORY), {"memory_key_padding_mask": torch.zeros(B, T)}),
    "a hint without its mask": ((TGT, MEMORY), {"tgt_is_causal": True}),
}


@pytest.mark.bad_input
@pytest.mark.parametrize("case", BAD_CALLS)
def test_a_bad_call_is_answered_as_by_torch(case):
    args, kwargs = BAD_CALLS[case]
    theirs, ours = twins(LAYER, E, H, D_FF, batch_first=True, dtype=torch.float32)
    with pytest.raises(Exception) as expected:  # noqa: PT011
        theirs(*args, **kwargs)
    with pytest.raises(type(expected.value)) as found:
        ours(*args, **kwargs)
    assert str(found.value) == str(expected.value)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((10, 3), "embed_dim must be divisible by num_heads"),
        ((10, 2, 11, 0.0, "silu"), "activation should be relu/gelu, not silu"),
    ],
)
def test_a_bad_constructor_argument_is_answered_as_by_torch(arguments, words):
    with pytest.raises(Exception, match=words) as expected:
        nn.TransformerDecoderLayer(*arguments)
    with pytest.raises(type(expected.value), match=words):
        sl.nn.TransformerDecoderLayer(*arguments)


@pytest.mark.filterwarnings("ignore:.*hides every key of a row:UserWarning")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_a_memory_without_tokens_is_one_that_nobody_may_look_at(dtype):
    layer = sl.nn.TransformerDecoderLayer(E, H, D_FF, 0.0, batch_first=True, dtype=dtype)
    layer.multihead_attn.in_proj_bias.data[:E].fill_(torch.finfo(dtype).max / 2)  # queries that add up to inf
    target = torch.randn(B, T, E).to(dtype)
    output = layer(target, target.new_zeros(B, 0, E))
    assert torch.equal(
        output, layer(target, target.new_zeros(B, 1, E), memory_mask=torch.ones(T, 1, dtype=torch.bool))
    )
    assert output.isfinite().all()
