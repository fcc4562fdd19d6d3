"""Scores so large that their log-sum-exp has no digits left for a single weight: each answer is the matrix's.

Rows that a model fills with a huge negative number come to the same, and so do sinks next to either.
"""

import pytest
import torch
from torch import nn

import sightline as sl
from sightline.look.flow import received_flow, rollout
from tests.oracle.check import agrees_at_all
from tests.oracle.dense import Dense
from tests.oracle.draw import qkv, randn
from tests.oracle.masks import as_added
from tests.oracle.questions import LATER, QUESTIONS
from tests.watch.flash_stand_ins import HUB

D, LEAD = 5, (1, 2)
SIZES = [(13, 11), (521, 523)]
MASKS = {
    "nothing": lambda t, s: None,
    "causal": lambda t, s: sl.masks.causal(),
    "window": lambda t, s: sl.masks.window(3, 2),
    "a filled row": lambda t, s: randn(t, s, seed=3) - 1e4 * (torch.arange(t) % 3 == 1)[:, None],
    "window and a filled row": lambda t, s: (
        sl.masks.window(t // 2, 1)
        & sl.masks.bias(randn(t, s, seed=3) - 1e4 * (torch.arange(t) == 2)[:, None])
    ),
}


def drawn(name, t, s):
    """Large queries, the mask, and what it adds."""
    q, k, v = qkv(LEAD, t, s, D, dtype=torch.float64)
    mask = MASKS[name](t, s)
    shown = mask.dense(t, s) if isinstance(mask, sl.Mask) else mask
    added = as_added(shown) if shown is not None and shown.dtype == torch.bool else shown
    return q * 300, k, v, mask, added


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", MASKS)
def test_every_answer_is_that_of_the_matrix(name, size):
    q, k, v, mask, added = drawn(name, *size)
    dense = Dense.of(q, k, added)
    assert dense.lse[dense.is_looking].abs().max() > 500
    for sight, questions in (
        (sl.look(q, k, v, mask, keep=True), LATER),
        (sl.look(q, k, v, mask, measure=sl.Look(map=(3, 5), top=2)), {}),
    ):
        agrees_at_all(sight, dense, rtol=1e-7, atol=1e-8, questions=questions)
    torch.testing.assert_close(sight.map((3, 5)), dense.map((3, 5)), rtol=1e-7, atol=1e-8)
    torch.testing.assert_close(sight.top(2)[0], dense.top(2)[0], rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize(
    ("name", "size"), [*((name, SIZES[0]) for name in MASKS), ("window", (1031, 1033))], ids=str
)
def test_gradients_are_those_of_the_matrix(name, size):
    q, k, v, mask, added = drawn(name, *size)
    for x in (q, k):
        x.requires_grad_()
    sight, dense = sl.look(q, k, v, mask, keep=True), Dense.of(q, k, added)
    for ask in (
        lambda x: x.entropy,
        lambda x: x.received,
        lambda x: x.columns([0, 3]),
        lambda x: x.mass([slice(2, 7)]),
    ):
        upstream = torch.linspace(-1, 1, ask(dense).numel(), dtype=torch.float64).view(ask(dense).shape)
        found = torch.autograd.grad(ask(sight), (q, k), upstream, retain_graph=True)
        expected = torch.autograd.grad(ask(dense), (q, k), upstream, retain_graph=True)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_with_sinks_too(size):
    _, k, v, _, _ = drawn("nothing", *size)
    q = 500 + randn(*LEAD, size[0], D, seed=8)  # all rows have their largest score at one key, or nearly
    sink = (q @ k.mT * D**-0.5).amax((-2, -1))[0] - 1

    class Flash(nn.Module):
        def forward(self, q, k, v):
            return HUB(q, k, v, None, None, None, D**-0.5, False, -1, -1, sink)[0]

    for keep in (False, True):
        with sl.watch(model := Flash(), keep=keep) as seen:
            model(*(x.transpose(1, 2) for x in (q, k, v)))
        (sight,) = seen.calls("")
        questions = QUESTIONS if keep else {}
        agrees_at_all(sight, Dense.of(q, k, sink=sink), rtol=1e-6, atol=1e-7, questions=questions)


@pytest.mark.parametrize("what", ["padding", "sinks", "mask"])
def test_what_is_kept_with_them_is_in_a_file_too(what, tmp_path):
    q, k, v, _, _ = drawn("nothing", 13, 11)
    sink = randn(LEAD[-1], seed=9)

    class Model(nn.Module):
        def forward(self, q, k, v):
            if what == "sinks":
                by_time = [x.transpose(1, 2) for x in (q, k, v)]
                return HUB(*by_time, None, None, None, D**-0.5, False, -1, -1, sink)[0]
            mask = (
                sl.masks.padding([7]) & sl.masks.causal()
                if what == "padding"
                else sl.masks.bias(randn(13, 11, seed=4))
            )
            return sl.attention(q, k, v, mask)

    with sl.watch(model := Model(), keep=True) as seen:
        model(q / 300, k, v)
    (sight,) = seen.calls("")
    sight.save(tmp_path / "one.safetensors", keep=True)
    again = sl.Sight.load(tmp_path / "one.safetensors")
    for name, question in LATER.items():
        torch.testing.assert_close(question.ask(again), question.ask(sight), msg=name, equal_nan=True)


@pytest.mark.bad_input
@pytest.mark.parametrize("residual", ["0.5", None, [0.5], torch.ones(2)], ids=str)
def test_a_residual_share_is_a_number(residual):
    sight = sl.look(*qkv(LEAD, 7, 7, D), keep=True)
    for flow in (rollout, received_flow):
        with pytest.raises((TypeError, ValueError), match="residual") as caught:
            flow([sight], residual=residual)
        assert "\n" not in str(caught.value)
