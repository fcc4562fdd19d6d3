"""What the tests of a look have in common: inputs, and what must come out."""

from contextlib import contextmanager
from unittest import mock

from sightline.attention import attend
from tests.oracle.dense import matrix, repeated
from tests.oracle.draw import qkv as inputs
from tests.oracle.scores import plain_scores

__all__ = ["attention_in_blocks", "inputs", "truth"]


@contextmanager
def attention_in_blocks(pairs, block):
    """Let sl.attention build masks of so many pairs, and take so many queries at a time beyond that."""
    with (
        mock.patch.object(attend, "_PAIRS", dict.fromkeys(("cpu", "cuda"), pairs)),
        mock.patch.object(attend, "_BLOCK", dict.fromkeys(("cpu", "cuda"), block)),
    ):
        yield


def truth(q, k, added, score_name="scaled_dot", score=None):
    q, k = q.double(), repeated(q, k).double()
    return matrix(q, k, added, scores=plain_scores(score_name, score, q, k))
