"""The future does not leak: any mask through any door is obeyed, or met with a sentence."""

import warnings

import pytest
import torch

import sightline as sl
from sightline import textbook

B, T, E, H = 3, 5, 12, 2
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
DTYPES = [torch.bool, torch.uint8, torch.int32, torch.int64, *FLOATS]
SENTENCE = (ValueError, TypeError, AssertionError, RuntimeError, UserWarning)  # torch's own are some of them


def with_heads(x):
    return x.unflatten(-1, (H, -1)).transpose(-3, -2)


def attention(x, mask):
    return sl.attention(x, x, x, mask)


def attention_of_heads(x, mask):
    return sl.attention(*[with_heads(x)] * 3, mask).transpose(-3, -2).flatten(-2)


def looked(x, mask):
    return sl.look(x, x, x, mask).output


def reference(x, mask):
    return sl.reference.scaled_dot_product_attention(x, x, x, mask)[0]


def module(kind, *sizes, **settings):
    torch.manual_seed(0)
    made = kind(*sizes, **settings).eval()

    def door(x, mask):
        return made.to(x.dtype)(x, mask)

    return door


def multihead(x, mask):
    torch.manual_seed(0)
    made = sl.nn.MultiheadAttention(E, H, batch_first=True).to(x.dtype).eval()
    return made(x, x, x, attn_mask=mask)[0]


def decoder_layer():
    torch.manual_seed(0)
    return sl.nn.TransformerDecoderLayer(E, H, 13, batch_first=True)


def decoder(made, x, mask):
    made = made.to(x.dtype).eval()
    return made(x, torch.zeros(B, 2, E, dtype=x.dtype), tgt_mask=mask)  # the memory tells nothing of x


def transformer(x, mask):
    torch.manual_seed(0)
    made = sl.nn.Transformer(E, H, 1, 1, 13, batch_first=True).to(x.dtype).eval()
    return made(torch.zeros(B, 2, E, dtype=x.dtype), x, tgt_mask=mask)


def exercise(x, mask):
    return textbook.attention_score(x, x, x, mask)[0]


def second_exercise(x, mask):
    return textbook.scaled_dot_product_attention(Q=x, K=x, V=x, mask=mask)[0]


DOORS = {
    "attention": attention,
    "attention of heads": attention_of_heads,
    "look": looked,
    "reference": reference,
    "SelfAttention": module(sl.nn.SelfAttention, E, 7, 11),
    "MultiHeadSelfAttention": module(sl.nn.MultiHeadSelfAttention, E, 8, 6, 2),
    "MultiheadAttention": multihead,
    "TransformerEncoderLayer": module(sl.nn.TransformerEncoderLayer, E, H, 13, batch_first=True),
    "TransformerEncoder": module(
        lambda: sl.nn.TransformerEncoder(sl.nn.TransformerEncoderLayer(E, H, 13, batch_first=True), 2)
    ),
    "TransformerDecoderLayer": lambda x, mask: decoder(decoder_layer(), x, mask),
    "TransformerDecoder": lambda x, mask: decoder(sl.nn.TransformerDecoder(decoder_layer(), 2), x, mask),
    "Transformer": transformer,
    "seeds.attention_score": exercise,
    "seeds.scaled_dot_product_attention": second_exercise,
    "seeds.SelfAttention": module(textbook.SelfAttention, E, 7, 11),
    "seeds.MultiHeadSelfAttention": module(textbook.MultiHeadSelfAttention, E, 8, 6, 2),
}
READ_ONES = {"reference", *(name for name in DOORS if name.startswith("seeds."))}  # as what may be looked at
TORCHS = {name for name in DOORS if name.startswith("Transformer")} | {"MultiheadAttention"}
MASKS = {
    "tril of ones": lambda dtype: torch.tril(torch.ones(T, T, dtype=dtype)),
    "one for each item": lambda dtype: torch.tril(torch.ones(T, T, dtype=dtype)).expand(B, T, T).clone(),
    "for batch and heads": lambda dtype: torch.tril(torch.ones(T, T, dtype=dtype))[None, None],
}


def outcome(door, x, mask):
    """The output, or the sentence that came instead."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return door(x, mask)
        except SENTENCE as problem:
            return str(problem)


def check_outputs(door, mask, changed_place, same_places):
    """Either a sentence, or what may not be seen changes nothing; returns which."""
    x = torch.randn(B, T, E)
    changed = x.clone()
    changed[:, changed_place] += 1
    output = outcome(door, x, mask)
    if isinstance(output, str):
        assert len(output) > 20
        return "sentence"
    again = door(changed, mask)
    assert not torch.allclose(output, again, atol=1e-4)  # the change is seen where it may be
    torch.testing.assert_close(output[:, same_places], again[:, same_places], rtol=0, atol=1e-6)
    return "obeyed"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("door", DOORS)
def test_a_mask_of_the_past_is_obeyed_or_met_with_a_sentence(door, mask, dtype):
    found = check_outputs(DOORS[door], MASKS[mask](dtype), -1, slice(0, -1))
    if mask == "tril of ones":
        obeys = door in READ_ONES or (dtype == torch.bool and door not in TORCHS)
        assert found == ("obeyed" if obeys else "sentence")


@pytest.mark.parametrize("door", DOORS)
def test_a_mask_held_as_a_frozen_parameter_is_obeyed_or_met_with_a_sentence(door):
    mask = torch.nn.Parameter(torch.tril(torch.ones(T, T)), requires_grad=False)
    found = check_outputs(DOORS[door], mask, -1, slice(0, -1))
    assert found == ("obeyed" if door in READ_ONES else "sentence")


@pytest.mark.parametrize("door", sorted(TORCHS))
def test_torchs_own_masks_go_through_torchs_doors(door):
    future = torch.triu(torch.ones(T, T, dtype=torch.bool), diagonal=1)
    for mask in (future, torch.zeros(T, T).masked_fill(future, -torch.inf)):
        assert check_outputs(DOORS[door], mask, -1, slice(0, -1)) == "obeyed"


@pytest.mark.parametrize("door", sorted(set(DOORS) - TORCHS))
def test_masks_of_this_package_go_through_every_door_of_its_own(door):
    for mask in (sl.masks.causal(), sl.masks.from_ones(torch.tril(torch.ones(T, T)))):
        assert check_outputs(DOORS[door], mask, -1, slice(0, -1)) == "obeyed"


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("door", sorted(set(DOORS) - TORCHS - READ_ONES))
def test_a_bias_that_is_said_to_be_one_is_added(door, dtype):
    ones = torch.tril(torch.ones(T, T, dtype=dtype))
    x = torch.randn(B, T, E)
    torch.testing.assert_close(DOORS[door](x, sl.masks.bias(ones)), DOORS[door](x, ones + 1))


# padding, as the documents write it: ones for the positions to attend to

REAL = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("door", sorted(set(DOORS) - TORCHS))
def test_a_padding_mask_is_obeyed_or_met_with_a_sentence(door, dtype):
    mask = REAL.to(dtype)[:, None]
    x = torch.randn(B, T, E)
    changed = torch.where(REAL[..., None] == 1, x, x + 1)
    output = outcome(DOORS[door], x, mask)
    assert isinstance(output, str) == (door not in READ_ONES and dtype != torch.bool)
    if not isinstance(output, str):
        again = DOORS[door](changed, mask)
        torch.testing.assert_close(output[REAL == 1], again[REAL == 1], rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ["MultiheadAttention", "TransformerEncoderLayer", "TransformerDecoderLayer"])
def test_the_wrong_polarity_of_padding_is_a_sentence(kind, dtype):
    x, mask = torch.randn(B, T, E), REAL.to(dtype)
    calls = {
        "MultiheadAttention": lambda: sl.nn.MultiheadAttention(E, H, batch_first=True)(
            x, x, x, key_padding_mask=mask
        ),
        "TransformerEncoderLayer": lambda: sl.nn.TransformerEncoderLayer(E, H, 13, batch_first=True)(
            x, src_key_padding_mask=mask
        ),
        "TransformerDecoderLayer": lambda: sl.nn.TransformerDecoderLayer(E, H, 13, batch_first=True)(
            x, x, memory_key_padding_mask=mask
        ),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(SENTENCE) as raised:
            calls[kind]()
    if dtype == torch.bool:
        assert "key_padding_mask hides every key of a row" in str(raised.value)
        assert "goes in as ~" in str(raised.value)
    elif dtype.is_floating_point:
        assert "key_padding_mask holds only ones and zeros" in str(raised.value)
    else:
        assert "key_padding_mask must be boolean (as in torch, True = may not look)" in str(raised.value)
        assert f"got {dtype}; " in str(raised.value)
