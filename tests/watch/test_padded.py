"""Numbers from padded batches are those of the sentences alone."""

import warnings
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import sightline as sl
from sightline.look.asked import fitted
from sightline.look.engine import run
from sightline.look.heads import head_table
from sightline.look.inputs import ScoreInputs
from sightline.look.source import Block, Local
from tests.look.look_oracle import near, randn

transformers = pytest.importorskip("transformers")

V, E, H, T, LONG = 31, 12, 3, 7, 19


def model_of(which):
    sizes = {"hidden_size": E, "num_hidden_layers": 2, "num_attention_heads": H, "intermediate_size": 7}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        if which == "bert":
            made = transformers.BertModel(transformers.BertConfig(vocab_size=V, **sizes))
        else:
            config = transformers.LlamaConfig(vocab_size=V, **sizes, num_key_value_heads=1)
            made = transformers.LlamaModel(config)
    return made.eval()


@pytest.mark.combinations
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("which", ["bert", "llama"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_sentence_alone_and_in_a_padded_batch(which, implementation, side, dtype):
    model = model_of(which).to(dtype)
    model.set_attn_implementation(implementation)
    ids = torch.randint(1, V, (1, T))
    other = torch.randint(1, V, (1, LONG))
    empty = torch.zeros(1, LONG - T, dtype=torch.long)
    long = torch.cat([empty, ids] if side == "left" else [ids, empty], 1)
    at = slice(LONG - T, LONG) if side == "left" else slice(0, T)
    batch, mask = torch.cat([long, other]), torch.ones(2, LONG, dtype=torch.long)
    mask[0] = 0
    mask[0, at] = 1
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    with torch.no_grad():
        with sl.watch(model, keep=True) as alone:
            model(ids)
        with sl.watch(model, keep=True) as padded:
            model(batch, attention_mask=mask, position_ids=positions)
    tolerance = 1e-5 if dtype == torch.float32 else 3e-2
    for name in alone.names():
        one, both = alone[name], padded[name]
        assert both.padding == "attention_mask"
        near(both.received[0, :, at], one.received[0], rtol=tolerance, atol=tolerance)
        near(both.entropy[0, :, at], one.entropy[0], rtol=tolerance, atol=tolerance)
        near(both[0].map((T, T), queries=(at.start, at.stop), keys=(at.start, at.stop)), one[0].map(T),
             rtol=tolerance, atol=tolerance)  # fmt: skip
        assert both.is_looking[0].sum() == H * T
        assert both.entropy[0][:, mask[0] == 0].isnan().all()
    if dtype == torch.float32:
        first = {name: padded[name][0] for name in padded.names()}
        table = head_table(first)
        for head, expected in zip(table, head_table({n: alone[n][0] for n in alone.names()}), strict=True):
            assert head.entropy == pytest.approx(expected.entropy, abs=1e-5)
            if side == "right":
                assert head.first == pytest.approx(expected.first, abs=1e-5)
                assert head.distance == pytest.approx(expected.distance, abs=1e-4)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"attention_mask": torch.ones(3)}, r"must be a tensor \(B, T\).*\(3,\)"),
        ({"lengths": [1.5]}, "lengths must be whole numbers"),
        ({"lengths": [1], "attention_mask": torch.ones(1, 2)}, "got both"),
    ],
)
def test_sentences(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        sl.watch(nn.Linear(2, 2), **options)


def test_padded_queries_count_as_empty_in_every_statistic():
    q, k = randn(2, 3, 11, 8, seed=1, dtype=torch.float32), randn(2, 3, 13, 8, seed=2, dtype=torch.float32)
    padding = (torch.arange(11) >= torch.tensor([[4], [11]])).unsqueeze(1)
    inputs = ScoreInputs(q, k, sl.Mask(), 0.3, padding=padding)
    weights = (q @ k.mT * 0.3).softmax(-1).masked_fill(padding[..., None], 0.0)
    measures = fitted(sl.Look(map=(2, 3), top=2), 11, 13)
    for lse in (None, (q @ k.mT * 0.3).logsumexp(-1)):
        stats = SimpleNamespace(**run(measures, Local(Block(inputs, lse))))
        near(stats.received, weights.sum(-2), atol=1e-6)
        near(stats.peak, weights.amax(-1), atol=1e-6)
        assert torch.equal(stats.peak_at == -1, padding.expand(2, 3, 11))
        near(stats.top, weights.topk(2).values, atol=1e-6)
        assert torch.equal(stats.lse == -torch.inf, padding.expand(2, 3, 11))
