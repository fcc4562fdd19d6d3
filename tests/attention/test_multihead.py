"""``MultiheadAttention`` is torch's in arguments, weights, results and errors; and the seeds' modules."""

import copy
import pickle
import warnings

import pytest
import torch
from created import created
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import sightline as sl

B, T, S, E, H, K, V = 3, 5, 7, 10, 2, 11, 13


def twins(*args, dtype=torch.float64, **kwargs):
    """Torch's module and ours, from the same arguments and the same seed."""
    both = []
    for module in (nn, sl.nn):
        torch.manual_seed(7)
        both.append(module.MultiheadAttention(*args, dtype=dtype, **kwargs))
    for x in both:  # torch starts these at zero, where a mistake would not show
        for bias in (x.in_proj_bias, x.out_proj.bias):
            if bias is not None:
                bias.data = torch.linspace(-1, 1, len(bias), dtype=dtype)
    return both


def laid(x, batch_first=True, batched=True):
    return x[0] if not batched else x if batch_first else x.transpose(0, 1)


def own(x):
    return x.detach().clone().requires_grad_(x.is_floating_point()) if isinstance(x, torch.Tensor) else x


def run(module, inputs, call, *, backward=True):
    """Output, weights, and the gradients of inputs, float masks and parameters through both, by name."""
    module, call = copy.deepcopy(module), {name: own(x) for name, x in call.items()}
    copies = {id(x): own(x) for x in inputs}  # what was one tensor stays one
    inputs = [copies[id(x)] for x in inputs]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Support for mismatched")
        output, weights = module(*inputs, **call)
    found = {"output": output, "weights": weights}
    if backward:
        spread = lambda x: (x * torch.linspace(-1, 1, x.numel(), dtype=x.dtype).view(x.shape)).sum()  # noqa: E731
        (spread(output) + (0 if weights is None else spread(weights))).backward()
        named = {f"input {i}": x for i, x in enumerate(inputs)} | call | dict(module.named_parameters())
        found |= {
            f"gradient of {name}": x.grad
            for name, x in named.items()
            if isinstance(x, torch.Tensor) and x.requires_grad
        }
    return found


def same(theirs, ours, tolerance=1e-12):
    assert theirs.keys() == ours.keys()
    for name in theirs:
        if theirs[name] is None or ours[name] is None:  # torch drops a mask that a causal hint replaces
            assert all(
                x is None or (name.startswith("gradient") and not x.any()) for x in (theirs[name], ours[name])
            )
        else:
            torch.testing.assert_close(
                ours[name],
                theirs[name],
                rtol=tolerance,
                atol=tolerance,
                msg=lambda text, name=name: f"{name}: {text}",
            )


def draw(*lengths_and_widths, dtype=torch.float64):
    return [torch.randn(B, *shape, dtype=dtype) for shape in lengths_and_widths]


def some_mask(kind):
    """Of each kind one, in torch's polarity; every query keeps the first key."""
    may_not = torch.rand(T, S) < 0.4
    may_not[:, 0] = False
    each = torch.rand(B * H, T, S) < 0.4
    each[..., 0] = False
    return {
        "none": None,
        "bool": may_not,
        "bool each": each,
        "float": torch.randn(T, S, dtype=torch.float64).masked_fill(may_not, -torch.inf),
        "float each": torch.randn(B * H, T, S, dtype=torch.float64),
    }[kind]


def some_padding(kind):
    padding = torch.arange(S) >= torch.tensor([S, 1, 3])[:B, None]
    return {
        "none": None,
        "bool": padding,
        "float": torch.randn(B, S, dtype=torch.float64).masked_fill(padding, -torch.inf),
    }[kind]


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


def test_it_is_a_torch_module():
    assert isinstance(sl.nn.MultiheadAttention(E, H), nn.MultiheadAttention)


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


@pytest.mark.parametrize("call", [{}, {"need_weights": False, "key_padding_mask": "bool"}], ids=str)
def test_compiles_into_one_graph(call, request):
    if request.config.getoption("jaxtyping_packages", None):
        pytest.skip("the compiler can't look through the checks of shapes")
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


X, Y, Z = torch.zeros(B, T, E), torch.zeros(B, S, E), torch.zeros(B, S, E)
BAD_CALLS = {
    "width of the query": ((torch.zeros(B, T, 9), Y, Z), {}),
    "width of the key": ((X, torch.zeros(B, S, 9), torch.zeros(B, S, 9)), {}),
    "lengths of key and value": ((X, Y, torch.zeros(B, T, E)), {}),
    "four dimensions": ((X[None], Y[None], Z[None]), {}),
    "one dimension": ((X[0, 0], Y[0, 0], Z[0, 0]), {}),
    "key without a batch": ((X, Y[0], Z), {}),
    "query without a batch": ((X[0], Y, Z), {}),
    "batch of the key": ((X, Y[:2], Z[:2]), {}),
    "mask of another length": ((X, Y, Z), {"attn_mask": torch.zeros(S, T)}),
    "mask of one dimension": ((X, Y, Z), {"attn_mask": torch.zeros(S)}),
    "mask of four dimensions": ((X, Y, Z), {"attn_mask": torch.zeros(B, H, T, S)}),
    "mask for other heads": ((X, Y, Z), {"attn_mask": torch.zeros(B, T, S)}),
    "integer mask": ((X, Y, Z), {"attn_mask": torch.zeros(T, S, dtype=torch.int64)}),
    "padding of another length": ((X, Y, Z), {"key_padding_mask": torch.zeros(B, T)}),
    "padding of another batch": ((X, Y, Z), {"key_padding_mask": torch.zeros(2, S)}),
    "padding without a batch": ((X, Y, Z), {"key_padding_mask": torch.zeros(S)}),
    "integer padding": ((X, Y, Z), {"key_padding_mask": torch.zeros(B, S, dtype=torch.uint8)}),
    "a hint without its mask": ((X, Y, Z), {"is_causal": True}),
}


@pytest.mark.bad_input
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("case", BAD_CALLS)
def test_a_bad_call_is_answered_as_by_torch(case, need_weights):
    args, call = BAD_CALLS[case]
    theirs, ours = twins(E, H, batch_first=True, dtype=torch.float32)
    with pytest.raises(Exception) as expected:  # noqa: PT011
        theirs(*args, need_weights=need_weights, **call)
    with pytest.raises(type(expected.value)) as found:
        ours(*args, need_weights=need_weights, **call)
    assert str(found.value) == str(expected.value)


@pytest.mark.bad_input
def test_another_dtype_is_answered_by_torch():
    """Which of its sentences it says depends on how the input lies in memory."""
    for module in twins(E, H, batch_first=True, dtype=torch.float32):
        with pytest.raises(RuntimeError, match=r"(?i)same dtype, but got.* double.* float"):
            module(X.double(), Y.double(), Z.double())


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((10, 3), "embed_dim must be divisible by num_heads"),
        ((10, 0), "embed_dim=10 and num_heads=0 instead"),
        ((-4, 2), "embed_dim=-4 and num_heads=2 instead"),
    ],
)
def test_a_bad_constructor_argument_is_answered_as_by_torch(arguments, words):
    with pytest.raises(Exception, match=words) as expected:
        nn.MultiheadAttention(*arguments)
    with pytest.raises(type(expected.value), match=words):
        sl.nn.MultiheadAttention(*arguments)


# The seeds' own modules.


def test_self_attention_is_the_equation_of_its_projections():
    ours = sl.nn.SelfAttention(E, K, V)
    x = torch.randn(B, T, E)
    expected, _ = sl.reference.scaled_dot_product_attention(ours.Wq(x), ours.Wk(x), ours.Wv(x))
    torch.testing.assert_close(ours(x), expected)
    mask = torch.ones(T, T, dtype=torch.bool).tril()
    expected, _ = sl.reference.scaled_dot_product_attention(ours.Wq(x), ours.Wk(x), ours.Wv(x), mask)
    torch.testing.assert_close(ours(x, mask), expected)


def test_self_attention_follows_a_shuffle():
    ours, x = sl.nn.SelfAttention(E, K, V), torch.randn(B, T, E)
    order = torch.randperm(T)
    torch.testing.assert_close(ours(x[:, order]), ours(x)[:, order])


@pytest.mark.parametrize("lead", [(), (B,), (2, B)])
def test_multi_head_self_attention_joins_its_heads(lead):
    ours, x = sl.nn.MultiHeadSelfAttention(E, 4, 6, 2), torch.randn(*lead, T, E)
    joined = torch.cat([head(x) for head in ours.heads], dim=-1)
    torch.testing.assert_close(ours(x), ours.Wo(joined))


@pytest.mark.bad_input
def test_bad_widths_and_heads_are_named():
    with pytest.raises(ValueError, match="d_k must be at least 1, got d_k=0"):
        sl.nn.SelfAttention(E, 0, V)
    with pytest.raises(ValueError, match="got n_heads=4 for d_k=8 and d_v=6"):
        sl.nn.MultiHeadSelfAttention(E, 8, 6, 4)
