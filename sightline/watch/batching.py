"""Short calls on a GPU, put by and measured together: a launch for many layers costs as much as one for one.

Queries and keys are held, not copied: by the time of the next call most models have dropped theirs, and what
nobody else holds nobody can write to. What others still hold by then is copied, and so is at once what has
been written to in place before, such as a cache. What autograd holds nobody may write to either. Calls of one
shape are stacked along their batch when the block ends, a sight is asked for, or enough work waits; only then
they are read, all of them at once.
"""

import contextlib
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from sightline.attention.masks import Mask, causal
from sightline.look.inputs import ScoreInputs
from sightline.look.isolate import isolated
from sightline.watch.kernel_calls import KernelCall, KernelParams
from sightline.watch.listeners import silence
from sightline.watch.padding import Padding
from sightline.watch.readers.operators import FUSED, fused_lse
from sightline.watch.readers.sdpa import AttentionCall, adapter_of

__all__ = ["WRITTEN_TO", "CallQueue"]

_C: Any = torch._C  # noqa: SLF001
_count = _C._storage_Use_Count  # noqa: SLF001 (by how many memory is held)
_is_excluded = _C._dispatch_tls_is_dispatch_key_excluded  # noqa: SLF001
_VERSIONS = _C.DispatchKey.ADInplaceOrView
_DEVICES = frozenset({"cuda"})  # on which calls wait
_MUCH = 1 << 36  # products that keep a GPU busy for longer than it takes to launch them
_MANY = 256 << 20  # bytes that may wait
_CAUSAL, _NO_MASK = causal(align="start"), Mask()
_read_fused: Any = adapter_of(next(iter(FUSED)))  # all of them are read alike
WRITTEN_TO = "the model wrote over its queries or keys after it had attended; keep=True looks at once"


class _Member:
    """One call that waits: its number, its module, and what it was made of.

    Attributes:
        key: What calls that are measured together have in common; its first entry is the stream.
        is_causal, scale, said: Those of a call that has not been read.
        call: Of a call that has, all but its tensors.
    """

    key: tuple[Any, ...]
    masks: tuple[Tensor, ...] = ()
    is_causal = False
    scale: float | None = None
    call: AttentionCall | None = None
    said: Padding | None = None

    def __init__(self, order: int, name: str, q: Tensor, k: Tensor, lse: Tensor | None) -> None:
        self.order, self.name, self.lse = order, name, lse
        self.is_trained = q.requires_grad
        is_inference = self.is_inference = q.is_inference() or k.is_inference()
        # Of those nobody counts who writes to them.
        self.q = _copy(q) if is_inference or q._version else q.detach()  # noqa: SLF001
        self.k = _copy(k) if is_inference or k._version else k.detach()  # noqa: SLF001

    def secure(self) -> None:
        """Copy what somebody else holds too, unless it has been written to, which is too late."""
        if self.is_trained or self.was_modified():
            return
        q, k = self.q.untyped_storage(), self.k.untyped_storage()
        ours = 3 if q is k else 2  # tensors of ours, and Python's own object
        q_is_held, k_is_held = _count(q._cdata) > ours, _count(k._cdata) > ours  # noqa: SLF001
        if q_is_held:
            self.q = _copy(self.q)
        if k_is_held:
            self.k = _copy(self.k)

    def was_modified(self) -> bool:
        """Whether somebody has written to what is held."""
        return not self.is_inference and bool(self.q._version or self.k._version)  # noqa: SLF001


def _copy(x: Tensor) -> Tensor:
    """A copy, where others may write to what is held, as to a cache."""
    with silence(), isolated():
        return x.detach().clone()


class CallQueue:
    """The calls that wait."""

    def __init__(self) -> None:
        self._members: list[_Member] = []
        self._last: _Member | None = None  # the only one that the model may still be busy with
        self._masks: dict[Any, tuple[Tensor, Tensor]] = {}  # masks and copies of them
        self._streams: dict[tuple[torch.device, int], Any] = {}  # by device and number
        self._n, self._work, self.nbytes = 0, 0, 0
        self.is_full = False  # whether enough of them wait

    def put(
        self, name: str, heard: KernelCall, said: Padding | None = None, facts: KernelParams | None = None
    ) -> tuple[int, int, int] | None:
        """Put a call of one of torch's own kernels by, unread: B, T and S; None if it has to be read first.

        Args:
            name: The module that called.
            heard: What it called.
            said: What was said of its queries that are padding.
            facts: What the kernel was told beside q and k, where that has been read.
        """
        q, k = heard.args[0], heard.args[1]
        if type(q) is not Tensor or type(k) is not Tensor or not _may_wait(q) or q.is_nested:
            return None
        if _C._len_torch_dispatch_stack() or _C._get_tracing_state() is not None:  # noqa: SLF001
            return None
        if _is_excluded(_VERSIONS) and not heard.is_inside and not q.is_inference():
            return None  # heard by a mode, where nobody counts who writes to them
        self._secure_last()
        bias, causal, scale = facts or heard.kernel.facts(heard.args, heard.kwargs)
        (b, h, t, d), (k_items, k_heads, s, _) = q.shape, k.shape
        work = b * h * t * d * s
        if not 0 < work < _MUCH or k_items != b or not (bias is None or _is_stackable(bias, b)):
            return None
        place = self._place_of(q)
        if place[1] and _C._cuda_isCurrentStreamCapturing():  # noqa: SLF001 (the default stream can't be)
            return None
        lse = heard.result[1]
        member = _Member(self._n, name, q, k, lse)
        member.is_causal, member.scale, member.said = causal, scale, said
        # A kernel gives a log-sum-exp of one layout for queries of one shape, or none.
        member.key = (
            place, heard.kernel, lse is None, q.dtype, b, h, t, d, s, k_heads, causal, scale,
            _kind_of(said),
        )  # fmt: skip
        if bias is not None:
            member.masks = (self._copy_mask(bias),)
            member.key += bias.shape[1:], bias.dtype
        self._add(member, work)
        return b, t, s

    def add(self, name: str, call: AttentionCall) -> bool:
        """Put a call by, if it is short and plain enough; False if it has to be measured at once."""
        inputs, mask = call.inputs, call.inputs.mask
        q, k = inputs.q, inputs.k
        self._secure_last()
        if type(inputs) is not ScoreInputs or not _may_wait(q) or call.lead != q.shape[:2]:
            return False
        if inputs.score is not None or inputs.modify is not None or inputs.padding is not None:
            return False
        work = q.numel() * k.size(2)
        tensors = (*mask.allowed, *mask.added)
        if not 0 < work < _MUCH or mask.lengths:
            return False
        if not all(_is_stackable(x, q.size(0)) for x in tensors):
            return False
        place = self._place_of(q)
        member = _Member(self._n, name, q, k, call.lse)
        member.masks = tuple(map(self._copy_mask, tensors))
        member.key = (
            place, q.shape, k.shape, q.dtype, k.dtype, inputs.scale, mask.bands,
            call.lse is None, call.source, _kind_of(call.said), len(mask.allowed),
            *((x.shape[1:], x.dtype) for x in tensors),
        )  # fmt: skip
        member.call, member.said = _without_tensors(call, member), call.said
        self._add(member, work)
        return True

    def _secure_last(self) -> None:
        if self._last is not None:
            self._last.secure()
            self._last = None

    def _add(self, member: _Member, work: int) -> None:
        self._last = member
        self._members.append(member)
        self._n += 1
        self._work += work
        self.nbytes += member.q.nbytes + member.k.nbytes
        self.is_full = self._work >= _MUCH or self.nbytes > _MANY

    def _place_of(self, x: Tensor) -> tuple[torch.device, int]:
        """The device of a call, and the number of the stream that it is on."""
        stream = int(_C._cuda_getCurrentRawStream(x.get_device())) if x.is_cuda else 0  # noqa: SLF001
        place = x.device, stream
        if x.is_cuda and place not in self._streams:
            self._streams[place] = torch.cuda.current_stream(x.device)
        return place

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

    def take(self) -> tuple[list["WaitingGroup"], list[str]]:
        """Hand out all that wait, and the modules whose calls have been lost."""
        members, self._members, self._last, self._masks = self._members, [], None, {}
        self._work, self.nbytes, self.is_full = 0, 0, False
        groups: dict[tuple[Any, ...], list[_Member]] = {}
        lost = []
        for member in members:
            if member.was_modified():
                lost.append(member.name)
            else:
                groups.setdefault(member.key, []).append(member)
        return [WaitingGroup(x, self._streams.get(key[0])) for key, x in groups.items()], lost


class WaitingGroup:
    """Calls of one shape and one stream.

    Attributes:
        names: Their modules.
        orders: Their numbers.
    """

    def __init__(self, members: list[_Member], stream: Any) -> None:
        self._members, self._stream = members, stream
        self.names = tuple([x.name for x in members])
        self.orders = tuple([x.order for x in members])

    def on_stream(self) -> contextlib.AbstractContextManager[object]:
        """Be on the stream that they were called on."""
        stream = self._stream
        if stream is None or stream.cuda_stream == _C._cuda_getCurrentRawStream(stream.device_index):  # noqa: SLF001
            return contextlib.nullcontext()
        return torch.cuda.stream(stream)

    def stack(self) -> AttentionCall:
        """All of them as one, stacked along the batch."""
        return _stack(self._members)


def _may_wait(x: Tensor) -> bool:
    """Whether calls on this device wait; a device takes its time to spell its name."""
    return x.is_cuda or x.device.type in _DEVICES


def _is_stackable(mask: Tensor, b: int) -> bool:
    """Whether a mask can be stacked along the batch."""
    return mask.dim() == 4 and mask.size(0) in (1, b)


def _without_tensors(call: AttentionCall, member: _Member) -> AttentionCall:
    """A call that holds on to nothing but what its member holds."""
    mask, n = call.inputs.mask, len(call.inputs.mask.allowed)
    own = Mask(mask.bands, (), member.masks[:n], member.masks[n:])
    return replace(call, inputs=replace(call.inputs, q=member.q, k=member.k, mask=own))


def _stack(members: list[_Member]) -> AttentionCall:
    """One call of many."""
    first = members[0]
    q, k = _cat_heads([x.q for x in members]), _cat_heads([x.k for x in members])
    lse = None if first.lse is None else _cat([x.lse for x in members if x.lse is not None])
    said = _stack_said(members)
    if first.call is None and not first.masks:  # read as any other, without the detour
        (b, h, t, d), s = q.shape, k.size(2)
        mask = _CAUSAL.fitted((b, h), t, s) if first.is_causal else _NO_MASK
        inputs = ScoreInputs(q, k, mask, d**-0.5 if first.scale is None else first.scale)
        known = None if lse is None else fused_lse(q, (q, lse))
        return AttentionCall(inputs=inputs, lead=(b, h), lse=known, said=said)
    masks = tuple(_stack_masks(x, first.q.size(0)) for x in zip(*(x.masks for x in members), strict=True))
    if first.call is None:
        arguments: dict[str, Any] = {
            "query": q, "key": k, "value": q, "attn_mask": masks[0], "is_causal": first.is_causal,
            "scale": first.scale,
        }  # fmt: skip
        return replace(_read_fused(arguments, (q, lse)), said=said)
    inputs, n = first.call.inputs, len(first.call.inputs.mask.allowed)
    inputs = replace(inputs, q=q, k=k, mask=Mask(inputs.mask.bands, (), masks[:n], masks[n:]))
    return replace(first.call, inputs=inputs, lead=tuple(q.shape[:2]), lse=lse, said=said)


def _kind_of(said: Padding | None) -> tuple[object, ...]:
    """What was said of calls that are stacked, but for the queries themselves."""
    return () if said is None else (said.source, said.queries is None, said.said is None, said.is_known)


def _stack_said(members: list[_Member]) -> Padding | None:
    """What was said of all of them."""
    first = members[0].said
    if first is None:
        return None
    b = members[0].q.size(0)
    queries = [x.said.queries.expand(b, -1) for x in members if x.said and x.said.queries is not None]
    said = [x.said.said for x in members if x.said and x.said.said is not None]
    return first._replace(queries=_cat(queries) if queries else None, said=_cat(said) if said else None)


def _stack_masks(masks: tuple[Tensor, ...], b: int) -> Tensor:
    """Masks along their batch; one alone where all items of all calls share it."""
    first = masks[0]
    if first.size(0) == 1 and all(x is first for x in masks):
        return first
    return _cat([x.expand(b, -1, -1, -1) for x in masks])


def _cat_heads(tensors: list[Tensor]) -> Tensor:
    """Queries or keys along their batch, laid out as they are: heads inside of tokens are copied at once."""
    if len(tensors) > 1 and tensors[0].stride(1) < tensors[0].stride(2):
        return torch.cat([x.transpose(1, 2) for x in tensors]).transpose(1, 2)
    return _cat(tensors)


def _cat(tensors: list[Tensor]) -> Tensor:
    return tensors[0] if len(tensors) == 1 else torch.cat(tensors)
