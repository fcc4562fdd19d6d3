"""Everything that can be asked of a sight, and so of ``Dense``: the same call gives both answers."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch


class Question(NamedTuple):
    """What is asked, and what the answer can do.

    Attributes:
        ask: The call, of a ``Sight`` or a ``Dense``.
        is_kept: Whether q and k must have been kept.
        has_gradient: Whether the answer carries gradients.
        is_average: Whether the heads of the answer can be averaged.
    """

    ask: Callable[[Any], torch.Tensor]
    is_kept: bool = True
    has_gradient: bool = True
    is_average: bool = True


def _window(x):
    """Some of the queries, never none."""
    return x.t // 3, max(x.t - 1, x.t // 3 + 1)


def _map(x, rows, columns, **window):
    return x.map((min(rows, x.t), min(columns, x.s)), **window)


def _map_of_a_window(x):
    queries, keys = (x.t // 3, x.t), (0, x.s - x.s // 3)
    size = (min(4, queries[1] - queries[0]), (min(9, keys[1]) + 1) // 2)
    return x.map(size, queries=queries, keys=keys)


STATISTICS = {
    "lse": Question(lambda x: x.lse, is_kept=False, is_average=False),
    "received": Question(lambda x: x.received, is_kept=False),
    "entropy": Question(lambda x: x.entropy, is_kept=False),
    "peak": Question(lambda x: x.peak, is_kept=False),
    "logit": Question(lambda x: x.logit, is_kept=False, is_average=False),
    "is_looking": Question(lambda x: x.is_looking, is_kept=False, has_gradient=False, is_average=False),
}

LATER = {
    "map": Question(lambda x: _map(x, 3, 5), has_gradient=False),
    "map of all": Question(lambda x: _map(x, x.t, x.s), has_gradient=False),
    "map of a window": Question(_map_of_a_window, has_gradient=False),
    "rows": Question(lambda x: x.rows([x.t - 1, 0, -x.t]), has_gradient=False),
    "columns": Question(lambda x: x.columns([x.s - 1, 0, -x.s])),
    "mass": Question(lambda x: x.mass([slice(0, x.s // 2), sorted({x.s - 1, 0}), []])),
    "mass of ids": Question(lambda x: x.mass(torch.arange(x.s) % 3 - 1)),
    "received_from": Question(lambda x: x.received_from()),
    "received_from a window": Question(lambda x: x.received_from(_window(x))),
    "their mean": Question(lambda x: x.received_from(_window(x), "mean")),
    "their maximum": Question(lambda x: x.received_from(_window(x), "max"), is_average=False),
    "offsets": Question(lambda x: x.offsets(min(x.s, x.s // 2 + 1), first=x.s - x.t)),
    "all offsets": Question(lambda x: x.offsets(x.s, first=0)),
}

QUESTIONS = STATISTICS | LATER
