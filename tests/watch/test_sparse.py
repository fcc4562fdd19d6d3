"""Attention that is no matrix of queries and keys: blocks, bands, parts. It is told, never shown as one."""

import os
import warnings

import pytest
import torch
from torch import nn

import sightline as sl
from tests.look.look_oracle import near, randn

os.environ.setdefault("HF_HUB_OFFLINE", "1")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    transformers = pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()

pytestmark = [pytest.mark.plain, pytest.mark.filterwarnings("ignore")]

V, E, H, B, T = 97, 16, 2, 2, 48
TEXT = {"hidden_size": E, "num_hidden_layers": 2, "num_attention_heads": H, "intermediate_size": 7}
PAIR = {
    "d_model": E,
    **{f"{side}_layers": 1 for side in ("encoder", "decoder")},
    **{f"{side}_attention_heads": H for side in ("encoder", "decoder")},
    **{f"{side}_ffn_dim": 7 for side in ("encoder", "decoder")},
}


def ids(length=T):
    return torch.randint(3, V, (B, length), generator=torch.Generator().manual_seed(0))


def first_token(length=T):
    return (torch.arange(length) == 0).long().expand(B, length)


# Columns of the window's weights: two to the left, two to the right, the own one and a global one. That is as
# many as a chunk of keys is wide, so their number alone does not show that they are no keys.
MODELS = {
    "longformer": lambda tf: (
        tf.LongformerModel(tf.LongformerConfig(**TEXT, vocab_size=V, attention_window=4)),
        {"input_ids": ids(), "global_attention_mask": first_token()},
        [f"encoder.layer.{i}.attention.self" for i in range(2)],
    ),
    "led": lambda tf: (
        tf.LEDModel(tf.LEDConfig(**PAIR, vocab_size=V, attention_window=4, pad_token_id=0)),
        {"input_ids": ids(), "decoder_input_ids": ids(7), "global_attention_mask": first_token()},
        ["encoder.layers.0.self_attn.longformer_self_attn"],
    ),
    "big bird": lambda tf: (
        tf.BigBirdModel(tf.BigBirdConfig(**TEXT, vocab_size=V, block_size=4, num_random_blocks=1)),
        {"input_ids": ids()},
        [f"encoder.layer.{i}.attention.self" for i in range(2)],
    ),
    "pegasus-x": lambda tf: (
        tf.PegasusXModel(tf.PegasusXConfig(**PAIR, vocab_size=V, block_size=8, num_global_tokens=3)),
        {"input_ids": ids(), "decoder_input_ids": ids(7)},
        ["encoder.layers.0.self_attn"],
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_sparse_attention_is_told(name):
    torch.manual_seed(0)
    model, inputs, unseen = MODELS[name](transformers)
    model = model.eval()
    with torch.no_grad():
        blind = model(**inputs).last_hidden_state
        with sl.watch(model) as seen:
            watched = model(**inputs).last_hidden_state
    assert torch.equal(blind, watched)
    assert sorted(seen.unseen()) == unseen
    assert all("cut into blocks" in reason for reason in seen.unseen().values())
    assert not set(seen.names()) & set(unseen)
    assert all(sight.t == 7 for _, calls in seen.items() for sight in calls)  # the decoders' alone


class ScoresInParts(nn.Module):
    """One softmax over two kinds of keys, whose weights meet their values apart."""

    def __init__(self, n_other):
        super().__init__()
        self.other = nn.Parameter(randn(n_other, 5, dtype=torch.float32))

    def forward(self, x):
        scores = torch.cat([x @ self.other.T, x @ x.mT], dim=-1)
        weights = scores.softmax(-1)
        n = len(self.other)
        return weights[..., n:] @ x + weights[..., :n] @ self.other


@pytest.mark.parametrize(("n_other", "is_seen"), [(1, True), (3, False)])
def test_a_part_of_the_columns(n_other, is_seen):
    """One column beside the keys is a sink; more of them may be keys of another kind."""
    model, x = ScoresInParts(n_other), randn(3, 7, 5, dtype=torch.float32)
    with sl.watch(model, keep=True) as seen:
        model(x)
    assert bool(seen.unseen()) != is_seen
    if is_seen:
        scores = torch.cat([x @ model.other.T, x @ x.mT], dim=-1)
        near(seen[0].rows(range(7)), scores.softmax(-1)[..., 1:], atol=1e-5)


class ByConvolution(nn.Module):
    """Attention without a product of matrices, as in mobile networks."""

    def __init__(self):
        super().__init__()
        self.attn = SeparableSelfAttention()

    def forward(self, x):
        return self.attn(x)


class SeparableSelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Conv2d(3, 7, 1)

    def forward(self, x):
        query, key, value = self.qkv(x).split([1, 3, 3], dim=1)
        context = (key * query.softmax(-1)).sum(-1, keepdim=True)
        return value.relu() * context


def test_attention_by_convolutions_is_told():
    model = ByConvolution()
    with sl.watch(model) as seen:
        model(torch.randn(2, 3, 4, 11))
    assert list(seen.unseen()) == ["attn"]


def test_what_comes_after_attention_is_no_attention():
    settings = {"hidden_size": E, "num_attention_heads": H, "intermediate_size": 7, "vocab_size": V}
    layers = {"l_layers": 1, "x_layers": 1, "r_layers": 1, "visual_feat_dim": 5, "visual_pos_dim": 4}
    model = transformers.LxmertModel(transformers.LxmertConfig(**settings, **layers)).eval()
    inputs = {"visual_feats": torch.randn(B, 3, 5), "visual_pos": torch.rand(B, 3, 4)}
    with torch.no_grad(), sl.watch(model) as seen:
        model(input_ids=ids(11), **inputs)
    assert seen.unseen() == {}  # of LxmertAttentionOutput nothing is expected
    assert len(seen) == 5
