"""Attention of so many pairs that not all are alive at once: averages over heads, and masks in blocks."""

import pytest
import torch

import sightline as sl
from tests.oracle.multihead import run, same, twins

E, H, T, S = 8, 4, 1033, 1031  # 4.3 million weights
CASES = {
    "nothing": {},
    "causal": {"attn_mask": torch.ones(T, S, dtype=torch.bool).triu(1)},
    "padding": {"key_padding_mask": torch.arange(S)[None] >= S - 99},
    "bias": {"attn_mask": torch.linspace(-3, 3, T * S, dtype=torch.float64).sin().view(T, S)},
}


@pytest.mark.parametrize("name", CASES)
def test_average_and_gradients_are_torchs(name):
    theirs, ours = twins(E, H, batch_first=True)
    q, k, v = (
        torch.linspace(-2, 2, n * E, dtype=torch.float64).mul(37).sin().view(1, n, E) for n in (T, S, S)
    )
    found = [run(module, (q, k, v), {**CASES[name], "need_weights": True}) for module in (theirs, ours)]
    same(*found, 1e-9)
    for module in (theirs.eval(), ours.eval()):
        with torch.no_grad():
            found.append(run(module, (q, k, v), {**CASES[name], "need_weights": True}, backward=False))
    same(found[2], found[3], 1e-9)


def test_a_gradient_of_the_average_has_a_gradient():
    theirs, ours = twins(E, H, batch_first=True)
    found = []
    for module in (theirs, ours):
        q, k = (torch.linspace(-2, 2, n * E, dtype=torch.float64).mul(37).sin().view(1, n, E) for n in (T, S))
        average = module(q.requires_grad_(), k, k, need_weights=True)[1]
        upstream = torch.linspace(-1, 1, S, dtype=torch.float64)
        (gradient,) = torch.autograd.grad((average * upstream).sum(), [q], create_graph=True)
        found.append(torch.autograd.grad(gradient.square().sum(), [module.in_proj_weight])[0])
    assert found[0].abs().max() > 0
    torch.testing.assert_close(found[1], found[0], rtol=1e-7, atol=1e-12)


MANY = 2053  # so many pairs that a masked call goes block by block
LIMITS = {
    "window": sl.masks.window(97, 31),
    "causal and padding": sl.masks.causal() & sl.masks.padding([MANY - 700]),
    "window and bias": sl.masks.window(499, 3)
    & sl.masks.bias(torch.linspace(-9, 9, MANY).sin()[None].expand(MANY, -1)),
    "dense": torch.linspace(0, 999, MANY * MANY).sin().view(MANY, MANY) > -0.9,
}


@pytest.mark.parametrize("name", LIMITS)
def test_attention_of_many_pairs_is_that_of_the_matrix(name):
    q, k, v = (torch.linspace(-2, 2, MANY * 3).mul(n).sin().view(1, 1, MANY, 3) for n in (41, 47, 53))
    mask = LIMITS[name]
    shown = mask.dense(MANY, MANY) if isinstance(mask, sl.Mask) else mask
    shown = shown.double() if shown.is_floating_point() else shown
    expected = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), shown)
    torch.testing.assert_close(sl.attention(q, k, v, mask), expected.float(), rtol=1e-4, atol=1e-5)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: sl.masks.causal().dense(1 << 24, 1 << 24), ["a mask of 16777216 x 16777216"]),
        (lambda: sl.scores.General(1 << 24, 1 << 24), ["the score's matrix", "choose smaller widths"]),
    ],
    ids=["mask", "score"],
)
def test_what_no_memory_holds_is_refused_in_a_sentence(make, words):
    with pytest.raises((ValueError, MemoryError)) as caught:
        make()
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert all(word in sentence for word in words), sentence
    assert not sentence.endswith("_")
