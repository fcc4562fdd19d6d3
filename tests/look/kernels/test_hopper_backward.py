"""Gradients by the Hopper kernel against the plain path in float64, at sizes that no tile divides."""

import pytest
import torch

from sightline.attention.masks import Mask, causal, padding, window
from sightline.look import stream
from sightline.look.inputs import ScoreInputs
from sightline.look.stream import StatsRequest
from tests.look.kernels.hopper_cases import MASKS, ON_HOPPER, pairs_of

pytestmark = ON_HOPPER


def gradients(measure, pairs, names):
    """Of a random sum of what was seen, with respect to q and k."""
    leaves = [x.detach().requires_grad_() for x in (pairs.q, pairs.k)]
    stats = measure(ScoreInputs(*leaves, pairs.mask, pairs.scale), StatsRequest(True, True, True))
    total = torch.zeros((), device="cuda")
    for name in names:
        x = getattr(stats, name)
        generator = torch.Generator().manual_seed(x.size(-1))
        g = torch.randn(x.shape, generator=generator).to("cuda", x.dtype)
        total = total + torch.where(x.isfinite(), x * g, 0).sum()
    return torch.autograd.grad(total, leaves)


def check(pairs, names):
    from sightline.look.kernels import hopper
    from sightline.look.kernels.differentiable import measure
    from sightline.look.kernels.measure import KernelArgs

    assert hopper.supports(KernelArgs(pairs))
    wide = ScoreInputs(pairs.q.double(), pairs.k.double(), pairs.mask, pairs.scale)
    right = gradients(stream.measure, wide, names)
    got, again = (gradients(measure, pairs, names) for _ in range(2))
    eps = torch.finfo(pairs.q.dtype).eps
    for x, y, expected in zip(got, again, right, strict=True):
        assert torch.equal(x, y)
        assert x.dtype == pairs.q.dtype
        assert (x.double() - expected).norm() <= eps * expected.norm() + 1e-6


@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize(("t", "s"), [(521, 317), (307, 661)])
def test_every_mask(d, name, t, s):
    check(pairs_of((2, 4, t, s, d), MASKS[name](s), kv_heads=2), ("lse", "received", "entropy"))


@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize("names", [("lse",), ("received",), ("entropy",), ("peak",), ("received", "peak")])
def test_each_alone(d, names):
    for mask in (Mask(), causal()):
        check(pairs_of((1, 3, 419, 523, d), mask), names)


@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize(("t", "s"), [(1, 1), (1, 331), (331, 1), (5, 7), (63, 129), (191, 65), (1031, 1031)])
def test_any_size(d, t, s):
    for mask in (Mask(), causal(), window(19, 2)):
        check(pairs_of((1, 2, t, s, d), mask), ("received", "lse"))


def test_other_numbers():
    check(pairs_of((1, 3, 131, 257, 128), causal(), dtype=torch.float16), ("received", "entropy"))


def test_heads_beside_each_other_are_read_where_they_lie():
    together = torch.randn(2, 197, 3, 5, 64, device="cuda").bfloat16()  # (B, T, q k v, H, D)
    q, k = (together[:, :, i].transpose(1, 2) for i in range(2))
    assert not q.is_contiguous()
    check(ScoreInputs(q, k, causal().fitted((2, 5), 197, 197), 0.125), ("received",))


def test_a_key_that_nobody_may_look_at_has_no_gradient():
    pairs = pairs_of((1, 2, 131, 257, 64), padding(torch.tensor([97], device="cuda")))
    from sightline.look.kernels.differentiable import measure

    grad_k = gradients(measure, pairs, ("received", "entropy"))[1]
    assert not grad_k[:, :, 97:].any()
    assert grad_k[:, :, :97].any(-1).all()


@pytest.mark.parametrize("name", ["none", "causal", "window and padding"])
def test_sums_and_gradients_are_as_exact_as_those_of_the_plain_kernels(name):
    from sightline.look.inputs import Tile
    from sightline.look.kernels.differentiable import _PlainPasses
    from sightline.look.kernels.hopper.launch_backward import BackwardPasses
    from sightline.look.kernels.measure import KernelArgs

    b, h, t, s, d = shape = 2, 2, 389, 523, 128
    pairs = pairs_of(shape, MASKS[name](s))
    wide = ScoreInputs(pairs.q.double(), pairs.k.double(), pairs.mask, pairs.scale)
    scores = wide.scores(Tile(slice(0, b), slice(0, h), (0, t), (0, s)))
    lse = scores.logsumexp(-1)
    weights = scores.softmax(-1).nan_to_num()
    generator = torch.Generator().manual_seed(d)
    slope, g_entropy, g_received = (torch.randn(b, h, n, generator=generator).to("cuda") for n in (t, t, s))
    logs = torch.where(weights > 0, weights.log(), 0.0)
    inner = slope[..., None].double() + g_received[:, :, None].double() - g_entropy[..., None].double() * logs
    d_scores = weights * inner * pairs.scale
    right = (
        (weights * g_received[:, :, None].double()).sum(-1),
        d_scores @ wide.k,
        d_scores.mT @ wide.q,
    )
    errors = []
    for kind in (BackwardPasses, _PlainPasses):
        passes = kind(KernelArgs(pairs), lse.float(), g_received)
        outs = [torch.full_like(x, torch.nan, dtype=torch.float32) for x in right]
        passes.weighted_sums(outs[0])
        passes.by_query(slope, g_entropy, outs[1])
        passes.by_key(slope, g_entropy, outs[2])
        errors.append([float((x.double() - y).norm() / y.norm()) for x, y in zip(outs, right, strict=True)])
    for ours, plain in zip(*errors, strict=True):
        assert ours <= 1.2 * plain + 1e-7, errors
