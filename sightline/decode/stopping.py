"""When to stop, without asking a GPU too often: every question makes the host wait for it."""

import operator
from collections.abc import Sequence
from typing import NamedTuple, SupportsIndex

import torch
from torch import Tensor

from sightline.shapes import Bool, Int

_EVERY = 8  # steps between two questions to a GPU


def may_synchronise(device: torch.device, t: int) -> bool:
    """Whether to ask after step ``t`` if all is done: a GPU in some steps only, and never while recorded."""
    if device.type != "cuda":
        return True
    return t % _EVERY == _EVERY - 1 and not torch.cuda.is_current_stream_capturing()


def all_done(done: Bool[Tensor, "..."], t: int) -> bool:
    """Whether all is done after step ``t``, where that may be asked."""
    return may_synchronise(done.device, t) and bool(done.all())


class Limits(NamedTuple):
    """The most tokens that each input may get.

    Attributes:
        most: The largest of them: so many steps are taken at most.
        steps: All of them, known to the host: in other steps nothing has to be closed.
        each: One for each input, on its device.
    """

    most: int
    steps: frozenset[int]
    each: Int[Tensor, " B"]


def limits(max_length: SupportsIndex | Sequence[int], n: int, device: torch.device) -> Limits:
    """The same limit for all of ``n`` inputs, or one for each.

    Raises:
        ValueError: If a search might not take a step, or there is not one limit for each input.
    """
    alike = not isinstance(max_length, Sequence)
    given = tuple(map(operator.index, max_length if isinstance(max_length, Sequence) else (max_length,)))
    if not alike and len(given) != n:
        raise ValueError(
            f"max_length must be one number, or one for each input, got {len(given)} for {n} inputs"
        )
    if min(given, default=1) < 1:
        raise ValueError(f"max_length must be at least 1 token, got {min(given)}")
    each = column_index(given, device)
    return Limits(max(given, default=1), frozenset(given), each.expand(n) if alike else each)


def column_index(ids: tuple[int, ...], device: torch.device) -> Int[Tensor, " F"]:
    """Some ids as an index, written on the device: a copy from the host can't be recorded."""
    index = torch.zeros(len(ids), dtype=torch.long, device=device)
    for i, number in enumerate(ids):
        index[i].fill_(number)
    return index
