"""The kernels against the plain path in float64, at sizes that are no multiple of a block."""

import warnings
from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sightline.attention.masks import Mask, bias, causal, dense, padding, window
from sightline.look.inputs import ScoreInputs
from sightline.look.kernels.request import Cells, StatsRequest
from tests.look.kernels import tiles

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, on inf - inf in the interpreter

NUMBERS = ("lse", "received", "entropy", "peak", "cells", "top")
PLACES = ("peak_at", "top_at")


def pairs_of(device, dtype, shape, mask, *, kv_heads=None, seed=0):
    b, h, t, s, d = shape
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(b, h, t, d, generator=generator).to(device, dtype)
    k = torch.randn(b, kv_heads or h, s, d, generator=generator).to(device, dtype)
    return ScoreInputs(q, k, mask.fitted((b, h), t, s), d**-0.5)


def exact(pairs, stats_request):
    mask = pairs.mask
    mask = Mask(mask.bands, mask.lengths, mask.allowed, tuple(x.double() for x in mask.added))
    inputs = ScoreInputs(pairs.q.double(), pairs.k.double(), mask, pairs.scale, padding=pairs.padding)
    return tiles.measure(inputs, stats_request)


def measured(pairs, stats_request, lse):
    from sightline.look.kernels.measure import measure

    return measure(pairs, stats_request, lse)


def check(pairs, stats_request, *, lse_given=True):
    right = exact(pairs, stats_request)
    got = measured(pairs, stats_request, right.lse.float() if lse_given else None)
    for name in NUMBERS:
        a, b = getattr(got, name), getattr(right, name)
        if b is not None:
            torch.testing.assert_close(a.double(), b, rtol=1e-5, atol=2e-6, msg=lambda m, n=name: f"{n}: {m}")
    for name in PLACES:
        a, b = getattr(got, name), getattr(right, name)
        if b is not None:
            assert torch.equal(a, b), name
    for name in (*NUMBERS, *PLACES):
        assert (getattr(got, name) is None) == (getattr(right, name) is None), name


def everything(t, s, rows=2, columns=3, top=3):
    return StatsRequest(True, True, True, Cells(rows, columns, (0, t), (0, s)), top)


def masks(device, b, h, t, s):
    generator = torch.Generator().manual_seed(7)
    some = torch.rand(b, h, t, s, generator=generator) > 0.4
    some[0, 0, 3] = False  # a query that looks at nothing
    tilt = torch.randn(1, h, t, s, generator=generator)
    return {
        "none": Mask(),
        "causal": causal(),
        "causal from the start": causal(align="start"),
        "window": window(11, 5),
        "padding": padding(torch.tensor([s, 13][:b], device=device)),
        "window and padding": window(29, 3) & padding(torch.tensor([s - 1, 17][:b], device=device)),
        "dense": dense(some.to(device)),
        "broadcast": dense(some[:, :1, :1].to(device)),
        "bias": bias(tilt.to(device)),
        "bias that forbids": bias(tilt.masked_fill(~some[:1], -torch.inf).to(device)),
        "huge": bias(torch.full((t, s), torch.finfo(torch.float32).min, device=device).triu(1)),
    }


# The interpreter's time is by items times heads: so many of them as a mask tells apart, and all with some.
SIZES = {"padding": (2, 1), "window and padding": (2, 1), "bias": (1, 2), "bias that forbids": (1, 2)}
SIZES |= {"dense": (2, 2), "broadcast": (2, 2)}


def items_and_heads(name):
    return (2, 2) if torch.cuda.is_available() else SIZES.get(name, (1, 1))


@pytest.mark.parametrize("name", masks(torch.device("cpu"), 2, 2, 5, 7))
def test_every_mask(device, name):
    b, h, t, s = *items_and_heads(name), 67, 71
    mask = masks(device, b, h, t, s)[name]
    check(pairs_of(device, torch.float32, (b, h, t, s, 17), mask), everything(t, s), lse_given=False)


@pytest.mark.parametrize("name", ["causal", "dense", "bias that forbids"])
def test_masks_where_the_lse_is_known(device, name):
    b, h, t, s = *items_and_heads(name), 67, 71
    mask = masks(device, b, h, t, s)[name]
    check(pairs_of(device, torch.float32, (b, h, t, s, 17), mask), everything(t, s))


@pytest.mark.parametrize("d", [16, 23, 64, 129])
def test_every_width_in_half_precision(device, half, d):
    check(pairs_of(device, half, (1, 2, 37, 131, d), causal(), kv_heads=1), everything(37, 131))


def test_more_queries_than_keys(device, half):
    check(pairs_of(device, half, (1, 1, 131, 41, 16), causal()), everything(131, 41))


def test_one_query(device, half):
    check(pairs_of(device, half, (2, 2, 1, 83, 16), Mask()), everything(1, 83, rows=1))


def test_strided_inputs_are_read_where_they_lie(device, half):
    generator = torch.Generator().manual_seed(0)
    together = torch.randn(2, 37, 3, 16, generator=generator).to(device, half)  # (B, T, H, D)
    q, k = together.transpose(1, 2), together.transpose(1, 2).flip(3)[..., ::2].repeat(1, 1, 1, 2)
    pairs = ScoreInputs(q, k.transpose(2, 3).contiguous().transpose(2, 3), Mask(), 0.25)
    assert not pairs.q.is_contiguous()
    assert pairs.k.stride(3) != 1
    check(pairs, everything(37, 37))


@pytest.mark.parametrize("cells", [(1, 1), (4, 2), (7, 10), (64, 64)])
def test_maps_of_any_size(device, half, cells):
    t, s = 131, 173
    stats_request = StatsRequest(cells=Cells(*cells, (0, t), (0, s)))
    for mask in (Mask(), causal(), window(31, 7)):
        check(pairs_of(device, half, (1, 1, t, s, 16), mask), stats_request)


@pytest.mark.parametrize("top", [1, 2, 5, 8])
def test_the_largest(device, half, top):
    for mask in (Mask(), causal()):
        check(pairs_of(device, half, (1, 1, 37, 97, 16), mask), StatsRequest(top=top))


def test_the_largest_in_groups_as_hopper_has_them(device, half, monkeypatch):
    """What its kernel finds is put there by hand, for it runs on a GPU of that kind alone."""
    from sightline.look.kernels import hopper

    launch = pytest.importorskip(
        "sightline.look.kernels.hopper.launch", reason="no Triton with Gluon", exc_type=ImportError
    )
    keys = torch.arange(112)
    group = keys // 16 * 4 + keys % 8 // 2  # 4 keys of a thread: 2 of each 8

    def best_groups(args, groups):
        scores = torch.full((args.b, args.h, args.t, 112), -torch.inf)
        scores[..., : args.s] = (args.q.float() @ args.k.float().mT).cpu()
        maxima = torch.full((*scores.shape[:3], 28), -torch.inf)
        maxima.scatter_reduce_(3, group.expand(scores.shape), scores, "amax")
        groups.copy_(maxima.topk(groups.size(3), dim=3).indices)

    monkeypatch.setattr(hopper, "supports", lambda args: True)
    monkeypatch.setattr(launch, "launch_top", best_groups)
    pairs = pairs_of(device, half, (1, 2, 37, 97, 16), Mask())
    check(pairs, StatsRequest(top=5))
    check(replace(pairs, scale=-pairs.scale), StatsRequest(top=5))  # turned around: the plain kernel


@pytest.mark.parametrize(
    "stats_request",
    [
        StatsRequest(received=True),
        StatsRequest(entropy=True),
        StatsRequest(peak=True),
        StatsRequest(entropy=True, peak=True),
        StatsRequest(),
    ],
)
@pytest.mark.parametrize("lse_given", [True, False])
def test_only_what_was_asked(device, stats_request, lse_given):
    check(pairs_of(device, torch.float32, (1, 1, 19, 23, 16), Mask()), stats_request, lse_given=lse_given)


def test_twice_the_same_to_the_bit(device, half):
    pairs, stats_request = pairs_of(device, half, (1, 2, 67, 131, 16), causal()), everything(67, 131)
    lse = exact(pairs, stats_request).lse.float()
    first, second = (measured(pairs, stats_request, lse) for _ in range(2))
    for a, b in zip(first, second, strict=True):
        assert torch.equal(a, b)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    t=st.integers(1, 70),
    s=st.integers(1, 90),
    left=st.none() | st.integers(0, 40),
    right=st.none() | st.integers(0, 40),
    align=st.sampled_from(["start", "end"]),
)
def test_any_band_at_any_size(device, t, s, left, right, align):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        mask = window(left, right, align=align)
        stats_request = StatsRequest(True, True, True, Cells(1, 1, (0, t), (0, s)), min(2, s))
        check(pairs_of(device, torch.float32, (1, 1, t, s, 16), mask, seed=t * s), stats_request)


ALL = ("lse", "received", "entropy", "peak")
# Each alone takes a way of its own, which no mask changes: with the interpreter two masks tell.
GRADIENTS = [
    *(("none", (name,)) for name in ALL[1:]),
    *(("window and padding", (name,)) for name in ALL[1:]),
    *((mask, ALL) for mask in ("none", "causal", "window and padding", "dense", "bias")),
]
if torch.cuda.is_available():
    GRADIENTS += [(mask, (name,)) for mask in ("causal", "dense", "bias") for name in ALL[1:]]


@pytest.mark.parametrize(("name", "names"), GRADIENTS)
def test_gradients(device, name, names):
    from sightline.look.kernels.differentiable import measure

    b, h, t, s, d = 2, 2, 19, 37, 17
    mask = masks(device, b, h, t, s)[name]
    pairs = pairs_of(device, torch.float32, (b, h, t, s, d), mask, kv_heads=1)
    leaves = [x.clone().requires_grad_() for x in (pairs.q, pairs.k)]
    doubles = [x.double().requires_grad_() for x in (pairs.q, pairs.k)]
    added = tuple(x.double() for x in pairs.mask.added)
    wide = Mask(pairs.mask.bands, pairs.mask.lengths, pairs.mask.allowed, added)
    stats_request = StatsRequest(True, True, True)
    got = measure(ScoreInputs(*leaves, pairs.mask, pairs.scale), stats_request)
    right = tiles.measure(ScoreInputs(*doubles, wide, pairs.scale), stats_request)
    generator = torch.Generator().manual_seed(1)
    for found in (got, right):
        total = 0
        generator.manual_seed(1)
        for each in names:
            x = getattr(found, each)
            g = torch.randn(x.shape, generator=generator).to(device, x.dtype)
            total = total + torch.where(x.isfinite(), x * g, 0).sum()
        total.backward()
    for ours, theirs in zip(leaves, doubles, strict=True):
        torch.testing.assert_close(ours.grad.double(), theirs.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("kv_heads", "name"), [(3, "received"), (1, "received"), (3, "peak")])
def test_gradients_in_half_precision_are_rounded_once(device, half, kv_heads, name):
    from sightline.look.kernels.differentiable import measure

    pairs = pairs_of(device, half, (1, 3, 37, 53, 16), causal(), kv_heads=kv_heads)
    grads = []
    for dtype, measure_ in ((half, measure), (torch.float64, tiles.measure)):
        leaves = [x.to(dtype, copy=True).requires_grad_() for x in (pairs.q, pairs.k)]
        found = getattr(
            measure_(ScoreInputs(*leaves, pairs.mask, pairs.scale), StatsRequest(True, True, True)), name
        )
        (found * torch.arange(found.size(-1), device=device)).sum().backward()
        grads.append([x.grad for x in leaves])
    for ours, theirs in zip(*grads, strict=True):
        assert ours.dtype == half
        assert (ours.double() - theirs).norm() < 2 * torch.finfo(half).eps * theirs.norm()


@pytest.mark.parametrize(("name", "passes"), [("received", 2), ("entropy", 1), ("lse", 1), ("peak", 1)])
def test_a_loss_pays_for_what_it_asks_alone(device, monkeypatch, name, passes):
    from sightline.look.kernels import differentiable

    asked = []
    by_query = differentiable._run_by_query

    def counted(given, lse, slope, g_entropy, g_received, out, *, gradient):
        asked.append((g_entropy is not None, g_received is not None))
        by_query(given, lse, slope, g_entropy, g_received, out, gradient=gradient)

    monkeypatch.setattr(differentiable, "_run_by_query", counted)
    pairs = pairs_of(device, torch.float32, (1, 1, 5, 7, 16), Mask())
    leaves = [x.requires_grad_() for x in (pairs.q, pairs.k)]
    found = differentiable.measure(
        ScoreInputs(*leaves, pairs.mask, pairs.scale), StatsRequest(True, True, True)
    )
    getattr(found, name).sum().backward()
    assert asked == [(name == "entropy", name == "received")] * passes


@pytest.mark.parametrize("mask", [Mask(), causal(), window(3, 0), causal(align="start")])
@pytest.mark.parametrize(("t", "s"), [(5, 7), (7, 5), (7, 7)])
def test_a_band_knows_whether_a_query_may_be_left_with_nothing(mask, t, s):
    pairs = pairs_of(torch.device("cpu"), torch.float32, (1, 1, t, s, 16), mask)
    assert pairs.may_have_empty_rows() == (not mask.dense(t, s).any(-1).all())


@pytest.mark.parametrize("n", [1, 2, 3, 16, 17, 127, 128, 129])
def test_sizes_are_counted_as_triton_counts_them(device, n):
    import triton

    from sightline.look.kernels.shapes import blocks_of, power_of_two

    assert power_of_two(n) == triton.next_power_of_2(n)
    assert blocks_of(n, 16) == triton.cdiv(n, 16)


def test_the_kernels_are_chosen_on_a_gpu_and_nowhere_else():
    from sightline.look import kernels

    pairs = pairs_of(torch.device("cpu"), torch.float32, (1, 1, 5, 7, 16), Mask())
    assert not kernels.supports(pairs, StatsRequest(received=True))
    if torch.cuda.is_available():
        there = pairs_of(torch.device("cuda"), torch.float32, (1, 1, 5, 7, 16), Mask())
        assert kernels.supports(there, StatsRequest(received=True))
        assert not kernels.supports(there, StatsRequest(top=33))


@pytest.mark.combinations
@pytest.mark.parametrize("lse_given", [True, False])
@pytest.mark.parametrize("biased", [True, False])
def test_queries_that_are_padding_look_at_nothing(device, lse_given, biased):
    mask = Mask(added=(torch.randn(2, 1, 19, 23, device=device),)) if biased else Mask()
    pairs = pairs_of(device, torch.float32, (2, 3, 19, 23, 16), mask)
    padding = (torch.arange(19, device=device) >= torch.tensor([[5], [19]], device=device)).unsqueeze(1)
    pairs = replace(pairs, padding=padding)
    check(pairs, everything(19, 23), lse_given=lse_given)


def test_what_programs_have_added_up_for_the_same_keys_is_put_together(device):
    from sightline.look.kernels import measure as kernels

    b, h, t, s = 2, 3, 5, 1031
    q, k = torch.randn(b, h, t, 16, device=device), torch.randn(b, h, s, 16, device=device)
    args = kernels.KernelArgs(ScoreInputs(q, k, Mask().fitted((b, h), t, s), 0.25))
    parts = torch.randn(7, b * h, s, device=device)
    parts[3, 4, 1029] = torch.nan  # stays one, and alone
    got = kernels._finish(args, kernels._PassResult(received_parts=parts), None, None).received
    torch.testing.assert_close(got, parts.sum(0).view(b, h, s), equal_nan=True)
    assert got.isnan().sum() == 1


def test_the_gradient_of_a_peak_of_nobody(device):
    from sightline.look.kernels.differentiable import measure

    q, k = torch.randn(0, 2, 5, 7, device=device), torch.randn(0, 2, 11, 7, device=device)
    leaves = [x.requires_grad_() for x in (q, k)]
    seen = measure(ScoreInputs(q, k, Mask().fitted((0, 2), 5, 11), 0.25), StatsRequest(peak=True))
    assert [x.shape for x in torch.autograd.grad(seen.peak.sum(), leaves)] == [q.shape, k.shape]
