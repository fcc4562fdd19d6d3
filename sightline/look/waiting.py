"""Short calls on a GPU, put by and measured together: a launch for many layers costs as much as one for one.

Queries and keys are held, not copied: by the time of the next call most models have dropped theirs, and what
nobody else holds nobody can write to. What others still hold by then is copied, and so is at once what has
been written to in place before, such as a cache. Calls of one shape are stacked along their batch when the
block ends, a sight is asked for, or enough work waits.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from sightline.attention.masks import Mask
from sightline.look.adapters import AttentionCall
from sightline.look.padding import is_cross_name
from sightline.look.score_inputs import ScoreInputs
from sightline.look.sight import Sight

__all__ = ["WRITTEN_TO", "StackedCall", "WaitingCalls"]

_C: Any = torch._C  # noqa: SLF001
_DEVICES = frozenset({"cuda"})
_MUCH = 1 << 35  # products that keep a GPU busy for longer than it takes to launch them
_MANY = 256 << 20  # bytes that may wait
WRITTEN_TO = "the model wrote over its queries or keys after it had attended; keep=True looks at once"


class _Member:
    """One call that waits: its number, its module, and what it was made of."""

    __slots__ = ("k", "k_version", "lse", "masks", "name", "order", "q", "q_version")

    def __init__(self, order: int, name: str, call: AttentionCall, masks: tuple[Tensor, ...]) -> None:
        self.order, self.name, self.lse, self.masks = order, name, call.lse, masks
        self.q, self.q_version = _hold(call.inputs.q)
        self.k, self.k_version = _hold(call.inputs.k)

    def secure(self) -> None:
        """Copy what somebody else holds too, unless it has been written to, which is too late."""
        if self.was_written_to():
            return
        q, k = self.q.untyped_storage(), self.k.untyped_storage()
        ours = 3 if q is k else 2  # tensors of ours, and Python's own object
        q_is_held, k_is_held = _count(q) > ours, _count(k) > ours
        if q_is_held:
            self.q, self.q_version = self.q.clone(), 0
        if k_is_held:
            self.k, self.k_version = self.k.clone(), 0

    def was_written_to(self) -> bool:
        """Whether somebody has written to what is held."""
        return _version(self.q) != self.q_version or _version(self.k) != self.k_version


def _hold(x: Tensor) -> tuple[Tensor, int]:
    """A tensor and its version; a copy if it may be a place that is written to again and again."""
    if x.is_inference() or _version(x):
        return x.detach().clone(), 0
    return x.detach(), 0


def _version(x: Tensor) -> int:
    """How often a tensor, or a view of the same memory, has been written to in place."""
    return 0 if x.is_inference() else x._version  # noqa: SLF001


def _count(storage: torch.UntypedStorage) -> int:
    """By how many memory is held."""
    count: int = _C._storage_Use_Count(storage._cdata)  # noqa: SLF001
    return count


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


class _Group:
    """Calls of one shape, and the stream that they were called on."""

    def __init__(self, call: AttentionCall) -> None:
        self.call = call
        self.stream = torch.cuda.current_stream(call.inputs.q.device) if call.inputs.q.is_cuda else None
        self.members: list[_Member] = []


class WaitingCalls:
    """The calls that wait, by their shape."""

    def __init__(self) -> None:
        self._groups: dict[tuple[Any, ...], _Group] = {}
        self._last: _Member | None = None  # the only one that the model may still be busy with
        self._masks: dict[Any, tuple[Tensor, Tensor]] = {}  # masks and copies of them
        self._n, self._work, self.nbytes = 0, 0, 0

    def add(self, name: str, call: AttentionCall) -> bool:
        """Put a call by, if it is short and plain enough; False if it has to be measured at once."""
        inputs, mask = call.inputs, call.inputs.mask
        q, k = inputs.q, inputs.k
        if self._last is not None:
            self._last.secure()
            self._last = None
        if type(inputs) is not ScoreInputs or q.device.type not in _DEVICES or call.lead != q.shape[:2]:
            return False
        if inputs.score is not None or inputs.modify is not None or inputs.padding is not None:
            return False
        work = q.numel() * k.size(2)
        tensors = (*mask.allowed, *mask.added)
        if not 0 < work < _MUCH or mask.lengths:
            return False
        if any(x.dim() != 4 or x.size(0) not in (1, q.size(0)) for x in tensors):
            return False
        key = (
            q.shape, k.shape, q.dtype, k.dtype, q.device, _stream_of(q), inputs.scale, mask.bands,
            call.lse is None, call.source, is_cross_name(name), len(mask.allowed),
            *((x.shape[1:], x.dtype) for x in tensors),
        )  # fmt: skip
        masks = tuple(self._copy_mask(x).expand(q.size(0), -1, -1, -1) for x in tensors)
        self._last = member = _Member(self._n, name, call, masks)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group(_without_tensors(call, member))
        group.members.append(member)
        self._n += 1
        self._work += work
        self.nbytes += q.nbytes + k.nbytes
        return True

    def _copy_mask(self, x: Tensor) -> Tensor:
        """A copy of a mask, the same one for all layers that share it."""
        if x.is_inference():
            return x.clone()
        key = x.data_ptr(), x.shape, x.stride(), x.dtype, x._version  # noqa: SLF001
        if key not in self._masks:
            x = x.detach()
            self._masks[key] = x, x.clone()  # holding it, so that its place is not used again
            self.nbytes += x.nbytes
        return self._masks[key][1]

    def __len__(self) -> int:
        """How many shapes wait."""
        return len(self._groups)

    @property
    def is_full(self) -> bool:
        """Whether enough of them wait."""
        return self._work >= _MUCH or self.nbytes > _MANY

    def take(self) -> tuple[list[tuple[Any, StackedCall]], list[str]]:
        """Hand out all that wait, each with its stream; and the modules whose calls have been lost."""
        groups, self._groups, self._last, self._masks = self._groups, {}, None, {}
        self._work = self.nbytes = 0
        stacked, lost = [], []
        for group in groups.values():
            lost += [x.name for x in group.members if x.was_written_to()]
            members = [x for x in group.members if not x.was_written_to()]
            if members:
                stacked.append((group.stream, _stack(group.call, members)))
        return stacked, lost


def _without_tensors(call: AttentionCall, member: _Member) -> AttentionCall:
    """A call that holds on to nothing but what its member holds."""
    mask, n = call.inputs.mask, len(call.inputs.mask.allowed)
    own = Mask(mask.bands, (), member.masks[:n], member.masks[n:])
    return replace(call, inputs=replace(call.inputs, q=member.q, k=member.k, mask=own))


def _stream_of(x: Tensor) -> int:
    """The stream that a call is on."""
    return int(_C._cuda_getCurrentRawStream(x.get_device())) if x.is_cuda else 0  # noqa: SLF001


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
