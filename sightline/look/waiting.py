"""Short calls on a GPU, put by and measured together: a launch for many layers costs as much as one for one.

Queries and keys are copied, so that nothing the model does later changes what is measured; calls of one shape
are stacked along their batch when the block ends, a sight is asked for, or enough of them wait.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sightline.attention.masks import Mask
from sightline.look.adapters import AttentionCall
from sightline.look.padding import is_cross_name
from sightline.look.score_inputs import ScoreInputs
from sightline.look.sight import Sight

__all__ = ["StackedCall", "WaitingCalls"]

_DEVICES = frozenset({"cuda"})
_SHORT = 16 << 20  # bytes of a call, up to which it is worth a copy
_MANY = 64 << 20  # bytes that may wait


class _Member(NamedTuple):
    """One call that waits: its number, its module, and copies of what it was made of."""

    order: int
    name: str
    q: Tensor
    k: Tensor
    lse: Tensor | None
    masks: tuple[Tensor, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class StackedCall:
    """Calls of one shape as one.

    Attributes:
        call: All of them, stacked along the batch.
        names: Their modules.
        orders: Their numbers.
    """

    call: AttentionCall
    names: tuple[str, ...]
    orders: tuple[int, ...]

    def split(self, sight: Sight) -> Iterator[Sight]:
        """The sight of each call."""
        n = sight.lead[0] // len(self.names)
        parts = {name: x.split(n) for name, x in sight.statistics.items()}
        for i, name in enumerate(self.names):
            statistics = {key: pieces[i] for key, pieces in parts.items()}
            yield replace(sight, lead=(n, *sight.lead[1:]), statistics=statistics, name=name)


class WaitingCalls:
    """The calls that wait, by their shape."""

    def __init__(self) -> None:
        self._groups: dict[tuple[Any, ...], tuple[AttentionCall, list[_Member]]] = {}
        self._n, self.nbytes = 0, 0

    def add(self, name: str, call: AttentionCall) -> bool:
        """Put a call by, if it is short and plain enough; False if it has to be measured at once."""
        inputs, mask = call.inputs, call.inputs.mask
        q, k = inputs.q, inputs.k
        if type(inputs) is not ScoreInputs or q.device.type not in _DEVICES or call.lead != q.shape[:2]:
            return False
        tensors = (*mask.allowed, *mask.added)
        if (
            inputs.score is not None
            or inputs.modify is not None
            or inputs.padding is not None
            or mask.lengths
        ):
            return False
        size = q.nbytes + k.nbytes + sum(x.nbytes for x in tensors)
        if not 0 < size <= _SHORT or any(x.dim() != 4 or x.size(0) not in (1, q.size(0)) for x in tensors):
            return False
        stream = torch.cuda.current_stream(q.device) if q.is_cuda else None
        key = (
            q.shape, k.shape, q.dtype, k.dtype, q.device, stream, inputs.scale, mask.bands, call.lse is None,
            call.source, is_cross_name(name), len(mask.allowed), *((x.shape[1:], x.dtype) for x in tensors),
        )  # fmt: skip
        masks = tuple(x.expand(q.size(0), -1, -1, -1).clone() for x in tensors)
        member = _Member(self._n, name, q.detach().clone(), k.detach().clone(), call.lse, masks)
        self._groups.setdefault(key, (call, []))[1].append(member)
        self._n += 1
        self.nbytes += size
        return True

    def __len__(self) -> int:
        """How many shapes wait."""
        return len(self._groups)

    @property
    def is_full(self) -> bool:
        """Whether enough of them wait."""
        return self.nbytes > _MANY

    def take(self) -> list[tuple[Any, StackedCall]]:
        """Hand out all that wait, each with the stream that it was called on."""
        groups, self._groups, self.nbytes = self._groups, {}, 0
        return [(key[5], _stack(call, members)) for key, (call, members) in groups.items()]


def _stack(call: AttentionCall, members: list[_Member]) -> StackedCall:
    """One call of many."""
    inputs, n = call.inputs, len(call.inputs.mask.allowed)
    masks = [_cat(x) for x in zip(*(member.masks for member in members), strict=True)]
    mask = Mask(inputs.mask.bands, (), tuple(masks[:n]), tuple(masks[n:]))
    q, k = _cat([x.q for x in members]), _cat([x.k for x in members])
    lses = [x.lse for x in members if x.lse is not None]
    stacked = replace(
        call,
        inputs=replace(inputs, q=q, k=k, mask=mask),
        lead=tuple(q.shape[:2]),
        lse=_cat(lses) if lses else None,
    )
    names, orders = tuple(x.name for x in members), tuple(x.order for x in members)
    return StackedCall(call=stacked, names=names, orders=orders)


def _cat(tensors: Any) -> Tensor:
    return tensors[0] if len(tensors) == 1 else torch.cat(list(tensors))
