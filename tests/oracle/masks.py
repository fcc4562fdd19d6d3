"""Masks as users write them, and the same drawn pair by pair as a float64 tensor to be added."""

import functools
import math

import torch

import sightline as sl
from tests.oracle.draw import randn

INF = math.inf


@functools.lru_cache(64)
def _pairs(t, s, may_look):
    one = [[0.0 if may_look(i, j, s - t) else -INF for j in range(s)] for i in range(t)]
    return torch.tensor(one, dtype=torch.float64).reshape(t, s)


def drawn(lead, t, s, may_look):
    """0 where may_look(i, j, s - t), the positions counted from the start, else -inf."""
    return _pairs(t, s, may_look).expand(*lead, t, s)


def some(*shape, seed):
    """True at about six of ten places."""
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < 0.6


def as_added(allowed):
    """0 where a boolean tensor is True, else -inf."""
    return torch.zeros(allowed.shape, dtype=torch.float64).masked_fill(~allowed, -INF)


# By position


def _is_causal(i, j, ahead):
    return j <= i + ahead


def _is_causal_from_start(i, j, _):
    return j <= i


def _is_near(i, j, ahead):
    return -2 <= j - i - ahead <= 1


def _is_near_from_start(i, j, _):
    return j - i >= -1


def _is_between(i, j, ahead):
    return j <= i + ahead and j >= i - 3


def _nothing(lead, t, s):
    return None, torch.zeros(*lead, t, s, dtype=torch.float64)


def _causal(lead, t, s):
    return sl.masks.causal(), drawn(lead, t, s, _is_causal)


def _causal_from_start(lead, t, s):
    return sl.masks.causal(align="start"), drawn(lead, t, s, _is_causal_from_start)


def _window(lead, t, s):
    return sl.masks.window(2, 1), drawn(lead, t, s, _is_near)


def _window_from_start(lead, t, s):
    return sl.masks.window(1, None, align="start"), drawn(lead, t, s, _is_near_from_start)


def _both_ends(lead, t, s):
    mask = sl.masks.causal() & sl.masks.window(3, None, align="start")
    return mask, drawn(lead, t, s, _is_between)


# By lengths and by tensors


def _padding(lead, t, s):
    lengths = [(7 * s * (b + 1) // 11) % (s + 1) for b in range(lead[0])] if lead else (2 * s) // 3
    real = torch.tensor(lengths).reshape(*(lead[:1]), *(1,) * max(len(lead) - 1, 0), 1, 1)
    return sl.masks.padding(torch.tensor(lengths)), as_added(torch.arange(s) < real).expand(*lead, t, s)


def _dense(lead, t, s):
    allowed = some(t, s, seed=3)
    allowed[t // 2] = False
    return allowed, as_added(allowed).expand(*lead, t, s)


def _dense_of_batch(lead, t, s):
    allowed = some(*lead[:1], 1, s, seed=4)
    aligned = allowed.reshape(*lead[:1], *(1,) * max(len(lead) - 1, 0), 1, s)
    return sl.masks.dense(allowed), as_added(aligned).expand(*lead, t, s)


def _dense_of_all(lead, t, s):
    allowed = some(*lead, t, s, seed=5)
    return allowed, as_added(allowed)


def _from_ones(lead, t, s):
    ones = some(t, s, seed=6)
    return sl.masks.from_ones(ones.int()), as_added(ones).expand(*lead, t, s)


def _bias(lead, t, s):
    added = randn(t, s, seed=7, dtype=torch.float32)
    return added, added.double().expand(*lead, t, s)


def _bias_of_heads(lead, t, s):
    added = randn(*lead[-1:], 1, s, seed=8, dtype=torch.float32)
    return sl.masks.bias(added[(None,) * (len(lead) - 1)]), added.double().expand(*lead, t, s)


def _bias_with_inf(lead, t, s):
    added = randn(t, s, seed=9, dtype=torch.float32).masked_fill(~some(t, s, seed=10), -INF)
    added[0] = -INF
    return added, added.double().expand(*lead, t, s)


def _bias_with_huge(lead, t, s):
    """Hugging Face's stand-in for -inf; a row of it lets a query look at all alike."""
    added = torch.zeros(t, s).masked_fill(~some(t, s, seed=11), torch.finfo(torch.float32).min)
    added[-1] = torch.finfo(torch.float32).min
    return added, added.double().expand(*lead, t, s)


# Several


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
