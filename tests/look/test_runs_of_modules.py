"""Calls of a watched module as runs: steps over a growing cache are one sight, the causal whole's."""

import pytest
import torch
from torch import nn

import sightline as sl
from tests.oracle.check import agrees_at_all
from tests.oracle.dense import Dense
from tests.oracle.draw import qkv
from tests.oracle.masks import as_added
from tests.oracle.questions import LATER

N, D, LEAD = 7, 5, (2, 3)


class Attends(nn.Module):
    def forward(self, q, k, v, mask=None):
        return sl.attention(q, k, v, mask)


class Model(nn.Module):
    """One that looks at all at every step, one in steps, and perhaps one in steps into another sequence."""

    def __init__(self, *, crosses):
        super().__init__()
        self.crosses = crosses
        self.encoder, self.self_attn, self.cross_attn = Attends(), Attends(), Attends()

    def forward(self, sequences, memory, starts):
        for q, k, v in sequences:
            for a, b in zip(starts, [*starts[1:], N], strict=True):
                if not self.crosses:
                    self.encoder(q, k, v)
                self.self_attn(q[..., a:b, :], k[..., :b, :], v[..., :b, :], sl.masks.causal())
                if self.crosses:  # begins again where the first of the others does
                    self.cross_attn(q[..., a:b, :], *memory)
                    self.encoder(q, k, v)


def sequences(n):
    drawn = [qkv(LEAD, N, N, D, dtype=torch.float64) for _ in range(n)]
    return [[x + i for x in one] for i, one in enumerate(drawn)]


@pytest.mark.parametrize("crosses", [False, True])
@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("starts", [[0, 1, 2, 3, 4, 5, 6], [0, 3, 4, 5, 6]], ids=str)
def test_each_run_is_the_matrix_of_its_sequence(n, starts, crosses):
    own, (_, *memory) = sequences(n), qkv(LEAD, N, 11, D, dtype=torch.float64)
    model = Model(crosses=crosses)
    with sl.watch(model, keep=True) as seen:
        model(own, memory, starts)
    causal = as_added(torch.ones(N, N, dtype=torch.bool).tril())
    runs = seen.runs("self_attn")
    assert len(runs) == n
    for sight, (q, k, _) in zip(runs, own, strict=True):
        dense = Dense.of(q, k, causal)
        agrees_at_all(sight, dense, rtol=1e-9, atol=1e-11, questions=LATER)
        torch.testing.assert_close(sight.received, dense.received)
        torch.testing.assert_close(sight.entropy, dense.entropy)
    across = seen.runs("cross_attn") if crosses else []
    assert len(across) == n * crosses
    for sight, (q, _, _) in zip(across, own, strict=crosses):
        torch.testing.assert_close(sight.entropy, Dense.of(q, memory[0]).entropy)
    whole = seen.runs("encoder")
    assert len(whole) == n * len(starts)
    for i, sight in enumerate(whole):
        q, k, _ = own[i // len(starts)]
        torch.testing.assert_close(sight.received, Dense.of(q, k).received)
