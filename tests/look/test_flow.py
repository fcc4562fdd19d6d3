"""Rollout against the product of matrices; the flow of what was received."""

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
import torch

import sightline as sl
from sightline.look.flow import received_flow, rollout
from sightline.look.source import Block
from tests.look.look_oracle import MASKS, near, randn

B, H, T = 2, 3, 7


def layers(n, mask="nothing", lead=(B, H), **options):
    given_mask = MASKS[mask](lead, T, T)[0]
    return [
        sl.look(*(randn(*lead, T, 5, seed=10 * i + j) for j in range(3)), given_mask, **options)
        for i in range(n)
    ]


@pytest.mark.combinations
@pytest.mark.parametrize("residual", [0.5, 0.0, 0.3, 1.0])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_rollout_is_the_product_of_the_layers(residual, n):
    sights = layers(n, "causal")
    expected = torch.eye(T, dtype=torch.float64)
    for sight in sights:
        weights = torch.stack([sight.rows([t])[..., 0, :] for t in range(T)], -2).mean(1)
        expected = (residual * torch.eye(T, dtype=torch.float64) + (1 - residual) * weights) @ expected
    found = rollout(sights, residual=residual)
    near(found, expected, rtol=1e-9)
    near(found.sum(-1), torch.ones(B, T), rtol=1e-9)


def test_rows_sum_to_one_around_an_empty_row():
    near(rollout(layers(3, "dense")).sum(-1), torch.ones(B, T), rtol=1e-9)


@pytest.mark.parametrize("lead", [(B, H), (), (3,)])
def test_flow_of_one_layer_is_the_mean_of_rollouts_columns(lead):
    sights = layers(1, lead=lead)
    near(received_flow(sights), rollout(sights).mean(-2), rtol=1e-9)


def test_flow_sums_to_one_and_needs_nothing_kept():
    sights = [x.forget() for x in layers(4, "causal")]
    flow = received_flow(sights)
    near(flow.sum(-1), torch.ones(B), rtol=1e-9)
    assert (flow > 0).all()
    near(received_flow([x.mean_heads() for x in sights]), flow, rtol=1e-9)


def test_flow_follows_the_layers_from_the_last_to_the_first():
    def shares(sight):
        return sight.received.mean(1) / T

    first, last = layers(2)
    expected = 0.5 * (0.5 / T + 0.5 * shares(last)) + 0.5 * shares(first)
    near(received_flow([first, last]), expected, rtol=1e-9)


def test_of_a_watched_model():
    layer = torch.nn.TransformerEncoderLayer(12, 3, 5, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    with sl.watch(model, keep=True) as seen:
        model(torch.randn(B, T, 12))
    near(rollout([x for _, (x,) in seen.items()]).sum(-1), torch.ones(B, T))


def test_one_token_of_what_was_decoded_step_by_step():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = Layer(), Layer()

    class Layer(torch.nn.Module):
        def forward(self, q, k, v, **options):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, **options)

    model, prompt = Model(), 3
    with sl.watch(model, keep=True) as seen:
        for i, layer in enumerate((model.first, model.second)):
            q, k, v = (randn(B, H, T, 5, seed=10 * i + j) for j in range(3))
            layer(q[..., :prompt, :], k[..., :prompt, :], v[..., :prompt, :], is_causal=True)
            for t in range(prompt, T):
                layer(q[..., t : t + 1, :], k[..., : t + 1, :], v[..., : t + 1, :])
    expected = rollout(layers(2, "causal"))
    stacked = [seen.stack(name) for name in ("first", "second")]
    near(rollout(stacked), expected, rtol=1e-9)
    for token in (0, prompt, T - 1):
        near(rollout(stacked, token=token), expected[:, token], rtol=1e-9)


def test_what_is_kept_in_main_memory_comes_back_layer_by_layer():
    layer = torch.nn.TransformerEncoderLayer(12, 3, 5, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    x, to, moves = torch.randn(B, T, 12), Block.to, []
    with mock.patch.object(Block, "to", lambda self, device: moves.append(device) or to(self, device)):
        with sl.watch(model, keep="cpu") as seen:
            model(x)
        assert moves == ["cpu", "cpu"]
        sights = [x for _, (x,) in seen.items()]
        expected = rollout(sights, token=2)
        away = [replace(x, kept=tuple(to(piece, "meta") for piece in x.kept)) for x in sights]
        back = dict(zip(away, sights, strict=True))
        with mock.patch.object(Block, "to", lambda self, device: _found(self, device, back)):
            near(rollout(away, token=2), expected)
            near(away[0].rows([3]), sights[0].rows([3]))


def _found(piece, device, back):
    """The piece that was sent away, where the statistics are."""
    assert device == torch.device("cpu")
    return next(sight.kept[0] for far, sight in back.items() if far.kept[0] is piece)


@pytest.mark.gpu
def test_rollout_of_what_is_kept_in_main_memory_on_a_gpu():
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    model = torch.nn.TransformerEncoderLayer(64, 2, 5, batch_first=True, device="cuda")
    x = torch.randn(1, 257, 64, device="cuda")
    rows = []
    for keep in (True, "cpu"):
        with torch.no_grad(), sl.watch(model, keep=keep) as seen:
            model(x)
        sight = seen["self_attn"]
        assert sight.kept[0].inputs.q.device.type == ("cpu" if keep == "cpu" else "cuda")
        rows.append(rollout([sight, sight], token=-1))
        assert rows[-1].device.type == "cuda"
    assert torch.equal(*rows)


@pytest.mark.bad_input
def test_where_to_keep():
    model = torch.nn.MultiheadAttention(12, 3)
    with pytest.raises(ValueError, match=r"keep must be True, False or \"cpu\", got array"):
        sl.watch(model, keep=np.zeros(3))
    with pytest.raises(ValueError, match=r"keep must be True, False or \"cpu\", got 'disk'"):
        sl.watch(model, keep="disk")
    with pytest.raises(ValueError, match=r"can't go with grad=True"):
        sl.watch(model, keep="cpu", grad=True)


@pytest.mark.bad_input
def test_what_does_not_flow():
    with pytest.raises(ValueError, match="at least one layer, got none"):
        rollout([])
    with pytest.raises(TypeError, match=r"got the name 'layers\.0'; give it \[seen"):
        rollout(["layers.0"])
    cross = sl.look(randn(T, 3), randn(5, 3), randn(5, 3))
    for flow in (rollout, received_flow):
        with pytest.raises(ValueError, match=r"T=7 and S=5 .*leave out cross-attention"):
            flow([cross])
        with pytest.raises(ValueError, match=r"residual is a share in \[0, 1\], got 1\.5"):
            flow(layers(1), residual=1.5)
    with pytest.raises(ValueError, match=r"a map of 7 x 7 .*keep=True"):
        rollout([x.forget() for x in layers(2)])
    with pytest.raises(ValueError, match="no received"):
        received_flow(layers(1, measure=sl.Look(received=False)))
