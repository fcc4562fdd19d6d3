"""What a user gets wrong is answered as torch answers it."""

import pytest
import torch
from torch import nn

import sightline as sl
from tests.oracle.multihead import B, E, H, S, T, twins

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
    "padding of another length": ((X, Y, Z), {"key_padding_mask": torch.zeros(B, T)}),
    "padding of another batch": ((X, Y, Z), {"key_padding_mask": torch.zeros(2, S)}),
    "padding without a batch": ((X, Y, Z), {"key_padding_mask": torch.zeros(S)}),
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


@pytest.mark.bad_input
def test_masks_that_are_no_masks_are_named_as_torchs_attention_names_them():
    x = torch.randn(B, T, E)
    integers = torch.ones(T, T, dtype=torch.int64).tril()
    stack = sl.nn.TransformerEncoder(sl.nn.TransformerEncoderLayer(E, H, 7, batch_first=True), 1)
    model = sl.nn.Transformer(E, H, 1, 1, 7, batch_first=True)
    rule = r"must be boolean \(as in torch, True = may not look\) or float .* got torch.int64"
    for call, name in [
        (lambda: stack(x, mask=integers), "attn_mask"),
        (lambda: stack.layers[0](x, integers), "attn_mask"),
        (lambda: stack(x, src_key_padding_mask=integers[:B]), "key_padding_mask"),
        (lambda: model(x, x, tgt_mask=integers), "attn_mask"),
        (lambda: model.decoder(x, x, memory_mask=integers), "attn_mask"),
    ]:
        with pytest.raises(TypeError, match=f"^{name} {rule}; {name} == 0 hides the zeros, {name} == 1 the"):
            call()
    with pytest.raises(TypeError, match=r"^attn_mask must be a torch.Tensor, got ndarray; torch.as_tensor"):
        stack(x, mask=integers.numpy())
    with pytest.raises(
        TypeError, match=r"^attn_mask must be a torch.Tensor, got a Mask; ~mask.dense\(T, S\)"
    ):
        stack(x, mask=sl.masks.causal())
