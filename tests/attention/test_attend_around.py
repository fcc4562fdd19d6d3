"""Attention among the rest of torch: dropout, compilation, autocast, and what a user gets wrong."""

import math

import pytest
import torch

import sightline as sl
from tests.attention.attend_oracle import (
    close,
    in_blocks,
    in_one_call,
    qkv,
    randn,
    scored,
    value_and_gradients,
)

masks = sl.masks


# Dropout


@pytest.mark.parametrize("way", [in_blocks, in_one_call])
@pytest.mark.parametrize("score", [None, "additive"])
def test_dropout_keeps_the_mean_and_follows_the_seed(way, score):
    q, k, v = qkv(500, 1)
    q, k, v = q[:1].expand_as(q), k[:1].expand_as(k), v[:1].expand_as(v)
    score = scored(score, 3)

    def dropped(seed, p):
        torch.manual_seed(seed)
        return sl.attention(q, k, v, masks.causal(), score=score, dropout_p=p)

    with way(), torch.no_grad():
        once = dropped(3, 0.3)
        assert torch.equal(once, dropped(3, 0.3))
        assert not torch.equal(once, dropped(4, 0.3))
        assert not torch.equal(once[0], once[1])
        whole = dropped(3, 0.0)
        assert torch.equal(whole, dropped(4, 0.0))
        assert (once.mean(0) - whole[0]).abs().max() < 6 * once.std(0).max() / math.sqrt(500)
        assert once.std(0).max() > 0.1


@pytest.mark.parametrize("way", [in_blocks, in_one_call])
@pytest.mark.parametrize("score", [None, "additive"])
def test_with_dropout_the_gradient_is_that_of_the_draw(way, score):
    q, k, v = qkv(2, 3)
    score = scored(score, 3)

    def dropped(q, k, v):
        torch.manual_seed(3)
        return sl.attention(q, k, v, masks.causal(), score=score, dropout_p=0.5)

    with way():
        _, _, _, grad = value_and_gradients(dropped, (q, k, v))
        step = randn(*v.shape, seed=8)  # the output is linear in v: the derivative is exact
        change = dropped(q, k, v + step) - dropped(q, k, v)
    upstream = randn(*change.shape, seed=77)
    torch.testing.assert_close((grad * step).sum(), (upstream * change).sum(), rtol=0, atol=1e-10)


# Around it


@pytest.mark.plain  # the shape hook can't be compiled
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's, of itself
@pytest.mark.parametrize("score", [None, "additive"])
@pytest.mark.parametrize("train", [False, True])
def test_compile_makes_one_graph(train, score):
    score = scored(score, 3)

    def step(q, k, v, lengths):
        seen = sl.attention(q, k, v, masks.causal(), score=score)
        seen = seen + sl.attention(q, k, v, masks.padding(lengths), scale=0.5)
        return seen + sl.attention(q, k, v, masks.causal() & masks.padding(lengths) & masks.window(3, 0))

    tensors, lengths = qkv(2, 3, t=7), torch.tensor([2, 5])
    compiled = torch.compile(step, fullgraph=True, backend="eager")
    if train:
        close(
            value_and_gradients(lambda *x: compiled(*x, lengths), tensors),
            value_and_gradients(lambda *x: step(*x, lengths), tensors),
        )
    else:
        close([compiled(*tensors, lengths)], [step(*tensors, lengths)])
    torch._dynamo.reset()


@pytest.mark.parametrize("mask", [None, masks.causal(), masks.padding([2, 5]), masks.bias(torch.zeros(5, 7))])
@pytest.mark.parametrize("score", [None, "general", "additive"])
def test_autocast(mask, score):
    q, k, v = qkv(2, 3, dtype=torch.float32)
    score = scored(score, 3)
    score = score.float() if score else None
    with torch.autocast("cpu", torch.bfloat16):
        output, *grads = value_and_gradients(lambda *x: sl.attention(*x, mask, score=score), (q, k, v))
        mixed = sl.attention(q.bfloat16(), k, v, mask, score=score)
    assert output.dtype == mixed.dtype == torch.bfloat16
    assert all(grad.dtype == torch.float32 for grad in grads)
    torch.testing.assert_close(output.float(), sl.attention(q, k, v, mask, score=score), rtol=0, atol=5e-2)


@pytest.mark.parametrize("way", [in_blocks, in_one_call])
def test_no_grad_means_no_graph(way):
    q, k, v = (x.requires_grad_() for x in qkv(2, 3))
    with way():
        with torch.no_grad():
            assert not sl.attention(q, k, v, masks.causal()).requires_grad
        assert sl.attention(q, k, v, masks.causal()).requires_grad
        assert not sl.attention(q.detach(), k.detach(), v.detach(), masks.causal()).requires_grad


@pytest.mark.parametrize("way", [in_blocks, in_one_call])
def test_inputs_may_lie_in_memory_as_they_like(way):
    q, k, v = qkv(2, 3, t=5, s=7, d=8, d_v=8)
    spread = [
        q.transpose(1, 2).contiguous().transpose(1, 2),  # (B, T, H, D) in memory, as projections leave it
        k.mT.contiguous().mT,
        v.repeat_interleave(2, -1)[..., ::2],
    ]
    assert not any(x.is_contiguous() for x in spread)
    for mask in (None, masks.causal(), masks.padding([2, 5]), masks.window(1, 1)):
        with way():
            close(
                value_and_gradients(lambda *x, m=mask: sl.attention(*x, m), spread),
                value_and_gradients(lambda *x, m=mask: sl.attention(*x, m), (q, k, v)),
            )


def test_inputs_are_left_as_they_were():
    q, k, v = qkv(2, 3)
    before = [x.clone() for x in (q, k, v)]
    added = randn(5, 7, seed=5)
    for mask in (masks.causal(), masks.padding([2, 5]), masks.bias(added) & masks.causal()):
        sl.attention(q, k, v, mask)
    close([q, k, v, added], [*before, randn(5, 7, seed=5)], atol=0)


def test_scale_and_score_defaults():
    q, k, v = qkv()
    close([sl.attention(q, k, v)], [sl.attention(q, k, v, scale=3**-0.5)])
    close([sl.attention(q, k, v)], [sl.attention(q, k, v, score="scaled_dot")])
    close([sl.attention(q, k, v, score="dot")], [sl.attention(q, k, v, scale=1.0)])
    close([sl.attention(q, k, v, score="dot", scale=0.3)], [sl.attention(q, k, v, scale=0.3)])


def test_a_later_token_has_no_gradient_on_an_earlier_output():
    q, k, v = (x.requires_grad_() for x in qkv(2, 3, t=7))
    for way in (in_blocks, in_one_call):
        with way():
            output = sl.attention(q, k, v, masks.causal())
            grads = torch.autograd.grad(output[..., 3, :].sum(), (k, v))
        for grad in grads:
            assert (grad[..., 4:, :] == 0).all()
            assert (grad[..., :4, :] != 0).any()


def test_decoding_with_a_cache_is_the_last_row_of_the_whole():
    q, k, v = qkv(2, 3, t=7)
    whole = sl.attention(q, k, v, masks.causal())
    for new in (1, 2, 5):
        close([sl.attention(q[..., -new:, :], k, v, masks.causal())], [whole[..., -new:, :]])


# What a user gets wrong


def ones(*shape, **kwargs):
    return torch.ones(shape, **kwargs)


GOOD = {"q": ones(2, 3, 5, 13), "k": ones(2, 3, 7, 13), "v": ones(2, 3, 7, 11)}
ALL_HALF = {name: x.half() for name, x in GOOD.items()}
BAD = {  # what is changed, what is raised, what it says
    "width": ({"k": ones(2, 3, 7, 2)}, ValueError, r"D=13 and D=2 .*k \(2, 3, 7, 2\); sl.scores.General"),
    "width_and_scale": ({"k": ones(2, 3, 7, 2), "scale": 1.0}, ValueError, r"D=13 and D=2"),
    "no_width": ({"q": ones(5, 0), "k": ones(7, 0)}, ValueError, r"at least 1 wide, got D=0"),
    "length": (
        {"v": ones(2, 3, 6, 11)},
        ValueError,
        r"S=7 for k \(2, 3, 7, 13\) and S=6 for v \(2, 3, 6, 11\)",
    ),
    "rank": ({"q": ones(13)}, ValueError, r"q of shape \(13,\); q\[None\] adds a dimension"),
    "integers": ({"q": GOOD["q"].long()}, TypeError, r"q must be a float tensor, got torch.int64; q.float"),
    "dtypes": (
        {"k": GOOD["k"].double()},
        TypeError,
        r"torch.float32, torch.float64 and torch.float32; convert",
    ),
    "devices": ({"k": GOOD["k"].to("meta")}, ValueError, r"same device, got cpu, meta and cpu; move"),
    "no_tensor": ({"v": [1.0]}, TypeError, r"v must be a torch.Tensor, got list; torch.as_tensor\(v\)"),
    "batch": ({"k": ones(5, 3, 7, 13)}, ValueError, r"k \(5, 3, 7, 13\) and v \(2, 3, 7, 11\)"),
    "heads": (
        {"q": ones(2, 5, 5, 13)},
        ValueError,
        r"multiple of .* got q \(2, 5, 5, 13\), k \(2, 3, 7, 13\)",
    ),
    "fewer_heads": ({"q": ones(2, 2, 5, 13)}, ValueError, r"got q \(2, 2, 5, 13\), k \(2, 3, 7, 13\)"),
    "mask_shape": ({"mask": ones(5, 6) > 0}, ValueError, r"\(2, 3, 5, 7\), got a mask of shape \(5, 6\)"),
    "mask_batch": ({"mask": ones(3, 1, 7) > 0}, ValueError, r"\(3, 1, 7\), read as \(3, 1, 1, 7\); insert"),
    "mask_rank": ({"mask": ones(1, 2, 3, 5, 7)}, ValueError, r"\(2, 3, 5, 7\), got .* \(1, 2, 3, 5, 7\)"),
    "mask_integers": ({"mask": ones(5, 7).int()}, TypeError, r"got torch.int32; sl.masks.from_ones\(mask\)"),
    "mask_list": ({"mask": [[True]]}, TypeError, r"one of sl\.masks"),
    "mask_device": ({"mask": ones(5, 7, device="meta")}, ValueError, r"device of q, got meta and cpu; build"),
    "lengths": ({"mask": masks.padding([1, 2, 3])}, ValueError, r"lengths \(3,\) for \(2, 3\); give one"),
    "dropout_one": ({"dropout_p": 1.0}, ValueError, r"\[0, 1\), got 1.0; 0 drops nothing"),
    "dropout_below": ({"dropout_p": -0.1}, ValueError, r"\[0, 1\), got -0.1"),
    "dropout_nan": ({"dropout_p": math.nan}, ValueError, r"\[0, 1\), got nan"),
    "dropout_text": ({"dropout_p": "0.1"}, TypeError, r"number in \[0, 1\), got str"),
    "scale_nan": ({"scale": math.nan}, ValueError, r"finite number, got nan; None gives D \*\* -0.5"),
    "scale_inf": ({"scale": -math.inf}, ValueError, r"finite number, got -inf"),
    "scale_tensor": ({"scale": ones(1)}, TypeError, r"a number, got Tensor; multiply q by a scale"),
    "score": ({"score": "cosin"}, ValueError, r"unknown score 'cosin', .* did you mean 'cosine'"),
    "score_built": (
        {"score": "additive"},
        ValueError,
        r"'additive' .* sl.scores.Additive\(d_q, d_k, d_attn\)",
    ),
    "score_class": ({"score": sl.scores.Dot}, TypeError, r"got the class Dot; sl.scores.Dot\(\)"),
    "score_widths": ({"score": sl.scores.General(13, 5)}, ValueError, r"d_k=5, got widths 13 and 13"),
    "score_dtype": (
        {**ALL_HALF, "score": sl.scores.General(13, 13)},
        TypeError,
        r"got q torch.float16 on cpu",
    ),
}


@pytest.mark.bad_input
@pytest.mark.parametrize("name", BAD)
def test_bad_input(name):
    changed, error, words = BAD[name]
    with pytest.raises(error, match=words):
        sl.attention(**{**GOOD, **changed})


@pytest.mark.bad_input
@pytest.mark.parametrize("name", ["length", "batch", "heads", "mask_shape", "mask_device", "lengths"])
def test_bad_input_is_noticed_by_any_score(name):
    changed, error, words = BAD[name]
    with pytest.raises(error, match=words):
        sl.attention(**{**GOOD, **changed}, score=sl.scores.Additive(13, 13, 2))
