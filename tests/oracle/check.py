"""Comparisons with the matrix."""

import torch

from tests.oracle.dense import Dense
from tests.oracle.questions import LATER, QUESTIONS, STATISTICS


def near(found, truth, rtol=1e-5, atol=1e-7, name=""):
    """Check that two tensors are close, in float64, and NaN at the same places."""
    torch.testing.assert_close(
        found.double(), truth.double(), rtol=rtol, atol=atol, equal_nan=True,
        msg=lambda text: f"{name}: {text}" if name else text,
    )  # fmt: skip


def agrees_at_all(sight, dense, *, rtol=1e-5, atol=2e-6, questions=QUESTIONS):
    """Check every question, and that of the largest weights, against the matrix."""
    for name, question in questions.items():
        near(question.ask(sight), question.ask(dense), rtol, atol, name)
    if "peak" in questions:
        agrees_at_peak(sight.peak, sight.peak_at, dense.weights, rtol, atol)
    if "rows" in questions:
        for k in sorted({1, min(dense.s, 5)}):
            agrees_at_top(sight.top(k), dense, k, rtol, atol)


def agrees_on_average(sight, dense, *, rtol=1e-5, atol=2e-6, questions=QUESTIONS):
    """Check a sight whose heads are averaged against the means of the answers."""
    for name, question in questions.items():
        if question.is_average:
            heads = len(dense.lse.shape) - 2
            near(question.ask(sight), question.ask(dense).mean(heads), rtol, atol, name)


def agrees_at_peak(peak, peak_at, weights, rtol=1e-5, atol=2e-6):
    """Check the largest weights and where they are; of equal ones any place will do."""
    near(peak, weights.amax(-1), rtol, atol, "peak")
    assert peak_at.dtype == torch.long
    assert torch.equal(peak_at == -1, weights.sum(-1) == 0), "peak_at of a query that looks at nothing"
    near(_at(weights, peak_at.unsqueeze(-1)).squeeze(-1), weights.amax(-1), rtol, atol, "peak_at")


def agrees_at_top(top, dense, k, rtol=1e-5, atol=2e-6):
    """Check the k largest weights and where they are: in order, each key once, -1 where there is none."""
    values, places = top
    near(values, dense.top(k)[0], rtol, atol, f"top {k}")
    near(_at(dense.weights, places), values, rtol, atol, f"places of the top {k}")
    assert bool((values.diff(dim=-1) <= 0).all()), f"the top {k} are not in order"
    assert torch.equal(places == -1, values == 0), f"places of the top {k} where there are fewer"
    each = places.sort(-1).values
    assert not bool((each.diff(dim=-1) == 0).logical_and_(each[..., 1:] >= 0).any()), "a key twice"


def agrees(sight, weights, lse, *, rtol=1e-5, atol=2e-6):
    """The same of the weights and log-sum-exps alone; of a sight that kept nothing the statistics."""
    dense = Dense(weights, lse)
    some = {name: x for name, x in STATISTICS.items() if name not in {"logit", "is_looking"}}
    later = {name: x for name, x in LATER.items() if name in {"map", "map of all", "map of a window", "rows"}}
    asks = dense.t and dense.s and sight.kept
    agrees_at_all(sight, dense, rtol=rtol, atol=atol, questions=some | (later if asks else {}))


def _at(weights, places):
    return weights.take_along_dim(places.clamp(min=0), dim=-1).masked_fill(places < 0, 0.0)
