"""The oracle under the names that tests of the look have used, and its tiles made small."""

from contextlib import contextmanager
from types import SimpleNamespace
from unittest import mock

from sightline.look import engine, threads, weights
from sightline.look import measures as measures_
from sightline.look.source import Block, Local
from tests.oracle.check import agrees, agrees_at_peak, near
from tests.oracle.dense import Dense, matrix
from tests.oracle.draw import randn
from tests.oracle.masks import INF, MASKS
from tests.oracle.scores import SCORES, plain_scores, score_of
from tests.oracle.sizes import sizes_created

__all__ = [
    "INF",
    "MASKS",
    "SCORES",
    "agrees",
    "agrees_at_peak",
    "entropy",
    "matrix",
    "near",
    "picture",
    "plain_scores",
    "randn",
    "score_of",
    "sizes_created",
    "statistics_of",
    "tile_of",
]


def entropy(weights):
    """How spread out each row is, in nats."""
    return Dense(weights, weights[..., 0]).entropy


def picture(weights, rows, columns, queries=None, keys=None):
    """The mean weight in each cell."""
    return Dense(weights, weights[..., 0]).map((rows, columns), queries, keys)


def statistics_of(inputs, lse=None):
    """What the engine finds from a log-sum-exp that may be wrong."""
    measures = [measures_.Lse(), measures_.Received(), measures_.Entropy(), measures_.Peak()]
    return SimpleNamespace(**engine.run(measures, Local(Block(inputs, lse))))


@contextmanager
def tile_of(n):
    """Cut everything into tiles of about n pairs, for threads to share."""
    with (
        mock.patch.object(weights, "_TILE", {"cpu": n, "cuda": n}),
        mock.patch.object(threads, "_FEW", 0),
    ):
        yield
