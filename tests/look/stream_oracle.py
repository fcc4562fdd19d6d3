"""What the tests of a look have in common: inputs, and what must come out."""

from contextlib import contextmanager
from unittest import mock

import torch

from sightline.attention import attend
from tests.look.look_oracle import (
    matrix,
    plain_scores,
    randn,
)


def inputs(lead, t, s, d, d_v=3, kv_heads=None, dtype=torch.float32):
    kv_lead = lead if kv_heads is None else (lead[0], kv_heads)
    return (
        randn(*lead, t, d, seed=t, dtype=dtype),
        randn(*kv_lead, s, d, seed=s + 1, dtype=dtype),
        randn(*kv_lead, s, d_v, seed=s + 2, dtype=dtype),
    )


@contextmanager
def attention_in_blocks(pairs, block):
    """Let sl.attention build masks of so many pairs, and take so many queries at a time beyond that."""
    with (
        mock.patch.object(attend, "_PAIRS", dict.fromkeys(("cpu", "cuda"), pairs)),
        mock.patch.object(attend, "_BLOCK", dict.fromkeys(("cpu", "cuda"), block)),
    ):
        yield


def truth(q, k, added, score_name="scaled_dot", score=None):
    if q.dim() == 4 and q.size(1) != k.size(1):
        k = k.repeat_interleave(q.size(1) // k.size(1), 1)
    q, k = q.double(), k.double()
    return matrix(q, k, added, scores=plain_scores(score_name, score, q, k))
