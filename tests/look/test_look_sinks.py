"""Attention sinks: a score per head beside those of the keys, which takes a share of every row."""

import pytest
import torch

from sightline.attention.masks import causal
from sightline.look.asked import fitted, measure_sight
from sightline.look.inputs import ScoreInputs
from sightline.look.request import Look
from sightline.look.sight import Sight
from tests.look.look_oracle import near, randn

B, H, T, D = 2, 3, 13, 5


def weights_of(q, k, sink):
    """With the sink as a key more, whose column is left out."""
    scores = (q @ k.mT).masked_fill(~torch.ones(T, T, dtype=torch.bool).tril(), -torch.inf)
    both = torch.cat([scores, sink.reshape(1, H, 1, 1).expand(B, H, T, 1)], -1)
    return both.softmax(-1)[..., :-1], both.logsumexp(-1)


@pytest.mark.parametrize("size", [1.0, 200.0], ids=["small scores", "large scores"])
def test_statistics_rows_and_gradients(size, tmp_path):
    q, k = (randn(B, H, T, D, seed=i).requires_grad_() for i in range(2))
    sink = (randn(H, seed=2) * size).requires_grad_()
    scale = size
    inputs = ScoreInputs(q, k, causal().fitted((B, H), T, T), scale, sink=sink.reshape(1, H, 1))
    weights, lse = weights_of(q * scale, k, sink)
    for made in (inputs, inputs.detached()):
        sight = measure_sight(made, fitted(Look(map=4, top=3), T, T), lead=(B, H))
        near(sight.lse, lse, rtol=1e-9)
        near(sight.entropy, torch.special.entr(weights).sum(-1), atol=1e-9)
        near(sight.peak, weights.amax(-1), atol=1e-9)
        near(sight.received, weights.sum(-2), atol=1e-9)
        near(sight.top(3)[0], weights.topk(3).values, atol=1e-9)
        near(sight.rows(range(T)), weights, atol=1e-9)
        near(sight.columns([4]), weights[..., [4]], atol=1e-9)
        near(sight.mass([[0, 5]]), weights[..., [0, 5]].sum(-1, keepdim=True), atol=1e-9)
        near(sight[1, 2].rows([7]), weights[1, 2, [7]], atol=1e-9)
    sight.save(tmp_path / "sight.safetensors", keep=True)
    near(Sight.load(tmp_path / "sight.safetensors").rows(range(T)), weights, atol=1e-9)
    seen = measure_sight(inputs, fitted(Look(), T, T), lead=(B, H))
    asked = {
        "entropy": -(weights * weights.clamp(min=1e-300).log()).sum(-1),
        "received": weights.sum(-2),
        "lse": lse,
    }
    for name, expected in asked.items():
        pull = torch.linspace(-1, 1, expected.numel()).double().view(expected.shape)
        found = torch.autograd.grad((seen.statistics[name] * pull).sum(), (q, k, sink), retain_graph=True)
        truth = torch.autograd.grad((expected * pull).sum(), (q, k, sink), retain_graph=True)
        for a, b in zip(found, truth, strict=True):
            near(a, b, rtol=1e-6, atol=1e-7)
