import copy
import pickle
import warnings
from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import sightline as sl
from tests.oracle.layers import (
    EXPECTED,
    built,
    causal,
    padded,
    run,
    same,
    slow_path,
    stacks,
    twins,
    worst_error,
)

B, T, E, H, D_FF = 3, 7, 10, 2, 11
LAYER = "TransformerEncoderLayer"


def some(batch_first=True, batched=True, dtype=torch.float64):
    if not batched:
        return torch.randn(T, E, dtype=dtype)
    return torch.randn(*((B, T) if batch_first else (T, B)), E, dtype=dtype)


def float_mask(*shape, dtype=torch.float64):
    return (
        torch.randn(*shape, dtype=dtype).masked_fill(torch.rand(shape) < 0.3, -torch.inf).fill_diagonal_(0.5)
    )


def bool_mask(*shape):
    mask = torch.rand(shape) < 0.3
    mask[..., 0] = (
        False  # the first key is never padding: torch's inference kernel gives NaN for an empty row
    )
    return mask


def as_float(mask):
    return torch.zeros(mask.shape, dtype=torch.float64).masked_fill(mask, -torch.inf)


CASES = {
    "plain": ({}, {}),
    "norm first": ({"norm_first": True}, {"src_mask": causal(T), "is_causal": True}),
    "gelu by name": ({"activation": "gelu"}, {"src_key_padding_mask": padded(B, T)}),
    "relu by name": ({"activation": "relu", "layer_norm_eps": 1e-2}, {"src_mask": causal(T)}),
    "callable": ({"activation": F.silu, "norm_first": True}, {"src_mask": bool_mask(T, T)}),
    "module": ({"activation": nn.GELU()}, {"src_mask": float_mask(T, T)}),
    "no bias": ({"bias": False}, {"src_mask": bool_mask(B * H, T, T)}),
    "no bias, norm first": ({"bias": False, "norm_first": True}, {"src_key_padding_mask": padded(B, T)}),
    "both boolean": ({}, {"src_mask": bool_mask(T, T), "src_key_padding_mask": padded(B, T)}),
    "mixed kinds": ({}, {"src_mask": float_mask(T, T), "src_key_padding_mask": padded(B, T)}),
    "float padding": ({}, {"src_key_padding_mask": torch.randn(B, T, dtype=torch.float64)}),
    "causal and padding": (
        {},
        {"src_mask": causal(T), "src_key_padding_mask": padded(B, T), "is_causal": True},
    ),
    "three dimensions": ({}, {"src_mask": torch.randn(B * H, T, T, dtype=torch.float64)}),
}


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_layer_gives_torchs_numbers_and_gradients(case, batch_first):
    arguments, masks = CASES[case]
    theirs, ours = twins(LAYER, E, H, D_FF, 0.0, batch_first=batch_first, **arguments)
    x = some(batch_first)
    same(run(theirs, [x], masks), run(ours, [x], masks))


@pytest.mark.parametrize("case", CASES)
def test_layer_in_eval_and_without_grad_gives_torchs_numbers(case):
    arguments, masks = CASES[case]
    theirs, ours = twins(LAYER, E, H, D_FF, 0.1, batch_first=True, **arguments)
    x = some()
    same(run(theirs.eval(), [x], masks), run(ours.eval(), [x], masks))
    tilted = any(has_tilt(mask) for mask in masks.values())
    with torch.no_grad(), slow_path() if tilted else nullcontext():
        expected = run(theirs, [x], masks, backward=False)
    with torch.no_grad():
        same(expected, run(ours, [x], masks, backward=False))


def has_tilt(mask):
    """Whether a mask does more than allow and forbid."""
    return isinstance(mask, torch.Tensor) and mask.is_floating_point() and mask[mask.isfinite()].any().item()


@pytest.mark.parametrize("training", [True, False])
def test_layer_takes_a_sequence_without_a_batch(training):
    theirs, ours = (layer.train(training) for layer in twins(LAYER, E, H, D_FF, 0.0))
    masks = {"src_mask": bool_mask(T, T), "src_key_padding_mask": padded(1, T)[0]}
    x = some(batched=False)
    same(run(theirs, [x], masks), run(ours, [x], masks))


@given(data=st.data())
@settings(max_examples=15, derandomize=True, deadline=None)
def test_stack_gives_torchs_numbers_whatever_the_arguments(data):
    draw = lambda *values: data.draw(st.sampled_from(values))  # noqa: E731
    batch_first, dtype = draw(True, False), torch.float64
    layers = twins(
        LAYER,
        E,
        H,
        D_FF,
        0.0,
        draw("relu", "gelu", F.gelu, nn.ReLU(), torch.tanh),
        batch_first=batch_first,
        norm_first=draw(True, False),
        bias=draw(True, False),
    )
    norm = draw(None, nn.LayerNorm(E, dtype=dtype))
    theirs, ours = stacks("TransformerEncoder", layers, 2, norm, draw(True, False), draw(True, False))
    masks = {
        "mask": draw(None, causal(T), causal(T) != 0, bool_mask(T, T), as_float(bool_mask(T, T))),
        "src_key_padding_mask": draw(None, padded(B, T), as_float(padded(B, T))),
        "is_causal": None,
    }
    x, training = some(batch_first), draw(True, False)
    theirs.train(training), ours.train(training)
    same(run(theirs, [x], masks), run(ours, [x], masks))
    with torch.no_grad():
        same(run(theirs, [x], masks, backward=False), run(ours, [x], masks, backward=False))


@pytest.mark.filterwarnings("ignore:.*hides the first key of every row")  # as padding on the left does
@pytest.mark.parametrize("at_end", [True, False])
@pytest.mark.parametrize("nested", [True, False])
def test_stack_clears_padding_where_torch_does(nested, at_end):
    layers = twins(LAYER, E, H, D_FF, batch_first=True)
    theirs, ours = (x.eval() for x in stacks("TransformerEncoder", layers, 2, None, nested))
    x, padding = some(), padded(B, T, at_end)
    masks = {"src_key_padding_mask": padding}
    with torch.no_grad():
        expected, found = (run(m, [x], masks, backward=False) for m in (theirs, ours))
    same(expected, found)
    found = found["output"]
    assert (found[padding] == 0).all() == (nested and at_end)
    with torch.no_grad():
        in_training = ours.train()(x, src_key_padding_mask=padding)
    assert (in_training[padding] != 0).any()
    with_grad = ours.eval()(x, src_key_padding_mask=padding)
    assert (with_grad[padding] != 0).all()


def test_stack_clears_padding_of_frozen_parameters_with_autograd_on():
    layers = [
        layer.requires_grad_(requires_grad=False) for layer in twins(LAYER, E, H, D_FF, batch_first=True)
    ]
    theirs, ours = (x.eval() for x in stacks("TransformerEncoder", layers, 2))
    x, padding = some(), padded(B, T)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", EXPECTED[1])
        expected, found = (m(x, src_key_padding_mask=padding) for m in (theirs, ours))
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_causal_mask_is_recognised_and_seen_no_more(monkeypatch):
    seen = []
    monkeypatch.setattr(
        sl.nn.MultiheadAttention,
        "forward",
        lambda self, q, k, v, is_causal=False, **kwargs: seen.append(is_causal) or (q, None),
    )
    ours = built(sl.nn, "TransformerEncoder", built(sl.nn, LAYER, E, H)[0], 1)[0].double()
    for mask in (causal(T), causal(T) != 0, float_mask(T, T), None, causal(T).expand(B * H, T, T)):
        ours(some(False), mask=mask)
    assert seen == [True, True, False, False, False]


def test_float32_is_as_exact_as_torchs():
    worst = {nn: 0.0, sl.nn: 0.0}
    for seed in range(6):
        exact = twins(LAYER, 34, 2, 37, 0.0, batch_first=True)
        torch.manual_seed(seed)
        for module, layer in zip(worst, exact, strict=True):
            for parameter, source in zip(layer.parameters(), exact[0].parameters(), strict=True):
                parameter.data = source.data.float().double()
            x = torch.randn(3, 31, 34, generator=torch.Generator().manual_seed(seed))
            single = copy.deepcopy(layer).float()
            error = worst_error(single, layer, [x], {"src_mask": causal(31, torch.float32)})
            worst[module] = max(worst[module], error)
    assert worst[sl.nn] <= 1.5 * worst[nn]


@pytest.mark.parametrize("name", ["dropout", "dropout1", "dropout2"])
def test_every_branch_has_its_own_dropout(name):
    """One of them drops all, the others nothing: no chance is left, and torch's numbers are expected."""
    theirs, ours = twins(LAYER, E, H, D_FF, 0.0, batch_first=True)
    for layer in (theirs, ours):
        getattr(layer, name).p = 1.0
    inputs = [some()]
    same(run(theirs, inputs, {}), run(ours, inputs, {}))


def test_dropout_is_fixed_by_the_seed():
    _, ours = twins(LAYER, E, H, D_FF, 0.5, batch_first=True)
    x = some()
    torch.manual_seed(1)
    first = ours(x)
    torch.manual_seed(1)
    assert torch.equal(first, ours(x))
    assert not torch.equal(first, ours(x))


@pytest.mark.parametrize("norm_first", [True, False])
def test_same_first_weights_same_keys_and_checkpoints_both_ways(norm_first):
    layers = twins(LAYER, E, H, D_FF, norm_first=norm_first)
    theirs, ours = stacks("TransformerEncoder", layers, 2, nn.LayerNorm(E), False)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert all(map(torch.equal, ours.state_dict().values(), theirs.state_dict().values()))
    torch.nn.init.normal_(theirs.layers[1].linear1.weight)
    ours.load_state_dict(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())
    assert torch.equal(ours.layers[1].linear1.weight, theirs.layers[1].linear1.weight)


def test_pickled_and_copied_it_still_is_what_it_was():
    ours = built(
        sl.nn, "TransformerEncoder", built(sl.nn, LAYER, E, H, D_FF, dtype=torch.float64)[0].eval(), 2
    )[0]
    x = some(False)
    for twin in (pickle.loads(pickle.dumps(ours)), copy.deepcopy(ours)):  # noqa: S301
        assert torch.equal(twin.eval()(x), ours.eval()(x))
        assert type(twin.layers[0].self_attn) is sl.nn.MultiheadAttention


def test_it_is_a_torch_layer_and_torchs_stack_takes_it():
    theirs, ours = twins(LAYER, E, H, D_FF, 0.0, batch_first=True)
    assert isinstance(ours, nn.TransformerEncoderLayer)
    assert issubclass(sl.nn.TransformerEncoder, nn.TransformerEncoder)
    pure, with_ours = (built(nn, "TransformerEncoder", layer, 2)[0] for layer in (theirs, ours))
    x, masks = some(), {"src_key_padding_mask": padded(B, T)}
    same(run(pure, [x], masks), run(with_ours, [x], masks))
    pure.eval(), with_ours.eval()
    with torch.no_grad():
        same(run(pure, [x], masks, backward=False), run(with_ours, [x], masks, backward=False))
    ours_over_torchs = built(sl.nn, "TransformerEncoder", theirs, 2)[0]
    same(run(pure.train(), [x], masks), run(ours_over_torchs, [x], masks))


def test_swapping_the_names_in_torch_itself_builds_the_same_weights(monkeypatch):
    expected, _ = twins(LAYER, E, H, D_FF)
    for name in ("MultiheadAttention", LAYER):
        for module in (torch.nn, torch.nn.modules.transformer):
            monkeypatch.setattr(module, name, getattr(sl.nn, name))
    found, _ = built(torch.nn, LAYER, E, H, D_FF, dtype=torch.float64)
    assert all(map(torch.equal, found.parameters(), expected.parameters()))


def test_autocast_runs_in_bfloat16():
    theirs, ours = twins(LAYER, E, H, D_FF, 0.0, batch_first=True, dtype=torch.float32)
    x = some(dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        expected, found = theirs(x, causal(T, torch.float32)), ours(x, causal(T, torch.float32))
    assert found.dtype == expected.dtype
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05)
    found.sum().backward()


@pytest.mark.parametrize("batch_first", [True, False])
def test_output_can_be_viewed_as_torchs_can(batch_first):
    theirs, ours = twins(LAYER, E, H, D_FF, 0.0, batch_first=batch_first)
    x = some(batch_first)
    assert ours(x).stride() == theirs(x).stride()
    assert ours(x).view(-1, E).shape == (B * T, E)


@pytest.mark.plain  # the shape hook can't be compiled
@pytest.mark.parametrize("case", ["plain", "padding", "causal"])
def test_compiles_into_one_graph(case):
    torch._dynamo.reset()
    masks = {"plain": {}, "padding": {"src_key_padding_mask": padded(B, T)}, "causal": {"mask": causal(T)}}[
        case
    ]
    layer = twins(LAYER, E, H, D_FF, 0.0, batch_first=True)[1]
    ours = built(sl.nn, "TransformerEncoder", layer, 1)[0].train(case == "plain")
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager" if case == "plain" else "eager")
    x = some()
    torch.testing.assert_close(compiled(x, **masks), ours(x, **masks), rtol=1e-12, atol=1e-12)


@pytest.mark.filterwarnings("ignore:.*hides every key of a row:UserWarning")
def test_a_sequence_of_nothing_but_padding_is_finite_and_so_are_its_gradients():
    ours = twins(LAYER, E, H, D_FF, 0.0, batch_first=True)[1]
    padding = torch.zeros(B, T, dtype=torch.bool)
    padding[1] = True
    found = run(ours, [some()], {"src_key_padding_mask": padding})
    assert all(x.isfinite().all() for x in found.values())
    with torch.no_grad():
        assert ours.eval()(some(), src_key_padding_mask=padding).isfinite().all()


BAD_CALLS = {
    "width": ((torch.zeros(B, T, 9),), {}),
    "rank": ((torch.zeros(B, T, E, 1),), {}),
    "mask of another length": ((torch.zeros(B, T, E), torch.zeros(T, 5)), {}),
    "mask of one dimension": ((torch.zeros(B, T, E), torch.zeros(T)), {}),
    "mask for other heads": ((torch.zeros(B, T, E), torch.zeros(B, T, T)), {}),
    "padding of another length": ((torch.zeros(B, T, E), None, torch.zeros(B, 5)), {}),
    "padding without a batch": ((torch.zeros(B, T, E), None, torch.zeros(T)), {}),
    "a hint without its mask": ((torch.zeros(B, T, E),), {"is_causal": True}),
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
    neutral = lambda error: str(error.value).replace("src_", "").replace("attn_", "")  # noqa: E731
    assert neutral(found) == neutral(expected)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((10, 3), "embed_dim must be divisible by num_heads"),
        ((0, 2), "embed_dim and num_heads must be greater than 0"),
        ((10, 2, 11, 0.0, "silu"), "activation should be relu/gelu, not silu"),
        ((10, 2, 11, 1.5), "dropout probability has to be between 0 and 1, but got 1.5"),
    ],
)
def test_a_bad_constructor_argument_is_answered_as_by_torch(arguments, words):
    with pytest.raises(Exception, match=words) as expected:
        nn.TransformerEncoderLayer(*arguments)
    with pytest.raises(type(expected.value), match=words):
        sl.nn.TransformerEncoderLayer(*arguments)


def test_what_a_subclass_overrides_is_called() -> None:
    class Loud(sl.nn.TransformerEncoderLayer):
        def _sa_block(self, *args, **kwargs):
            return super()._sa_block(*args, **kwargs) + 1

        def _ff_block(self, x):
            return super()._ff_block(x) * 0

    layer = Loud(16, 2, 11, dropout=0.0, norm_first=True)
    x = torch.randn(5, 3, 16)
    expected = x + layer.self_attn(layer.norm1(x), layer.norm1(x), layer.norm1(x))[0] + 1
    torch.testing.assert_close(layer(x), expected)
