"""Short calls on a GPU, put by and measured together: a launch for many layers costs as much as one for one.

Queries and keys are held, not copied: by the time of the next call most models have dropped theirs, and what
nobody else holds nobody can write to. What others still hold by then is copied, and so is at once what has
been written to in place before, such as a cache. What autograd holds nobody may write to either. Calls of one
shape are stacked along their batch when the block ends, a sight is asked for, or enough work waits; only then
they are read, all of them at once.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sightline.attention.masks import Mask
from sightline.look.adapters import AttentionCall, adapter_of
from sightline.look.fused import FUSED
from sightline.look.isolate import isolated
from sightline.look.listeners import silence
from sightline.look.padding import is_cross_name
from sightline.look.score_inputs import ScoreInputs
from sightline.look.sight import Sight

__all__ = ["WRITTEN_TO", "StackedCall", "WaitingCalls"]

_C: Any = torch._C  # noqa: SLF001
_DEVICES = frozenset({"cuda"})
_MUCH = 1 << 36  # products that keep a GPU busy for longer than it takes to launch them
_MANY = 256 << 20  # bytes that may wait
_read_fused: Any = adapter_of(next(iter(FUSED)))  # all of them are read alike
WRITTEN_TO = "the model wrote over its queries or keys after it had attended; keep=True looks at once"


class _Member:
    """One call that waits: its number, its module, and what it was made of.

    Attributes:
        key: What calls that are measured together have in common; its first entry is the stream.
        facts: Of a call that has not been read, its arguments that are no tensors.
        call: Of a call that has, all but its tensors.
    """

    __slots__ = (
        "call", "facts", "is_trained", "k", "k_version", "key", "lse", "masks", "name", "order",
        "q", "q_version",
    )  # fmt: skip

    def __init__(self, order: int, name: str, q: Tensor, k: Tensor, lse: Tensor | None) -> None:
        self.order, self.name, self.lse = order, name, lse
        self.is_trained = q.requires_grad
        self.q, self.q_version = _hold(q)
        self.k, self.k_version = _hold(k)
        self.masks: tuple[Tensor, ...] = ()
        self.key: tuple[Any, ...] = ()
        self.facts: dict[str, Any] = {}
        self.call: AttentionCall | None = None

    def secure(self) -> None:
        """Copy what somebody else holds too, unless it has been written to, which is too late."""
        if self.is_trained or self.was_written_to():
            return
        q, k = self.q.untyped_storage(), self.k.untyped_storage()
        ours = 3 if q is k else 2  # tensors of ours, and Python's own object
        q_is_held, k_is_held = _count(q) > ours, _count(k) > ours
        if q_is_held or k_is_held:
            with silence(), isolated():
                if q_is_held:
                    self.q, self.q_version = self.q.clone(), 0
                if k_is_held:
                    self.k, self.k_version = self.k.clone(), 0

    def was_written_to(self) -> bool:
        """Whether somebody has written to what is held."""
        return _version(self.q) != self.q_version or _version(self.k) != self.k_version


def _hold(x: Tensor) -> tuple[Tensor, int]:
    """A tensor and its version; a copy if it may be a place that is written to again and again."""
    if x.is_inference() or x._version:  # noqa: SLF001
        with silence(), isolated():
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


class PutBy(NamedTuple):
    """What must be known at once of a call that waits."""

    b: int
    t: int
    s: int
    is_trained: bool


class WaitingCalls:
    """The calls that wait."""

    def __init__(self) -> None:
        self._members: list[_Member] = []
        self._last: _Member | None = None  # the only one that the model may still be busy with
        self._masks: dict[Any, tuple[Tensor, Tensor]] = {}  # masks and copies of them
        self._streams: dict[int, Any] = {}  # by their numbers
        self._n, self._work, self.nbytes = 0, 0, 0

    def put(self, name: str, arguments: dict[str, Any], result: Any) -> PutBy | None:
        """Put a call of one of torch's own kernels by, unread; None if it has to be read first."""
        q, k = arguments["query"], arguments["key"]
        if type(q) is not Tensor or type(k) is not Tensor or q.device.type not in _DEVICES or q.is_nested:
            return None
        if _C._len_torch_dispatch_stack() or _C._get_tracing_state() is not None:  # noqa: SLF001
            return None
        self._secure_last()
        (b, h, t, d), s = q.shape, k.size(2)
        work = b * h * t * d * s
        bias = arguments.get("attn_mask", arguments.get("attn_bias"))
        if not 0 < work < _MUCH or k.size(0) != b or not (bias is None or _is_stackable(bias, b)):
            return None
        lse = result[1]
        member = _Member(self._n, name, q, k, lse)
        causal, scale = bool(arguments.get("is_causal")), arguments.get("scale")
        member.facts = {"is_causal": causal, "scale": scale}
        member.key = (
            self._stream_of(q), q.shape, k.shape, q.dtype, k.dtype, causal, scale,
            None if lse is None else lse.shape, is_cross_name(name),
        )  # fmt: skip
        if bias is not None:
            member.masks = (self._copy_mask(bias),)
            member.key += (bias.shape[1:], bias.dtype)
        self._add(member, work, q, k)
        return PutBy(b, t, s, member.is_trained)

    def add(self, name: str, call: AttentionCall) -> bool:
        """Put a call by, if it is short and plain enough; False if it has to be measured at once."""
        inputs, mask = call.inputs, call.inputs.mask
        q, k = inputs.q, inputs.k
        self._secure_last()
        if type(inputs) is not ScoreInputs or q.device.type not in _DEVICES or call.lead != q.shape[:2]:
            return False
        if inputs.score is not None or inputs.modify is not None or inputs.padding is not None:
            return False
        work = q.numel() * k.size(2)
        tensors = (*mask.allowed, *mask.added)
        if not 0 < work < _MUCH or mask.lengths:
            return False
        if not all(_is_stackable(x, q.size(0)) for x in tensors):
            return False
        member = _Member(self._n, name, q, k, call.lse)
        member.masks = tuple(map(self._copy_mask, tensors))
        member.key = (
            self._stream_of(q), q.shape, k.shape, q.dtype, k.dtype, inputs.scale, mask.bands,
            call.lse is None, call.source, is_cross_name(name), len(mask.allowed),
            *((x.shape[1:], x.dtype) for x in tensors),
        )  # fmt: skip
        member.call = _without_tensors(call, member)
        self._add(member, work, q, k)
        return True

    def _secure_last(self) -> None:
        if self._last is not None:
            self._last.secure()
            self._last = None

    def _add(self, member: _Member, work: int, q: Tensor, k: Tensor) -> None:
        self._last = member
        self._members.append(member)
        self._n += 1
        self._work += work
        self.nbytes += q.nbytes + k.nbytes

    def _stream_of(self, x: Tensor) -> int:
        """The number of the stream that a call is on."""
        stream = int(_C._cuda_getCurrentRawStream(x.get_device())) if x.is_cuda else 0  # noqa: SLF001
        if x.is_cuda and stream not in self._streams:
            self._streams[stream] = torch.cuda.current_stream(x.device)
        return stream

    def _copy_mask(self, x: Tensor) -> Tensor:
        """A copy of a mask, the same one for all layers that share it."""
        if x.is_inference():
            with silence(), isolated():
                return x.clone()
        key = x.data_ptr(), x.shape, x.stride(), x.dtype, x._version  # noqa: SLF001
        if key not in self._masks:
            with silence(), isolated():
                x = x.detach()
                self._masks[key] = x, x.clone()  # holding it, so that its place is not used again
            self.nbytes += x.nbytes
        return self._masks[key][1]

    def __len__(self) -> int:
        """How many calls wait."""
        return len(self._members)

    @property
    def is_full(self) -> bool:
        """Whether enough of them wait."""
        return self._work >= _MUCH or self.nbytes > _MANY

    def take(self) -> tuple[list["WaitingGroup"], list[str]]:
        """Hand out all that wait, and the modules whose calls have been lost."""
        members, self._members, self._last, self._masks = self._members, [], None, {}
        self._work = self.nbytes = 0
        groups: dict[tuple[Any, ...], list[_Member]] = {}
        lost = []
        for member in members:
            if member.was_written_to():
                lost.append(member.name)
            else:
                groups.setdefault(member.key, []).append(member)
        return [WaitingGroup(x, self._streams.get(key[0])) for key, x in groups.items()], lost


class WaitingGroup:
    """Calls of one shape and one stream."""

    def __init__(self, members: list[_Member], stream: Any) -> None:
        self._members, self._stream = members, stream

    @property
    def names(self) -> list[str]:
        """Their modules."""
        return [x.name for x in self._members]

    def on_stream(self) -> contextlib.AbstractContextManager[object]:
        """Be on the stream that they were called on."""
        stream = self._stream
        if stream is None or stream == torch.cuda.current_stream(stream.device):
            return contextlib.nullcontext()
        return torch.cuda.stream(stream)

    def stack(self) -> StackedCall:
        """All of them as one."""
        return _stack(self._members)


def _is_stackable(mask: Tensor, b: int) -> bool:
    """Whether a mask can be stacked along the batch."""
    return mask.dim() == 4 and mask.size(0) in (1, b)


def _without_tensors(call: AttentionCall, member: _Member) -> AttentionCall:
    """A call that holds on to nothing but what its member holds."""
    mask, n = call.inputs.mask, len(call.inputs.mask.allowed)
    own = Mask(mask.bands, (), member.masks[:n], member.masks[n:])
    return replace(call, inputs=replace(call.inputs, q=member.q, k=member.k, mask=own))


def _stack(members: list[_Member]) -> StackedCall:
    """One call of many."""
    first = members[0]
    q, k = _cat([x.q for x in members]), _cat([x.k for x in members])
    lses = [x.lse for x in members if x.lse is not None]
    lse = _cat(lses) if lses else None
    masks = tuple(_stack_masks(x, first.q.size(0)) for x in zip(*(x.masks for x in members), strict=True))
    if first.call is None:
        arguments = {"query": q, "key": k, "value": q, "attn_mask": masks[0] if masks else None}
        call: AttentionCall = _read_fused(arguments | first.facts, (q, lse))
    else:
        inputs, n = first.call.inputs, len(first.call.inputs.mask.allowed)
        inputs = replace(inputs, q=q, k=k, mask=Mask(inputs.mask.bands, (), masks[:n], masks[n:]))
        call = replace(first.call, inputs=inputs, lead=tuple(q.shape[:2]), lse=lse)
    names, orders = tuple(x.name for x in members), tuple(x.order for x in members)
    return StackedCall(call=call, names=names, orders=orders)


def _stack_masks(masks: tuple[Tensor, ...], b: int) -> Tensor:
    """Masks along their batch; one alone where all items of all calls share it."""
    first = masks[0]
    if first.size(0) == 1 and all(x is first for x in masks):
        return first
    return _cat([x.expand(b, -1, -1, -1) for x in masks])


def _cat(tensors: list[Tensor]) -> Tensor:
    return tensors[0] if len(tensors) == 1 else torch.cat(tensors)
