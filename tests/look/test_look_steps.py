"""The steps of a decoding loop, stacked, are the causal whole."""

import pytest
import torch

import sightline as sl
from sightline.look.steps import stack
from tests.look.look_oracle import MASKS, agrees, matrix, near, randn, tile_of

LEAD, N = (2, 6), 11


def steps_of(starts, kv_heads=2, **options):
    """Attend to the first, then to each further piece, with a growing cache."""
    q, k, v = randn(*LEAD, N, 3, seed=1), *(randn(2, kv_heads, N, 3, seed=n) for n in (2, 3))
    ends = [*starts[1:], N]
    sights = [
        sl.look(q[..., a:b, :], k[..., :b, :], v[..., :b, :], sl.masks.causal(), **options)
        for a, b in zip(starts, ends, strict=True)
    ]
    return (
        sights,
        matrix(q, k, MASKS["causal"](LEAD, N, N)[1]),
        sl.look(q, k, v, sl.masks.causal(), **options),
    )


@pytest.mark.combinations
@pytest.mark.parametrize("starts", [[0], range(N), [0, 5, 6, 7, 8, 9, 10], [0, 3, 7]], ids=str)
@pytest.mark.parametrize("tile", [13, 1 << 19])
def test_steps_stacked_are_the_causal_whole(starts, tile):
    with tile_of(tile):
        sights, (weights, lse), whole = steps_of(list(starts))
        stacked = stack(sights)
        assert (stacked.t, stacked.s, stacked.lead) == (N, N, LEAD)
        agrees(stacked, weights, lse, rtol=1e-9, atol=1e-10)
        near(stacked.output, whole.output)
        near(
            stacked.map((4, 3), queries=(2, 9), keys=(1, 10)), whole.map((4, 3), queries=(2, 9), keys=(1, 10))
        )
        agrees(stacked[1, 2:4], weights[1, 2:4], lse[1, 2:4], rtol=1e-9, atol=1e-10)
        near(stacked.mean_heads().map((N, N)), weights.mean(1))


def test_measured_tops_of_different_widths():
    sights, (weights, _), _ = steps_of([0, 5, 6], measure=sl.Look(top=3, map=1))
    stacked = stack([x.forget() for x in sights])
    values, places = stacked.top(3)
    near(values, weights[..., :N, :].topk(3).values)
    assert (places[..., 0, 1:] == -1).all()
    assert "map" not in stacked.statistics


def test_only_what_all_have_is_stacked():
    sights, _, _ = steps_of([0, 5, 8])
    without = stack([sights[0], sights[1].forget(), sights[2]])
    assert without.kept == ()
    assert "received" in without.statistics


@pytest.mark.bad_input
def test_what_can_not_be_stacked():
    sights, _, _ = steps_of([0, 5])
    with pytest.raises(ValueError, match="nothing to stack"):
        stack([])
    with pytest.raises(ValueError, match=r"stacked, got \(2, 6\) and \(6,\)"):
        stack([sights[0], sights[1][0]])
    with pytest.raises(ValueError, match=r"stacked, got \(2, 6\) and \(2, 6\) averaged"):
        stack([sights[0], sights[1].mean_heads()])


def test_a_decoding_loop_of_our_own_is_seen_step_by_step():
    class Step(torch.nn.Module):
        def forward(self, q, k, v):
            return sl.attention(q, k, v, sl.masks.causal())

    q, k, v = (randn(2, 3, N, 5, seed=n, dtype=torch.float32) for n in (1, 2, 3))
    model = Step()
    with torch.inference_mode(), sl.watch(model, keep=True) as seen:
        for b in range(1, N + 1):
            model(q[..., b - 1 : b, :], k[..., :b, :], v[..., :b, :])
    assert [(x.t, x.s) for x in seen.calls("")] == [(1, b) for b in range(1, N + 1)]
    stacked = seen.stack("")
    agrees(stacked, *matrix(q.double(), k.double(), MASKS["causal"]((2, 3), N, N)[1]))
    per_step = [x.kept_nbytes for x in seen.calls("")]
    assert per_step[-1] <= 2 * 3 * (N + 1) * 4 + 64  # a row of weights, not the keys
