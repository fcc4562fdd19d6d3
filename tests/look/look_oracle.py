"""The truth about attention, from the whole matrix in float64, and masks drawn by loops."""

import math
from contextlib import contextmanager
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import sightline as sl
from sightline.look import stream, threads

INF = math.inf


def randn(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


@contextmanager
def tile_of(n):
    """Cut everything into tiles of about n pairs, for threads to share."""
    with (
        mock.patch.object(stream, "_TILE", {"cpu": n, "cuda": n}),
        mock.patch.object(threads, "_FEW", 0),
    ):
        yield


class _Sizes(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.sizes = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for x in tree_leaves(out):
            if isinstance(x, torch.Tensor):  # an expanded view has many elements and little storage
                self.sizes.append(
                    (min(x.numel(), x.untyped_storage().nbytes() // x.element_size()), str(func))
                )
        return out


@contextmanager
def sizes_created():
    with _Sizes() as mode:
        yield mode.sizes


# Masks: what is handed to sightline, and the same drawn pair by pair as a tensor to be added


def _drawn(lead, t, s, may_look):
    """0 where may_look(i, j), the distances counted from the start, else -inf."""
    one = [[0.0 if may_look(i, j) else -INF for j in range(s)] for i in range(t)]
    return torch.tensor(one, dtype=torch.float64).reshape(t, s).expand(*lead, t, s)


def _some(*shape, seed):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < 0.6


def _as_added(allowed):
    return torch.zeros(allowed.shape, dtype=torch.float64).masked_fill(~allowed, -INF)


def _nothing(lead, t, s):
    return None, torch.zeros(*lead, t, s, dtype=torch.float64)


def _causal(lead, t, s):
    return sl.masks.causal(), _drawn(lead, t, s, lambda i, j: j <= i + s - t)


def _causal_from_start(lead, t, s):
    return sl.masks.causal(align="start"), _drawn(lead, t, s, lambda i, j: j <= i)


def _window(lead, t, s):
    return sl.masks.window(2, 1), _drawn(lead, t, s, lambda i, j: -2 <= j - i - (s - t) <= 1)


def _window_from_start(lead, t, s):
    mask = sl.masks.window(1, None, align="start")
    return mask, _drawn(lead, t, s, lambda i, j: j - i >= -1)


def _both_ends(lead, t, s):
    mask = sl.masks.causal() & sl.masks.window(3, None, align="start")
    return mask, _drawn(lead, t, s, lambda i, j: j <= i + s - t and j >= i - 3)


def _padding(lead, t, s):
    lengths = [(3 * b + 1) % (s + 1) for b in range(lead[0])] if lead else (2 * s) // 3
    real = torch.tensor(lengths).reshape(*(lead[:1]), *(1,) * max(len(lead) - 1, 0), 1, 1)
    return sl.masks.padding(torch.tensor(lengths)), _as_added(torch.arange(s) < real).expand(*lead, t, s)


def _dense(lead, t, s):
    allowed = _some(t, s, seed=3)
    allowed[t // 2] = False
    return allowed, _as_added(allowed).expand(*lead, t, s)


def _dense_of_batch(lead, t, s):
    allowed = _some(*lead[:1], 1, s, seed=4)
    aligned = allowed.reshape(*lead[:1], *(1,) * max(len(lead) - 1, 0), 1, s)
    return sl.masks.dense(allowed), _as_added(aligned).expand(*lead, t, s)


def _dense_of_all(lead, t, s):
    allowed = _some(*lead, t, s, seed=5)
    return allowed, _as_added(allowed)


def _from_ones(lead, t, s):
    ones = _some(t, s, seed=6)
    return sl.masks.from_ones(ones.int()), _as_added(ones).expand(*lead, t, s)


def _bias(lead, t, s):
    added = randn(t, s, seed=7, dtype=torch.float32)
    return added, added.double().expand(*lead, t, s)


def _bias_of_heads(lead, t, s):
    added = randn(*lead[-1:], 1, s, seed=8, dtype=torch.float32)
    return sl.masks.bias(added[(None,) * (len(lead) - 1)]), added.double().expand(*lead, t, s)


def _bias_with_inf(lead, t, s):
    added = randn(t, s, seed=9, dtype=torch.float32).masked_fill(~_some(t, s, seed=10), -INF)
    added[0] = -INF
    return added, added.double().expand(*lead, t, s)


def _bias_with_huge(lead, t, s):
    """Hugging Face's stand-in for -inf; a row of it lets a query look at all alike."""
    added = torch.zeros(t, s).masked_fill(~_some(t, s, seed=11), torch.finfo(torch.float32).min)
    added[-1] = torch.finfo(torch.float32).min
    return added, added.double().expand(*lead, t, s)


def _causal_and_padding(lead, t, s):
    (a, added_a), (b, added_b) = _causal(lead, t, s), _padding(lead, t, s)
    return a & b, added_a + added_b


def _all_together(lead, t, s):
    (a, added_a), (b, added_b) = _window(lead, t, s), _padding(lead, t, s)
    (c, added_c), (d, added_d) = _dense_of_all(lead, t, s), _bias_of_heads(lead, t, s)
    return a & b & sl.masks.dense(c) & d, added_a + added_b + added_c + added_d


def _nobody(lead, t, s):
    return torch.zeros(t, s, dtype=torch.bool), torch.full((*lead, t, s), -INF, dtype=torch.float64)


MASKS = {
    f.__name__[1:]: f
    for f in (
        _nothing,
        _causal,
        _causal_from_start,
        _window,
        _window_from_start,
        _both_ends,
        _padding,
        _dense,
        _dense_of_batch,
        _dense_of_all,
        _from_ones,
        _bias,
        _bias_of_heads,
        _bias_with_inf,
        _bias_with_huge,
        _causal_and_padding,
        _all_together,
        _nobody,
    )
}


# Scores: the formula, in float64


def plain_scores(name, score, q, k):
    """What the score functions of the lecture notes say, pair by pair."""
    dot = "...td,...sd->...ts"
    if name in ("dot", "scaled_dot"):
        return torch.einsum(dot, q, k) * (q.size(-1) ** -0.5 if name == "scaled_dot" else 1.0)
    if name == "cosine":
        return torch.einsum(dot, q / q.norm(dim=-1, keepdim=True), k / k.norm(dim=-1, keepdim=True))
    p = {n: x.double() for n, x in score.named_parameters()}
    if name == "general":
        return torch.einsum("...td,de,...se->...ts", q, p["W"], k)
    if name == "low_rank":
        return torch.einsum("...td,rd,re,...se->...ts", q, p["U"], p["V"], k)
    hidden = (q @ p["V"].mT).unsqueeze(-2) + (k @ p["W"].mT).unsqueeze(-3)
    return hidden.tanh() @ p["v"]


def score_of(name, d, dtype=torch.float32):
    built = {
        "general": lambda: sl.scores.General(d, d),
        "low_rank": lambda: sl.scores.LowRank(d, d, 2),
        "additive": lambda: sl.scores.Additive(d, d, 5),
    }
    return built[name]().to(dtype) if name in built else name


SCORES = ("dot", "scaled_dot", "cosine", "general", "low_rank", "additive")


# The matrix and everything that can be asked of it


def matrix(q, k, added=None, *, scores=None, scale=None):
    """(weights, lse) from the whole matrix; a query with nothing to look at has zeros and -inf."""
    if q.dim() == k.dim() == 4 and q.size(1) != k.size(1):
        k = k.repeat_interleave(q.size(1) // k.size(1), 1)
    if scores is None:
        scores = torch.einsum("...td,...sd->...ts", q, k) * (q.size(-1) ** -0.5 if scale is None else scale)
    if added is not None:
        scores = scores + added
    empty = (scores == -INF).all(-1, keepdim=True)
    shown = scores.masked_fill(empty, 0.0)
    lse = shown.logsumexp(-1).masked_fill(empty[..., 0], -INF)
    return shown.softmax(-1).masked_fill(empty, 0.0), lse


def entropy(weights):
    return -torch.where(weights > 0, weights * weights.clamp(min=1e-300).log(), 0.0).sum(-1)


def picture(weights, rows, columns, queries=None, keys=None):
    """The mean weight in each cell; cell i of n begins at floor(i * length / n)."""
    (top, bottom), (left, right) = queries or (0, weights.size(-2)), keys or (0, weights.size(-1))
    window = weights[..., top:bottom, left:right]
    t, s = bottom - top, right - left
    cells = [
        window[..., t * i // rows : t * (i + 1) // rows, s * j // columns : s * (j + 1) // columns].mean(
            (-2, -1)
        )
        for i in range(rows)
        for j in range(columns)
    ]
    return torch.stack(cells, -1).unflatten(-1, (rows, columns))


def near(found, truth, rtol=1e-5, atol=1e-7):
    torch.testing.assert_close(found.double(), truth.double(), rtol=rtol, atol=atol, equal_nan=True)


def agrees(sight, weights, lse, *, rtol=1e-5, atol=2e-6):
    """Every statistic of a sight against the matrix."""
    t, s = weights.shape[-2:]
    near(sight.lse, lse, rtol, atol)
    near(sight.entropy, entropy(weights), rtol, atol)
    near(sight.received, weights.sum(-2), rtol, atol)
    agrees_at_peak(sight.peak, sight.peak_at, weights, rtol, atol)
    if not t or not s or not sight.kept:
        return
    rows, columns = min(t, 3), min(s, 5)
    near(sight.map((rows, columns)), picture(weights, rows, columns), rtol, atol)
    near(sight.map((t, s)), weights, rtol, atol)
    queries, keys = (t // 3, t), (0, s - s // 3)
    size = (queries[1] - queries[0], (keys[1] + 1) // 2)
    near(sight.map(size, queries=queries, keys=keys), picture(weights, *size, queries, keys), rtol, atol)
    near(sight.rows([t - 1, 0, -t]), weights[..., [t - 1, 0, 0], :], rtol, atol)
    k = min(s, 3)
    values, places = sight.top(k)
    near(values, weights.topk(k, dim=-1).values, rtol, atol)
    near(_at(weights, places), values, rtol, atol)


def agrees_at_peak(peak, peak_at, weights, rtol=1e-5, atol=2e-6):
    near(peak, weights.amax(-1), rtol, atol)
    assert peak_at.dtype == torch.long
    assert torch.equal(peak_at == -1, weights.sum(-1) == 0)
    near(_at(weights, peak_at.unsqueeze(-1)).squeeze(-1), weights.amax(-1), rtol, atol)


def _at(weights, places):
    return weights.take_along_dim(places.clamp(min=0), dim=-1).masked_fill(places < 0, 0.0)
