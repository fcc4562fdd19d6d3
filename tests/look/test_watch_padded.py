"""Numbers from padded batches are those of the sentences alone."""

import warnings

import pytest
import torch
from torch import nn

import sightline as sl
from sightline.look.heads import head_table
from sightline.look.measure import measure
from sightline.look.score_inputs import ScoreInputs
from sightline.look.stream import Cells, StatsRequest
from sightline.look.unseen_keys import unseen_positions
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
        assert both.padding == "left out"
        near(both.received[0, :, at], one.received[0], rtol=tolerance, atol=tolerance)
        near(both.entropy[0, :, at], one.entropy[0], rtol=tolerance, atol=tolerance)
        near(both[0].map((T, T), queries=(at.start, at.stop), keys=(at.start, at.stop)), one[0].map(T),
             rtol=tolerance, atol=tolerance)  # fmt: skip
        assert both.is_looking[0].sum() == H * T
        assert not both.entropy[0][:, mask[0] == 0].any()
    if dtype == torch.float32:
        first = {name: padded[name][0] for name in padded.names()}
        table = head_table(first)
        for head, expected in zip(table, head_table({n: alone[n][0] for n in alone.names()}), strict=True):
            assert head.entropy == pytest.approx(expected.entropy, abs=1e-5)
            if side == "right":
                assert head.first == pytest.approx(expected.first, abs=1e-5)
                assert head.distance == pytest.approx(expected.distance, abs=1e-4)


class Encoder(nn.Module):
    """Its mask shows nothing of which queries are padding: there is none."""

    def __init__(self):
        super().__init__()
        self.attn = nn.MultiheadAttention(E, H, batch_first=True)

    def forward(self, x):
        return self.attn(x, x, x, need_weights=False)[0]


@pytest.mark.parametrize("said", ["attention_mask", "lengths"])
def test_padding_that_the_user_knows_of(said):
    model, x = Encoder(), randn(2, T, E, dtype=torch.float32)
    real = torch.arange(T) < torch.tensor([[3], [T]])
    given = {"attention_mask": real.long()} if said == "attention_mask" else {"lengths": [3, T]}
    with torch.no_grad():
        with sl.watch(model, keep=True) as blind:
            model(x)
        with sl.watch(model, keep=True, **given) as seen:
            model(x)
    rows = blind["attn"].rows(range(T))
    near(seen["attn"].received, (rows * real[:, None, :, None]).sum(-2), atol=1e-6)
    assert blind["attn"].padding == ""
    assert "queries that are padding are left out" in repr(seen["attn"])


def test_where_it_can_not_be_known_it_says_so():
    model = nn.MultiheadAttention(E, H, batch_first=True)
    query, memory = (randn(2, n, E, seed=n, dtype=torch.float32) for n in (5, T))
    padding = torch.arange(T) >= torch.tensor([[3], [T]])
    with torch.no_grad(), sl.watch(model) as seen:
        model(query, memory, memory, key_padding_mask=padding, need_weights=False)
    assert seen[""].padding == "unknown"
    assert "attention_mask=" in repr(seen[""])


@pytest.mark.parametrize("kind", ["bidirectional", "causal", "window"])
@pytest.mark.parametrize("side", ["left", "right", "none"])
@pytest.mark.parametrize("rows_opened", [True, False])
def test_padding_is_read_off_masks(kind, side, rows_opened):
    i, j = torch.arange(T)[:, None], torch.arange(T)
    allowed = {"bidirectional": j >= 0, "causal": j <= i, "window": (j <= i) & (j > i - 3)}[kind].expand(T, T)
    real = {"left": j >= 3, "right": j < 4, "none": j >= 0}[side]
    mask = (allowed & real)[None].clone()
    if rows_opened:  # Hugging Face's way with rows that would be empty
        mask[~mask.any(-1)] = True
    found = unseen_positions(mask)
    assert found is None if side == "none" else torch.equal(found[0], ~real)


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
    request = StatsRequest(True, True, True, Cells(2, 3, (0, 11), (0, 13)), 2)
    for lse in (None, (q @ k.mT * 0.3).logsumexp(-1)):
        stats = measure(inputs, request, lse)
        near(stats.received, weights.sum(-2), atol=1e-6)
        near(stats.peak, weights.amax(-1), atol=1e-6)
        assert torch.equal(stats.peak_at == -1, padding.expand(2, 3, 11))
        near(stats.top, weights.topk(2).values, atol=1e-6)
        assert torch.equal(stats.lse == -torch.inf, padding.expand(2, 3, 11))
