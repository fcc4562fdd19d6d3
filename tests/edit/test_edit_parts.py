"""Edits, part by part: torch's encoders, calls as they are read, and changes that are none."""

import pytest
import torch
from torch import nn

import sightline as sl
from sightline.edit import edit as edit_module
from sightline.edit import nested
from sightline.edit.edited_call import Change, read_heads, read_pairs
from sightline.watch.readers.calls import read_attention_call, read_sdpa_call
from tests.look.look_oracle import near, randn

T, S, D = 5, 7, 4


# Torch's encoders


@pytest.mark.plain
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_when_torch_packs_padded_items():
    def encoder(n=2, **options):
        layer = nn.TransformerEncoderLayer(4, 2, 5, batch_first=True)
        return nn.TransformerEncoder(layer, n, **options).eval()

    x, right = torch.zeros(2, 3, 4), torch.tensor([[False, False, True], [False] * 3])

    def is_packed(own=None, x=x, mask=None, padding=right):
        return nested._is_packed(own or encoder(), x, mask, padding)

    with torch.no_grad():
        assert is_packed() is True
        assert is_packed(padding=right.int()) is True
        assert is_packed(encoder(enable_nested_tensor=False)) is False
        assert is_packed(mask=torch.zeros(3, 3)) is False
        assert is_packed(x=x[0]) is False
        assert is_packed(encoder().train()) is False
        assert is_packed(padding=right.flip(1)) is False  # on the left
        assert is_packed(encoder(mask_check=False), padding=right.flip(1)) is True
        assert is_packed(x=torch.nested.nested_tensor([x[0]])) is False
    assert is_packed() is False  # gradients are asked for
    assert is_packed(encoder().requires_grad_(False)) is True
    assert is_packed(encoder().requires_grad_(False), x=x.clone().requires_grad_()) is False
    assert nested._forbidden(torch.tensor([0.0, -1.0, 2.0])).tolist() == [False, True, True]
    assert nested._forbidden(right) is right


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_an_edited_encoder_has_zeros_where_torch_puts_them():
    torch.manual_seed(0)
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 5, batch_first=True), 2).eval()
    x, padding = torch.randn(2, 5, 4), torch.zeros(2, 5, dtype=torch.bool)
    padding[1, 3:] = True
    with torch.no_grad():
        blind = model(x, src_key_padding_mask=padding)
        with sl.edit(model, scale=1.0):
            edited = model(x, src_key_padding_mask=padding)
            plain = model(x)
    assert not blind[1, 3:].any()
    near(edited, blind, atol=1e-6)
    near(plain, model(x).detach(), atol=1e-5)


def test_a_module_without_a_batch_and_what_torch_refuses():
    torch.manual_seed(0)
    model = nn.MultiheadAttention(4, 2).eval()
    x = torch.randn(5, 4)
    with torch.no_grad():
        blind = model(x, x, x)
        apart = model(x, x, x, average_attn_weights=False)
        without = model(x, x, x, need_weights=False)
        with sl.edit(model, scale=1.0):
            for expected, options in (
                (blind, {}),
                (apart, {"average_attn_weights": False}),
                (without, {"need_weights": False}),
            ):
                output, weights = model(x, x, x, **options)
                near(output, expected[0], atol=1e-6)
                assert (weights is None) is (expected[1] is None)
                if weights is not None:
                    near(weights, expected[1], atol=1e-6)
            with pytest.raises((AssertionError, RuntimeError)):
                model(x, x[:, :3], x)


@pytest.mark.parametrize("way", ["edit", "grad"])
@pytest.mark.parametrize("need_weights", [False, True])
def test_torch_ignores_a_mask_beside_its_causal_hint_where_nobody_asks_for_weights(way, need_weights):
    torch.manual_seed(0)
    model, x = nn.MultiheadAttention(4, 2, batch_first=True), torch.randn(1, 5, 4)
    mask = ~torch.eye(5, dtype=torch.bool)  # each looks at itself alone, and the hint says otherwise
    options = {"attn_mask": mask, "is_causal": True, "need_weights": need_weights}
    blind = model(x, x, x, **options)[0]
    if way == "edit":
        with sl.edit(model, scale=1.0):
            near(model(x, x, x, **options)[0], blind, atol=1e-6)
        return
    with sl.watch(model, grad=True) as seen:
        model(x, x, x, **options)
    assert bool((seen[0].peak < 1).any()) is not need_weights


# Calls that are made again


def test_calls_of_torch_as_they_are_read():
    q, k = randn(1, 6, T, D), randn(1, 2, S, D, seed=1)
    call = read_sdpa_call((q[0], k[0], k[0]), {"enable_gqa": True}, "a")
    near(call.k, k[0].repeat_interleave(3, 0))
    assert read_sdpa_call((q, k, k), {"enable_gqa": True}, "a").k is k
    assert read_sdpa_call((q[0], q[0], q[0]), {}, "a").k.shape == (6, T, D)
    plain = read_sdpa_call((q, q, q, None, 0.25), {"scale": 0.5}, "a")
    assert (plain.mask.limits, plain.scale, plain.dropout_p, plain.score) == (False, 0.5, 0.25, None)
    assert read_sdpa_call((q, q, q), {}, "").dropout_p == 0.0
    biased = read_sdpa_call((q, q, q, torch.zeros(T, T)), {"is_causal": True}, "a").mask
    assert (biased.added[0].shape, biased.bands[0].align) == ((1, 1, T, T), "start")
    allowed = read_sdpa_call((q, q, q), {"attn_mask": torch.ones(1, T, T).bool()}, "a").mask
    assert allowed.allowed[0].shape == (1, 1, T, T)
    from torch.nn.attention.bias import causal_lower_right, causal_upper_left

    for bias, align in ((causal_lower_right(T, S), "end"), (causal_upper_left(T, S), "start")):
        mask = read_sdpa_call((q, q, q), {"attn_mask": bias}, "a").mask
        assert [x.align for x in mask.bands] == [align]
    ours = read_attention_call((q, q, q), {"scale": 0.3, "score": "dot", "dropout_p": 0.5})
    assert (ours.scale, ours.score, ours.dropout_p, ours.mask.limits) == (0.3, "dot", 0.5, False)
    assert read_attention_call((q, q, q, torch.ones(T, T).bool()), {}).dropout_p == 0.0


@pytest.mark.bad_input
@pytest.mark.filterwarnings("ignore:the edit changed nothing")
def test_edits_of_a_search_and_of_compiled_modules():
    model = nn.Sequential(nn.Linear(2, 2))
    edit = sl.edit(model, forbid=[(None, [1])])
    by_queries = sl.edit(model, forbid=[([0], None)])
    with (
        edit,
        pytest.raises(ValueError, match="forbid names positions, and in 0 the beams"),
        edit.running(model[0], in_order=False, n_beams=1),
    ):
        pass
    with (
        by_queries,
        pytest.raises(ValueError, match="queries of a step are the 3 beams"),
        by_queries.running(model[0], in_order=True, n_beams=3),
    ):
        pass
    with edit, edit.running(model[0], in_order=True, n_beams=3):
        assert edit._name == "0"
    with by_queries, by_queries.running(model[0], in_order=True, n_beams=1):
        assert edit_module.is_editing()
    assert not edit_module.is_editing()
    with edit, edit.running(nn.Linear(2, 2), in_order=False, n_beams=1):
        assert not edit._name
    model[0]._orig_mod = None
    with pytest.raises(ValueError, match=r"a compiled module, here 0 \(Linear\), can't be edited"):
        sl.edit(model, scale=2.0)
    with pytest.raises(TypeError, match=r"edit takes an nn\.Module, got int"):
        sl.edit(3, scale=2.0)
    with pytest.raises(TypeError, match="layers must be a pattern or a function of a module's name, got int"):
        sl.edit(nn.Linear(2, 2), scale=2.0, layers=3)
    assert sl.edit(nn.Linear(2, 2), scale=2.0, layers=lambda name: name == "a")._is_selected("a")


@pytest.mark.bad_input
def test_changes_that_are_none():
    for options, said in (
        ({"ablate": "men"}, "unknown ablate 'men'"),
        ({"temperature": 0.0}, "temperature must be a finite number above 0, got 0.0"),
        ({"temperature": float("inf")}, "temperature must be a finite number above 0, got inf"),
        ({"scale": float("-inf")}, "scale must be a finite number, got -inf"),
        ({"scale": float("nan")}, "scale must be a finite number, got nan"),
        ({"scale": "2"}, "scale must be a finite number, got '2'"),
        ({}, "an edit needs something to change, got nothing"),
    ):
        with pytest.raises(ValueError, match=said):
            Change(**options)
    assert Change(scale=-1.0).scale == -1.0
    assert read_heads(None) is None
    assert read_heads(3) == read_heads([3]) == (3,)
    assert read_heads(range(1, 3)) == (1, 2)
    with pytest.raises(ValueError, match=r"at least one head, got heads=\[\]"):
        read_heads([])
    with pytest.raises(TypeError, match=r"heads must be whole numbers, got 1\.5"):
        read_heads([0, 1.5])
    assert read_pairs(None) == ()
    assert read_pairs([[None, 3]]) == ((None, 3),)
    for pair in (3, (1, 2, 3)):
        with pytest.raises(TypeError, match="forbid takes pairs"):
            read_pairs([pair])


def test_pairs_of_nobody_and_biases_at_the_border():
    class Attends(nn.Module):
        def forward(self, q, mask=None):
            return sl.attention(q, q, q, mask)

    model, q = Attends(), randn(1, 2, T, D)
    for pairs in ([([], [1]), ([2], [])], [([], [1])]):
        with sl.edit(model, forbid=pairs):
            near(model(q), sl.attention(q, q, q))
    huge = torch.finfo(torch.float64).min / 2  # from here down a bias stands for -inf
    bias = torch.zeros(T, T, dtype=torch.float64)
    bias[:, 3] = huge
    with sl.edit(model, ablate="uniform"):
        near(model(q, bias), q[..., [0, 1, 2, 4], :].mean(-2, keepdim=True).expand_as(q))
