"""``MultiheadAttention`` is torch's in arguments, weights, results and errors; and the seeds' modules."""

import copy
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import sightline as sl
from tests.attention.created import created
from tests.oracle.multihead import (
    B,
    E,
    H,
    K,
    S,
    T,
    V,
    draw,
    laid,
    own,
    run,
    same,
    some_mask,
    some_padding,
    twins,
)

PAIRS = [  # constructor, attn_mask, key_padding_mask, need_weights, average_attn_weights, batch_first
    ({}, "none", "none", True, True, True),
    ({}, "bool", "bool", False, True, False),
    ({"bias": False}, "float", "none", True, False, True),
    ({"bias": False}, "bool each", "float", True, True, False),
    ({"add_bias_kv": True}, "bool", "none", False, True, True),
    ({"add_bias_kv": True}, "float each", "bool", True, True, False),
    ({"add_zero_attn": True}, "float", "bool", False, True, False),
    ({"add_zero_attn": True}, "none", "float", True, False, True),
    ({"add_bias_kv": True, "add_zero_attn": True}, "bool each", "bool", True, True, True),
    ({"add_bias_kv": True, "add_zero_attn": True, "bias": False}, "float", "float", False, False, True),
    ({"kdim": K, "vdim": V}, "none", "bool", True, True, False),
    ({"kdim": K, "vdim": V, "bias": False}, "float each", "float", False, True, True),
    ({"kdim": K}, "bool", "none", True, False, False),
    ({"vdim": V, "add_bias_kv": True}, "float", "none", True, True, True),
]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_gives_torchs_numbers_and_gradients(pair, training):
    arguments, mask, padding, need_weights, average, batch_first = pair
    theirs, ours = (m.train(training) for m in twins(E, H, batch_first=batch_first, **arguments))
    shapes = ((T, E), (S, arguments.get("kdim", E)), (S, arguments.get("vdim", E)))
    inputs = [laid(x, batch_first) for x in draw(*shapes)]
    call = {
        "attn_mask": some_mask(mask),
        "key_padding_mask": some_padding(padding),
        "need_weights": need_weights,
        "average_attn_weights": average,
    }
    same(run(theirs, inputs, call), run(ours, inputs, call))
    with torch.no_grad():
        same(run(theirs, inputs, call, backward=False), run(ours, inputs, call, backward=False))


@given(data=st.data())
@settings(max_examples=30, derandomize=True, deadline=None)
def test_gives_torchs_numbers_whatever_the_arguments(data):
    draw_from = lambda *values: data.draw(st.sampled_from(values))  # noqa: E731
    kdim, vdim = draw_from((None, None), (K, V), (E, V))
    batch_first, batched = draw_from(True, False), draw_from(True, True, False)
    theirs, ours = twins(
        E,
        H,
        bias=draw_from(True, False),
        add_bias_kv=draw_from(True, False),
        add_zero_attn=draw_from(True, False),
        kdim=kdim,
        vdim=vdim,
        batch_first=batch_first,
    )
    query, key, value = (laid(x, batch_first, batched) for x in draw((T, E), (S, kdim or E), (S, vdim or E)))
    if (kdim, vdim) == (None, None) and draw_from(True, False):
        value = key
    mask, padding = (
        some_mask(draw_from("none", "bool", "bool each", "float", "float each")),
        some_padding(draw_from("none", "bool", "float")),
    )
    if not batched:
        mask = mask[:H] if mask is not None and mask.dim() == 3 else mask
        padding = padding[0] if padding is not None else None
    call = {
        "attn_mask": mask,
        "key_padding_mask": padding,
        "need_weights": draw_from(True, False),
        "average_attn_weights": draw_from(True, False),
    }
    same(run(theirs, (query, key, value), call), run(ours, (query, key, value), call))


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("padding", ["none", "bool"])
@pytest.mark.parametrize("arguments", [{}, {"add_bias_kv": True, "add_zero_attn": True}], ids=str)
@pytest.mark.parametrize(("t", "s"), [(S, S), (T, S)])
def test_the_causal_hint_means_what_it_means_in_torch(t, s, arguments, padding, need_weights):
    theirs, ours = twins(E, H, batch_first=True, **arguments)
    call = {
        "attn_mask": torch.ones(t, s, dtype=torch.bool).triu(1),
        "is_causal": True,
        "need_weights": need_weights,
        "key_padding_mask": some_padding(padding),
    }
    inputs = draw((t, E), (s, E), (s, E))
    same(run(theirs, inputs, call), run(ours, inputs, call))


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("inputs", ["all one", "key is value", "all different"])
def test_shared_inputs_get_the_sum_of_their_gradients(inputs, batch_first):
    theirs, ours = twins(E, H, batch_first=batch_first)
    x, y, z = (laid(x, batch_first) for x in draw((S, E), (S, E), (S, E)))
    picked = {"all one": (x, x, x), "key is value": (x, y, y), "all different": (x, y, z)}[inputs]
    same(run(theirs, picked, {}), run(ours, picked, {}))
    for m in (theirs, ours):
        m.eval()
    with torch.no_grad():  # where torch takes its inference kernel
        same(run(theirs, picked, {}, backward=False), run(ours, picked, {}, backward=False))


def test_without_a_batch():
    theirs, ours = twins(E, H)
    query, key, value = (x[0] for x in draw((T, E), (S, E), (S, E)))
    for call in (
        {},
        {"average_attn_weights": False, "attn_mask": some_mask("bool")},
        {"need_weights": False, "key_padding_mask": some_padding("bool")[2]},
        {"attn_mask": some_mask("float each")[:H]},
    ):
        same(run(theirs, (query, key, value), call), run(ours, (query, key, value), call))


def test_float32_is_as_exact_as_torchs():
    worst = {"theirs": 0.0, "ours": 0.0}
    for seed in range(8):
        exact = twins(34, 2, batch_first=True)
        for name, module in zip(worst, exact, strict=True):
            torch.manual_seed(seed)
            for parameter in module.parameters():
                parameter.data = torch.randn(parameter.shape).double() / 3
            inputs = [torch.randn(3, n, 34) for n in (29, 31, 31)]
            call = {"need_weights": seed % 2 == 0}
            truth = run(module, [x.double() for x in inputs], call)
            found = run(copy.deepcopy(module).float(), inputs, call)
            for key, x in truth.items():
                if x is not None and x.abs().max() > 1e-3:
                    error = (found[key].double() - x).abs().max() / x.abs().max()
                    worst[name] = max(worst[name], error.item())
    assert 0 < worst["ours"] <= 1.5 * worst["theirs"]


@pytest.mark.filterwarnings("ignore:.*hides every key of a row:UserWarning")
@pytest.mark.parametrize("way", [{"need_weights": False}, {}, {"average_attn_weights": False}], ids=str)
def test_a_query_with_nothing_to_look_at_gets_zeros_and_gives_no_gradient(way):
    _, ours = twins(E, H, batch_first=True)
    query, key, value = (own(x) for x in draw((T, E), (S, E), (S, E)))
    mask = torch.zeros(T, S, dtype=torch.bool)
    mask[2] = True
    padding = torch.zeros(B, S, dtype=torch.bool)
    padding[1] = True
    output, weights = ours(query, key, value, attn_mask=mask, key_padding_mask=padding, **way)
    empty = torch.zeros(B, T, dtype=torch.bool)
    empty[:, 2] = empty[1] = True
    assert (output[empty] == ours.out_proj.bias).all()  # the projection of zeros
    if weights is not None:
        assert (weights.reshape(B, -1, T, S).transpose(1, 2)[empty] == 0).all()
    (output.square().sum() + (0 if weights is None else weights.square().sum())).backward()
    assert (query.grad[empty] == 0).all()
    assert (key.grad[1] == 0).all()
    assert (value.grad[1] == 0).all()
    assert all(x.grad.isfinite().all() for x in (query, key, value, *ours.parameters()))


@pytest.mark.parametrize("call", [{}, {"key_padding_mask": True}], ids=str)
def test_averaged_weights_need_no_tensor_of_all_heads(call):
    b, t, s, e, h = 2, 13, 17, 10, 5
    ours = sl.nn.MultiheadAttention(e, h, batch_first=True)
    if call:
        call = {"key_padding_mask": torch.arange(s) >= torch.tensor([[s], [4]])}
    query, key = torch.randn(b, t, e, requires_grad=True), torch.randn(b, s, e, requires_grad=True)
    with created() as seen:
        output, weights = ours(query, key, key, **call)
        (output.sum() + weights.square().sum()).backward()
    assert weights.shape == (b, t, s)
    assert max(seen)[0] < b * h * t * s, max(seen)


def test_dropout_gives_back_the_weights_that_were_used():
    """Values that copy the weights out: v_h is a unit vector for each key, out_proj the identity."""
    e = S * H
    ours = sl.nn.MultiheadAttention(e, H, dropout=0.4, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        ours.in_proj_weight[2 * e :] = torch.eye(e)
        ours.out_proj.weight.copy_(torch.eye(e))
    value = torch.eye(S, dtype=torch.float64).repeat(1, H).expand(B, S, e)
    query, key = draw((T, e), (S, e))
    for average in (True, False):
        output, weights = ours(query, key, value, average_attn_weights=average)
        used = output.unflatten(-1, (H, S)).transpose(1, 2)  # (B, H, T, S)
        torch.testing.assert_close(weights, used.mean(1) if average else used)
        assert (used == 0).any()
    plain = ours.eval()(query, key, value)[1]
    torch.testing.assert_close(plain.sum(-1), torch.ones(B, T, dtype=torch.float64))


@pytest.mark.parametrize("way", [{"need_weights": False}, {}, {"average_attn_weights": False}], ids=str)
def test_dropout_is_fixed_by_the_seed_and_off_in_eval(way):
    _, ours = twins(E, H, dropout=0.5, batch_first=True)
    inputs, found = draw((T, E), (S, E), (S, E)), []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        found.append(ours(*inputs, **way)[0])
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
    assert torch.equal(ours.eval()(*inputs, **way)[0], ours(*inputs, **way)[0])


@pytest.mark.parametrize("need_weights", [True, False])
def test_all_may_be_dropped(need_weights):
    theirs, ours = twins(E, H, dropout=1.0, batch_first=True)
    inputs, call = draw((T, E), (S, E), (S, E)), {"need_weights": need_weights}
    same(run(theirs, inputs, call), run(ours, inputs, call))


@pytest.mark.parametrize("way", [{"need_weights": False}, {}, {"average_attn_weights": False}], ids=str)
def test_gradients_with_dropout_are_those_of_finite_differences(way):
    ours = sl.nn.MultiheadAttention(4, 2, dropout=0.4, batch_first=True, dtype=torch.float64)

    def attend(query, key):
        torch.manual_seed(5)
        output, weights = ours(query, key, key, **way)
        return output if weights is None else (output, weights)

    inputs = tuple(torch.randn(2, n, 4, dtype=torch.float64, requires_grad=True) for n in (3, 5))
    assert torch.autograd.gradcheck(attend, inputs)


@pytest.mark.parametrize(
    "arguments",
    [{}, {"bias": False}, {"add_bias_kv": True}, {"kdim": K, "vdim": V}, {"add_zero_attn": True, "kdim": K}],
    ids=str,
)
def test_same_first_weights_same_keys_and_checkpoints_both_ways(arguments):
    both = []
    for module in (nn, sl.nn):
        torch.manual_seed(7)
        both.append(module.MultiheadAttention(E, H, **arguments))
    theirs, ours = both
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert all(map(torch.equal, ours.state_dict().values(), theirs.state_dict().values()))
    torch.nn.init.normal_(theirs.out_proj.weight)
    ours.load_state_dict(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())
    assert torch.equal(ours.out_proj.weight, theirs.out_proj.weight)


def test_pickled_and_copied_it_still_is_what_it_was():
    _, ours = twins(E, H, add_bias_kv=True, batch_first=True)
    inputs = draw((T, E), (S, E), (S, E))
    for twin in (pickle.loads(pickle.dumps(ours)), copy.deepcopy(ours)):  # noqa: S301
        assert type(twin) is sl.nn.MultiheadAttention
        assert all(map(torch.equal, twin(*inputs), ours(*inputs)))


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_output_can_be_viewed_as_torchs_can(batch_first, need_weights):
    """Wherever torch's output lies in memory as its shape says, so does ours."""
    theirs, ours = twins(E, H, batch_first=batch_first)
    inputs = [laid(x, batch_first) for x in draw((T, E), (S, E), (S, E))]
    expected, found = (m(*inputs, need_weights=need_weights) for m in (theirs, ours))
    for a, b in zip(expected, found, strict=True):
        if a is not None and a.is_contiguous():
            b.view(-1)


@pytest.mark.parametrize("need_weights", [True, False])
def test_autocast_runs_in_bfloat16(need_weights):
    theirs, ours = twins(E, H, batch_first=True, dtype=torch.float32)
    inputs = [x.float() for x in draw((T, E), (S, E), (S, E))]
    with torch.autocast("cpu", torch.bfloat16):
        expected, found = (m(*inputs, need_weights=need_weights) for m in (theirs, ours))
    assert found[0].dtype == expected[0].dtype == torch.bfloat16
    torch.testing.assert_close(found[0], expected[0], rtol=0.05, atol=0.05)
    found[0].float().sum().backward()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("need_weights", [True, False])
def test_half_precision(dtype, need_weights):
    theirs, ours = twins(E, H, batch_first=True, dtype=torch.float32)
    inputs = [x.float() for x in draw((T, E), (S, E), (S, E))]
    expected = theirs(*inputs)[0]
    found = ours.to(dtype)(*(x.to(dtype) for x in inputs), need_weights=need_weights)
    assert all(x is None or x.dtype == dtype for x in found)
    torch.testing.assert_close(found[0].float(), expected, rtol=0.05, atol=0.05)


@pytest.mark.plain  # the shape hook can't be compiled
@pytest.mark.parametrize("call", [{}, {"need_weights": False, "key_padding_mask": "bool"}], ids=str)
def test_compiles_into_one_graph(call):
    torch._dynamo.reset()
    _, ours = twins(E, H, batch_first=True)
    call = {name: some_padding(x) if isinstance(x, str) else x for name, x in call.items()}
    inputs = draw((T, E), (S, E), (S, E))
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
    for a, b in zip(compiled(*inputs, **call), ours(*inputs, **call), strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_a_derivative_of_the_derivative_and_of_each_sample():
    theirs, ours = twins(E, H, batch_first=True)
    x = draw((T, E))[0]

    def penalty(module):
        y = own(x)
        (first,) = torch.autograd.grad(module(y, y, y)[0].square().sum(), y, create_graph=True)
        return torch.autograd.grad(first.square().sum(), list(module.parameters()))

    def each(module):
        def loss(parameters, sample):
            return torch.func.functional_call(module, parameters, (sample,) * 3)[0].square().sum()

        parameters = dict(module.named_parameters())
        return torch.vmap(torch.func.grad(loss), (None, 0))(parameters, x[:, None]).values()

    for found_by in (penalty, each):
        for a, b in zip(found_by(ours), found_by(theirs), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
def test_nested_inputs_are_left_to_torch():
    theirs, ours = (m.eval() for m in twins(E, H, batch_first=True))
    x = torch.nested.nested_tensor([torch.randn(n, E, dtype=torch.float64) for n in (3, 5)])
    with torch.no_grad():
        expected, found = (m(x, x, x, need_weights=False)[0] for m in (theirs, ours))
    for a, b in zip(found.unbind(), expected.unbind(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.plain  # by a stand-in
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize(
    "arguments",
    [{}, {"bias": False}, {"add_bias_kv": True}, {"add_zero_attn": True}, {"num_heads": 3}],
    ids=str,
)
def test_torchs_operator_for_a_whole_module_is_reached_where_torch_reaches_it(
    arguments, average, need_weights, monkeypatch
):
    """On a GPU; here the operator is that of the CPU, which ours never takes."""
    arguments = {"num_heads": 2, "batch_first": True} | arguments
    ours, theirs = (kind(6, **arguments).eval() for kind in (sl.nn.MultiheadAttention, nn.MultiheadAttention))
    theirs.load_state_dict(ours.state_dict())
    monkeypatch.setattr(sl.nn.MultiheadAttention, "_has_inference_kernel", lambda *_: True)
    reached = []
    operator = torch._native_multi_head_attention
    monkeypatch.setattr(
        torch, "_native_multi_head_attention", lambda *args: reached.append(None) or operator(*args)
    )
    x = torch.randn(B, T, 6)
    options = {"need_weights": need_weights, "average_attn_weights": average}
    with torch.no_grad():
        output, weights = ours(x, x, x, **options)
        n = len(reached)
        expected, their_weights = theirs(x, x, x, **options)
    assert n == len(reached) - n == (arguments == {"num_heads": 2, "batch_first": True})
    assert torch.equal(output, expected)
    assert (weights is None) == (their_weights is None)
    assert weights is None or torch.equal(weights, their_weights)
    with torch.no_grad(), torch.autocast("cpu"):  # which the operator does not know
        assert not ours._is_plain(x)
