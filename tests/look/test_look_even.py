"""Even attention under masks: what sharp heads and large shares are measured against."""

import math

import pytest
import torch

import sightline as sl
from sightline.attention import masks
from sightline.look.heads import head_table, sharpest
from sightline.look.uniform import even_attention
from tests.look.look_oracle import near, randn

B, H, T, S, D = 2, 3, 11, 13, 4
ALLOWED = randn(B, 1, T, S, seed=9) > 0.3
MASKS = {
    "none": None,
    "causal": masks.causal(),
    "from the start": masks.causal(align="start"),
    "window": masks.window(3, 1),
    "both": masks.causal() & masks.window(4, 2),
    "lengths": masks.padding([5, 13]),
    "causal lengths": masks.causal() & masks.padding([5, 13]),
    "dense": masks.dense(ALLOWED),
    "bias": masks.bias(torch.zeros(B, 1, T, S).masked_fill(~ALLOWED, torch.finfo().min)),
}


def oracle(mask):
    """Every query that may look at n keys gives each of them 1 / n."""
    allowed = torch.ones(B, H, T, S, dtype=torch.bool)
    if mask is not None:
        dense = mask.dense(T, S)
        dense = dense if dense.dtype == torch.bool else dense > torch.finfo().min / 2
        allowed = (dense[:, None] if dense.dim() == 3 else dense).expand(B, H, T, S)
    n = allowed.sum(-1)
    return n, n.clamp(min=1).log(), (allowed / n.clamp(min=1)[..., None]).sum(-2)


@pytest.mark.parametrize("kind", MASKS)
def test_what_even_attention_gives(kind):
    q, k = randn(B, H, T, D, seed=1), randn(B, H, S, D, seed=2)
    sight = sl.look(q, k, k, MASKS[kind])
    for found, truth in zip(even_attention(sight), oracle(MASKS[kind]), strict=True):
        near(found, truth, atol=1e-5)
    for found, truth in zip(even_attention(sight[1, 2]), oracle(MASKS[kind]), strict=True):
        near(found, truth[1, 2], atol=1e-5)
    for found, truth in zip(even_attention(sight.mean_heads()), oracle(MASKS[kind]), strict=True):
        near(found, truth[:, 0], atol=1e-5)
    bare = even_attention(sight.forget())
    assert (bare is None) == (kind != "none")
    same = sl.look(torch.zeros_like(q), torch.zeros_like(k), k, MASKS[kind])  # it is even itself
    if kind != "bias":
        near(same.entropy, even_attention(same).entropy, atol=1e-6)
        near(same.received, even_attention(same).received, atol=1e-5)


def test_a_head_is_not_sharp_because_it_may_look_at_little():
    q, k = 0.1 * randn(1, 1, 64, D, seed=1), randn(1, 1, 64, D, seed=2)
    narrow = sl.look(q, k, k, masks.window(2, 0))  # nearly even over three keys
    wide = sl.look(30 * q, k, k)  # a few of 64
    table = head_table({"narrow": narrow, "wide": wide})
    assert table[0].entropy < table[1].entropy
    assert table[0].evenness > 0.95 > 0.8 > table[1].evenness
    assert sharpest(table, 1)[0].layer == "wide"


def test_padding_is_no_query():
    q = randn(2, 1, 7, D, seed=1)
    alone = sl.look(q[:1, :, :4], q[:1, :, :4], q[:1, :, :4], masks.causal())
    model = torch.nn.MultiheadAttention(D, 1, batch_first=True)
    x = randn(2, 7, D, seed=3, dtype=torch.float32)
    with sl.watch(model, keep=True, lengths=[4, 7]) as seen:
        model(x, x, x, need_weights=False)
    even = even_attention(seen[""])
    assert even.reach[:, 0].tolist() == [[7] * 4 + [0] * 3, [7] * 7]
    near(even_attention(alone).entropy, torch.arange(1, 5).log().view(1, 1, 4), atol=1e-6)


def test_what_is_said_of_a_causal_sight():
    x = torch.zeros(1, 2, 5, D)
    told = repr(sl.look(x, x, x, masks.causal()))
    mean = sum(map(math.log, range(1, 6))) / 5
    assert f"{mean:.3f} nats on average" in told
    assert f"even is {mean:.3f}" in told
    first = sum(1 / n for n in range(1, 6)) / 5
    assert f"most by key 0, {first:.1%} of all weight; even is {first:.1%}" in told
    assert "even is" not in repr(sl.look(x, x, x, masks.causal()).forget())
    assert "even is 1.609" in repr(sl.look(x, x, x).forget())
