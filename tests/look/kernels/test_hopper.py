"""The Hopper kernel against the plain path in float64, at sizes that are no multiple of a tile."""

import pytest
import torch

from sightline.attention.masks import Mask, causal, window
from sightline.look.inputs import ScoreInputs, Tile
from sightline.look.kernels.request import Cells, StatsRequest
from tests.look.kernels import tiles
from tests.look.kernels.hopper_cases import MASKS, ON_HOPPER, pairs_of

pytestmark = ON_HOPPER


def check(pairs, stats_request):
    """Check it with as many programs to a walk as are best, with one as large inputs have, and with three."""
    from sightline.look.kernels import hopper
    from sightline.look.kernels.args import KernelArgs
    from sightline.look.kernels.hopper import launch

    assert hopper.supports(KernelArgs(pairs))
    right = tiles.measure(
        ScoreInputs(pairs.q.double(), pairs.k.double(), pairs.mask, pairs.scale), stats_request
    )
    check_against(right, pairs, stats_request)
    for n_walks in (1, 3):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(launch, "walks_of", lambda *sizes, n=n_walks: n)
            check_against(right, pairs, stats_request)


def check_against(right, pairs, stats_request):
    from sightline.look.kernels.measure import measure

    got, again = (measure(pairs, stats_request, right.lse.float()) for _ in range(2))
    for name in ("received", "entropy", "peak", "cells"):
        a, b = getattr(got, name), getattr(right, name)
        assert (a is None) == (b is None), name
        if b is not None:
            torch.testing.assert_close(
                a.to(b.dtype), b, rtol=1e-5, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}"
            )
            assert torch.equal(a, getattr(again, name)), name
    assert (got.peak_at is None) == (right.peak_at is None)
    if right.peak_at is not None:
        assert torch.equal(got.peak_at, again.peak_at)
        check_places(pairs, got.peak_at, right.peak_at)


def check_places(pairs, got, right):
    """Another key than in float64 only where their scores are the same to float32's rounding."""
    for b, h, t in (got != right).nonzero().tolist():
        keys = pairs.k[b, h * pairs.k.size(1) // pairs.q.size(1)].double()
        at = [int(x[b, h, t]) for x in (got, right)]
        assert min(at) >= 0, (b, h, t, at)
        scores = keys[at] @ pairs.q[b, h, t].double() * pairs.scale
        assert abs(scores[0] - scores[1]) < 1e-5, (b, h, t, at)


def everything(t, s, rows, columns):
    return StatsRequest(True, True, True, Cells(rows, columns, (0, t), (0, s)))


@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize(("t", "s"), [(521, 317), (307, 661)])
def test_every_mask(d, name, t, s):
    check(pairs_of((2, 4, t, s, d), MASKS[name](s), kv_heads=2), everything(t, s, 3, 4))


@pytest.mark.parametrize("cells", [(1, 1), (5, 5), (8, 8), (7, 3)])
@pytest.mark.parametrize(("t", "s"), [(512, 512), (577, 640), (704, 521)])
def test_rows_and_columns_that_end_anywhere(cells, t, s):
    for mask in (Mask(), causal()):
        check(pairs_of((1, 2, t, s, 64), mask), everything(t, s, *cells))


def test_more_rows_of_cells_than_wait_at_a_time():
    for mask in (Mask(), causal()):
        check(pairs_of((1, 2, 1301, 701, 64), mask), everything(1301, 701, 19, 5))
        check(pairs_of((1, 2, 1301, 704, 128), mask), everything(1301, 704, 19, 11))


def test_cells_that_nobody_may_look_at_are_zero():
    from sightline.look.kernels.measure import measure

    pairs = pairs_of((1, 2, 1301, 1301, 64), causal())
    exact = ScoreInputs(pairs.q.double(), pairs.k.double(), pairs.mask, pairs.scale)
    lse = tiles.measure(exact, StatsRequest(received=True)).lse.float()
    cells = measure(pairs, everything(1301, 1301, 19, 19), lse).cells
    assert torch.all(cells.triu(1) == 0)
    assert torch.all(cells >= 0)


@pytest.mark.parametrize("cells", [(64, 64), (61, 53), (5, 47), (300, 3)])
@pytest.mark.parametrize(("t", "s"), [(1024, 1024), (521, 331)])
def test_cells_smaller_than_a_tile(cells, t, s):
    for mask in (Mask(), causal(), window(101, 67)):
        check(pairs_of((1, 2, t, s, 128), mask), everything(t, s, *cells))


@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize("name", MASKS)
def test_rows_alone(d, name):
    t, s = 307, 661
    check(pairs_of((2, 4, t, s, d), MASKS[name](s), kv_heads=2), StatsRequest(entropy=True, peak=True))


@pytest.mark.parametrize(
    "stats_request",
    [
        StatsRequest(received=True),
        StatsRequest(entropy=True),
        StatsRequest(peak=True),
        StatsRequest(entropy=True, peak=True),
    ],
)
def test_only_what_was_asked(stats_request):
    check(pairs_of((1, 3, 131, 257, 128), causal(), dtype=torch.float16), stats_request)


@pytest.mark.parametrize(("t", "s"), [(1, 1), (1, 331), (331, 1), (63, 129), (2053, 2053)])
def test_any_size(t, s):
    check(pairs_of((1, 1, t, s, 128), causal()), StatsRequest(True, True, True))


def test_heads_beside_each_other_are_read_where_they_lie():
    together = torch.randn(2, 197, 3, 5, 64, device="cuda").bfloat16()  # (B, T, q k v, H, D)
    q, k = (together[:, :, i].transpose(1, 2) for i in range(2))
    assert not q.is_contiguous()
    check(ScoreInputs(q, k, causal().fitted((2, 5), 197, 197), 0.125), everything(197, 197, 3, 2))


@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize("name", MASKS)
def test_the_largest(d, name):
    for t, s in ((307, 661), (521, 317), (3, 5)):
        for top in (1, 3, 8):
            check_top(pairs_of((2, 4, t, s, d), MASKS[name](s), kv_heads=2), top)


def test_the_largest_of_equals():
    pairs = pairs_of((1, 2, 131, 521, 64), causal(align="start"))
    copies = torch.arange(521, device=pairs.k.device) % 7  # every key is there 74 times or more
    check_top(ScoreInputs(pairs.q, pairs.k[:, :, copies].contiguous(), pairs.mask, pairs.scale), 8)


def test_more_of_the_largest_than_it_keeps():
    check_top(pairs_of((1, 2, 131, 521, 64), Mask()), 17)


def check_top(pairs, top):
    from sightline.look.kernels.measure import measure

    weights, lse = weights_of(pairs)
    right = weights.topk(min(top, weights.size(3)), dim=3).values
    got, again = (measure(pairs, StatsRequest(top=top), lse) for _ in range(2))
    assert torch.equal(got.top, again.top)
    assert torch.equal(got.top_at, again.top_at)
    n = right.size(3)
    torch.testing.assert_close(got.top[..., :n].double(), right, rtol=1e-5, atol=1e-6)
    some = got.top_at >= 0
    assert torch.equal(some[..., :n], right > 0)
    assert not some[..., n:].any()
    found = weights.gather(3, got.top_at.clamp(min=0))
    torch.testing.assert_close(got.top.double(), found.where(some, 0.0), rtol=1e-5, atol=1e-6)
    places = got.top_at.masked_fill(~some, -1).sort(dim=3).values
    assert not ((places[..., 1:] == places[..., :-1]) & (places[..., 1:] >= 0)).any(), "a key twice"


def test_what_it_leaves_to_the_plain_kernel():
    from sightline.look.kernels import hopper
    from sightline.look.kernels.args import KernelArgs

    pairs = pairs_of((1, 1, 131, 131, 64), Mask())
    assert hopper.supports(KernelArgs(pairs))
    assert not hopper.supports(KernelArgs(pairs_of((1, 1, 131, 131, 96), Mask())))
    assert not hopper.supports(KernelArgs(pairs_of((1, 1, 131, 131, 64), Mask(), dtype=torch.float32)))


def weights_of(pairs):
    """The weights in float64, (B, H, T, S), and each query's lse."""
    b, h, t, s = pairs.shape
    wide = ScoreInputs(pairs.q.double(), pairs.k.double(), pairs.mask, pairs.scale)
    scores = wide.scores(Tile(slice(0, b), slice(0, h), (0, t), (0, s)))
    return scores.softmax(-1).nan_to_num(), tiles.measure(wide, StatsRequest()).lse.float()
