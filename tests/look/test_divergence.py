"""``sl.divergence`` against the whole matrices of both sides, in float64."""

import functools
import itertools
import math
import threading

import pytest
import torch
from torch import nn

import sightline as sl
from tests.oracle.check import near
from tests.oracle.dense import matrix
from tests.oracle.draw import qkv
from tests.oracle.masks import MASKS
from tests.oracle.sizes import sizes_created

KINDS = ("kl", "js", "tv", "cross_entropy")
SIDES = ("nothing", "causal", "dense", "padding")
PAIRS = list(itertools.product(SIDES, SIDES))
SAME, OTHER = ((2, 4), 2, 5), ((2, 3), None, 7)  # leading dimensions, heads of keys, width
B, H = 2, 4


def side(mask, t, s, *, form=SAME, dtype=torch.float64, roll=0, scale=1.0):
    """A sight, and its weights from the matrix."""
    lead, kv_heads, width = form
    q, k, v = qkv(lead, t, s, width, kv_heads=kv_heads, dtype=dtype)
    q = q.roll(roll, -1) * scale
    given, added = MASKS[mask](lead, t, s)
    return sl.look(q, k, v, given), matrix(q.double(), k.double(), added)[0]


def dense(p, q, kind, *, mean=True):
    """The divergence of two matrices of weights (B, H, T, S), as its formula says."""
    if mean:
        p, q = p.mean(1), q.mean(1)
    if kind == "tv":
        return (p - q).abs().sum(-1) / 2
    if kind == "js":
        m = (p + q) / 2
        return (relative(p, m) + relative(q, m)) / 2
    return relative(p, q) if kind == "kl" else -logs(p, q).sum(-1)


def relative(p, q):
    """Σ p log(p / q)."""
    return (logs(p, p) - logs(p, q)).sum(-1)


def logs(p, q):
    """Return p log q, zero where p is, in steps whose gradients are finite wherever it is."""
    none = p == 0
    found = p * q.masked_fill(none | (q == 0), 1.0).log()
    return found.masked_fill(~none & (q == 0), -math.inf)


@pytest.mark.parametrize("heads", ["mean", None])
@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_short(a, b, heads):
    x, p = side(a, 13, 11)
    y, q = side(b, 13, 11, roll=2)
    for kind in KINDS:
        found = sl.divergence(x, y, kind, heads=heads)
        assert found.shape == ((B, 13) if heads == "mean" else (B, H, 13))
        near(found, dense(p, q, kind, mean=heads == "mean"), 1e-9, 1e-9, kind)


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_other_heads_and_width(a, b):
    x, p = side(a, 13, 11)
    y, q = side(b, 13, 11, form=OTHER)
    for kind in KINDS:
        near(sl.divergence(x, y, kind), dense(p, q, kind), 1e-9, 1e-9, kind)
        near(sl.divergence(y, x, kind), dense(q, p, kind), 1e-9, 1e-9, kind)


@functools.cache
def long_side(mask, form):
    """A side of several tiles."""
    return side(mask, 521, 523, form=form, dtype=torch.float32)


@pytest.mark.parametrize("form", [SAME, OTHER], ids=["same", "other"])
@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_of_several_tiles(a, b, form):
    x, p = long_side(a, SAME)
    y, q = long_side(b, form)
    for kind in KINDS:
        near(sl.divergence(x, y, kind), dense(p, q, kind), 2e-5, 5e-6, kind)
    if form == SAME and a != b:
        near(sl.divergence(x, y, "js", heads=None), dense(p, q, "js", mean=False), 2e-5, 5e-6)


@pytest.mark.parametrize("mask", ["window", "both_ends", "bias_with_huge", "causal_and_padding", "nobody"])
def test_other_masks(mask):
    x, p = side(mask, 13, 11)
    y, q = side("causal", 13, 11, form=OTHER)
    for kind in KINDS:
        near(sl.divergence(x, y, kind), dense(p, q, kind), 1e-9, 1e-9, kind)
        near(sl.divergence(y, x, kind), dense(q, p, kind), 1e-9, 1e-9, kind)


def test_heads_that_share_keys_with_heads_that_do_not():
    """Tiles of three heads, of which two share their keys."""
    x, p = side("nothing", 241, 239, form=((2, 6), None, 5), dtype=torch.float32)
    y, q = side("nothing", 241, 239, form=((2, 6), 3, 7), dtype=torch.float32)
    near(sl.divergence(x, y, heads=None), dense(p, q, "kl", mean=False), 2e-5, 5e-6)
    near(sl.divergence(y, x), dense(q, p, "kl"), 2e-5, 5e-6)


def test_many_heads_against_few():
    x, p = side("causal", 13, 11, form=((2, 3), None, 3))
    y, q = side("nothing", 13, 11, form=((2, 12), 3, 5))
    for kind in KINDS:
        near(sl.divergence(x, y, kind), dense(p, q, kind), 1e-9, 1e-9, kind)
        near(sl.divergence(y, x, kind), dense(q, p, kind), 1e-9, 1e-9, kind)


@pytest.mark.parametrize("heads", ["mean", None])
def test_weights_below_the_least_float_are_not_zero(heads):
    x, p = side("nothing", 13, 11, dtype=torch.float32)
    y, q = side("nothing", 13, 11, dtype=torch.float32, scale=100.0)
    truth = dense(p, q, "kl", mean=heads == "mean")
    assert (q if heads is None else q.mean(1)).float().eq(0).any()
    assert truth.isfinite().all()
    near(sl.divergence(x, y, heads=heads), truth, 1e-5, 1e-5)


@pytest.mark.parametrize("t", [13, 521])
@pytest.mark.parametrize("wanted", ["both", "a", "b"])
@pytest.mark.parametrize(("a", "b"), [("nothing", "nothing"), ("causal", "padding"), ("dense", "causal")])
@pytest.mark.parametrize("heads", ["mean", None])
def test_gradients(a, b, wanted, heads, t):
    s, form = t - 2, SAME if heads is None else OTHER
    masks = [MASKS[m](x, t, s) for m, x in ((a, SAME[0]), (b, form[0]))]
    inputs = [qkv(x[0], t, s, x[2], kv_heads=x[1], dtype=torch.float64) for x in (SAME, form)]
    leaves = [
        x for (q, k, _), name in zip(inputs, "ab", strict=True) if wanted in {name, "both"} for x in (q, k)
    ]
    for x in leaves:
        x.requires_grad_()
    sights = [sl.look(*x, mask[0]) for x, mask in zip(inputs, masks, strict=True)]
    p, q = (matrix(x[0], x[1], mask[1])[0] for x, mask in zip(inputs, masks, strict=True))
    for kind in KINDS if t == 13 else ("js",):
        truth = dense(p, q, kind, mean=heads == "mean")
        is_finite = truth.isfinite()
        found = sl.divergence(*sights, kind, heads=heads)
        slopes = torch.autograd.grad(found[is_finite].square().sum(), leaves, retain_graph=True)
        true_slopes = torch.autograd.grad(truth[is_finite].square().sum(), leaves, retain_graph=True)
        for slope, true_slope in zip(slopes, true_slopes, strict=True):
            near(slope, true_slope, 1e-8, 1e-8, kind)


def test_gradients_are_finite_where_the_divergence_is_not():
    q, k, v = (x.requires_grad_() for x in qkv((2, 4), 13, 11, 5))
    found = sl.divergence(sl.look(q, k, v), sl.look(q, k, v, sl.masks.causal()))
    assert found.isinf().any()
    found.sum().backward()
    assert q.grad.isfinite().all()
    assert k.grad.isfinite().all()


def test_queries_without_keys():
    lead, t, s = (2, 4), 13, 11
    nobody = sl.look(*qkv(lead, t, s, 5), torch.zeros(t, s, dtype=torch.bool))
    everybody = sl.look(*qkv(lead, t, s, 5))
    for kind in KINDS:
        assert (sl.divergence(nobody, nobody, kind) == 0).all()
    assert sl.divergence(everybody, nobody).isposinf().all()
    assert (sl.divergence(nobody, everybody) == 0).all()
    near(sl.divergence(nobody, everybody, "tv"), torch.full((2, t), 0.5))
    near(sl.divergence(nobody, everybody, "js"), torch.full((2, t), math.log(2) / 2))


def test_a_query_with_nan_has_nan_and_the_others_do_not():
    q, k, v = qkv((2, 4), 13, 11, 5)
    clean = sl.look(q, k, v)
    q = q.clone()
    q[1, 2, 3] = math.nan
    for kind, flip in itertools.product(KINDS, (False, True)):
        pair = (sl.look(q, k, v), clean)
        expected = torch.zeros(2, 13, dtype=torch.bool)
        expected[1, 3] = True
        assert sl.divergence(*(pair[::-1] if flip else pair), kind).isnan().equal(expected), kind


def test_padding_of_either_side():
    layer = nn.MultiheadAttention(12, 4, batch_first=True).double()
    x = torch.randn(2, 7, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    is_padding = torch.tensor([[False] * 7, [False] * 5 + [True] * 2])
    sights = []
    for hidden in (None, is_padding):
        with torch.no_grad(), sl.watch(layer, keep=True) as seen:
            layer(x, x, x, key_padding_mask=hidden)
        sights.append(seen[0])
    whole, padded = sights
    p, q = (x.rows(range(7)).nan_to_num() for x in (whole, padded))
    for kind in KINDS:
        for x, y, truth in ((whole, padded, dense(p, q, kind)), (padded, whole, dense(q, p, kind))):
            near(sl.divergence(x, y, kind), truth.masked_fill(is_padding, math.nan), 1e-8, 1e-8, kind)
    by_head = sl.divergence(padded, whole, "tv", heads=None)
    assert by_head.isnan().equal(is_padding[:, None].expand(2, 4, 7))


def test_weights_of_a_model_that_computes_them_itself():
    layer = nn.MultiheadAttention(12, 4, batch_first=True)
    x = torch.randn(2, 7, 12, generator=torch.Generator().manual_seed(0))
    with torch.no_grad(), sl.watch(layer, keep=True) as seen:
        _, weights = layer(x, x, x, average_attn_weights=False)
    other, q = side("causal", 7, 7, dtype=torch.float32)
    near(sl.divergence(other, seen[0], heads=None), dense(q, weights.double(), "kl", mean=False), 1e-5, 1e-6)
    near(sl.divergence(seen[0], other, "js"), dense(weights.double(), q, "js"), 1e-5, 1e-6)


def test_parts_of_a_sight_and_dimensions_of_its_own():
    q, k, v = qkv((2, 3, 4), 13, 11, 5)
    x, y = sl.look(q, k, v), sl.look(q, k, v, sl.masks.window(3, 1))
    whole, by_head = sl.divergence(y, x), sl.divergence(y, x, heads=None)
    assert whole.shape == (2, 3, 13)
    assert by_head.shape == (2, 3, 4, 13)
    assert sl.divergence(y[0, 1], x[0, 1]).shape == (13,)
    near(sl.divergence(y[0, 1], x[0, 1]), whole[0, 1])
    near(sl.divergence(y[0, 1, 2], x[0, 1, 2]), by_head[0, 1, 2])
    one = sl.look(q[0, 0, 0], k[0, 0, 0], v[0, 0, 0])
    assert sl.divergence(one, one).shape == (13,)


class Noting(sl.scores.Score):
    """A score of one's own, which notes the thread that it is called from."""

    def __init__(self):
        super().__init__()
        self.threads = set()

    def forward(self, q, k):
        """Return products."""
        self.threads.add(threading.get_ident())
        return q @ k.mT


def test_threads():
    """Several give the bits of one; a score of one's own is called from the caller's alone."""
    own, (q, k, v) = Noting(), qkv((2, 4), 521, 523, 5)
    x, y, z = sl.look(q, k, v), sl.look(q, k, v, sl.masks.causal()), sl.look(q, k, v, score=own)
    one = [sl.divergence(a, b, "js") for a, b in ((x, y), (x, z))]
    own.threads.clear()
    torch.set_num_threads(3)
    for expected, (a, b) in zip(one, ((x, y), (x, z)), strict=True):
        assert sl.divergence(a, b, "js").equal(expected)
    assert own.threads == {threading.get_ident()}


@pytest.mark.parametrize("grad", [False, True])
def test_memory(grad):
    t, s = 2503, 2539
    q, k, v = (x.requires_grad_(grad) for x in qkv((1, 2), t, s, 5))
    x, y = sl.look(q, k, v, sl.masks.causal()), sl.look(q[..., :3], k[..., :3], v)
    with sizes_created() as sizes:
        for kind in ("kl", "js"):
            found = sl.divergence(x, y, kind)
            if grad:
                found[:, -7:].sum().backward(retain_graph=True)
    assert max(sizes)[0] < t * s / 2
