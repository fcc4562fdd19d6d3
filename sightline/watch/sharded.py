"""Context-parallel calls of a watched model: a ring pass for each, and two collectives for all.

Torch's ``context_parallel`` hands DTensors that are spread over the tokens to its own ring of kernels, and
gets the output and the merged log-sum-exp back. A look takes that log-sum-exp and passes the keys round once
more. What has to be added up over the ranks waits until the block ends, where every rank is sure to come by.
"""

import sys
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from sightline.attention.masks import Mask, causal
from sightline.look.asked import Asked, fitted
from sightline.look.engine import Found, collect, finish, parts_of, run
from sightline.look.inputs import ScoreInputs
from sightline.look.measure import Lse
from sightline.look.recording import Recording
from sightline.look.sharded.look import sight_of, without_lse
from sightline.look.sharded.placements import is_dtensor, local, spread_of
from sightline.look.sharded.ring import RingSource, make_ring, reduce_together
from sightline.look.source import OutAxis
from sightline.watch.attention_call import AttentionCall, UnreadableError
from sightline.watch.call_info import CallInfo

__all__ = ["RingCalls", "read_dtensors"]

_LATER = "its sequence is spread over processes; it is put together when the block ends on all of them"
_LOST = "its sequence is spread over processes, and the block ended in an error before it was put together"
_APART = "its sequence is spread over processes, and they did not come together"
_MUCH = 256 << 20  # bytes that may wait to be added up; all ranks have as many
_PACKAGE = "torch.distributed.tensor.experimental"
_OPTIONS = (f"{_PACKAGE}._context_parallel._attention", f"{_PACKAGE}._attention")


def read_dtensors(func: Any, arguments: dict[str, Any], result: Any, read: Any) -> AttentionCall:
    """Read a call of one of torch's kernels on DTensors, (B, H, length, D).

    Args:
        func: The operator.
        arguments, result: What it was given, by name, and what it gave.
        read: Reads the same of this rank's parts.
    """
    q, k = arguments["query"], arguments["key"]
    if not is_dtensor(q) or not is_dtensor(k):
        raise UnreadableError("one of q and k is a DTensor, the other is not")
    is_causal = bool(arguments.get("is_causal"))
    spread = spread_of(q, k, balanced=is_causal and _is_balanced(func, q))
    if spread.group is None:
        own = {name: local(x) if is_dtensor(x) else x for name, x in arguments.items()}
        found: AttentionCall = read(own, (result[0], _lse(result[1], q)))
        return replace(found, shard=spread.shard if spread.shard.axes else None)
    if any(isinstance(arguments.get(name), Tensor) for name in ("attn_mask", "attn_bias")):
        raise UnreadableError(
            "its sequence is spread over processes and it has a mask that is a tensor, whose rows and "
            "columns a rank does not have"
        )
    ring = make_ring(spread.group, spread.queries, spread.keys)
    mask = Mask(bands=causal(align="start").bands) if is_causal else Mask()
    scale = arguments.get("scale")
    inputs = ScoreInputs(local(q), local(k), mask, q.size(-1) ** -0.5 if scale is None else scale)
    lead = (inputs.q.size(0), inputs.q.size(1))
    lse = _lse(result[1], q) if len(result) > 1 else None
    shard = spread.shard if spread.shard.axes else None
    return AttentionCall(inputs=inputs, lead=lead, lse=lse, shard=shard, ring=ring)


def _lse(lse: Any, q: Any) -> Tensor | None:
    """The log-sum-exp of this rank's queries, if that is what the kernel left here.

    It is where it is spread as q is. Elsewhere torch has moved q on the way to its kernel.
    """
    if not is_dtensor(lse) or tuple(lse.placements) != tuple(q.placements):
        return None
    own, t = local(lse), local(q).size(2)
    own = own.squeeze(-1) if own.dim() == 4 else own  # cuDNN's has a last dimension of one
    same = own.dim() == 3 and own.shape[:2] == local(q).shape[:2] and own.size(-1) >= t
    return own[..., :t] if same else None  # the efficient kernel's is padded


def _is_balanced(func: Any, q: Any) -> bool:
    """Whether torch's ring runs with its load balancer: a causal sequence is then in its order."""
    handlers = getattr(getattr(type(q), "_op_dispatcher", None), "_custom_op_handlers", {})
    if func not in handlers:
        return False
    modules = filter(None, map(sys.modules.get, _OPTIONS))
    options = [x for x in (getattr(module, "_cp_options", None) for module in modules) if x is not None]
    return any(bool(getattr(x, "enable_load_balance", False)) for x in options)


@dataclass(frozen=True, eq=False)
class _RingCall:
    name: str
    call: AttentionCall
    source: RingSource
    found: Found
    note: CallInfo

    @property
    def parts(self) -> list[tuple[OutAxis, str, Tensor]]:
        """What has to be put together over the ranks."""
        return [(out.axis, m.op, x) for m, out, x in parts_of(self.found)]

    @property
    def nbytes(self) -> int:
        """How much of it is sent."""
        return sum(x.nbytes for axis, _, x in self.parts if axis != "query")

    def answers(self, whole: list[Tensor]) -> dict[str, Tensor]:
        """Return the statistics, from what the ranks have found together."""
        parts = iter(whole)
        return finish({m: [next(parts) for _ in xs] for m, xs in self.found.items()})


class RingCalls:
    """The calls of a watched model whose sequence is spread; all ranks have the same, in the same order."""

    def __init__(self, seen: Recording) -> None:
        self._seen = seen
        self._calls: list[_RingCall] = []

    def measure(self, name: str, call: AttentionCall, asked: Asked, note: CallInfo, *, keep: bool) -> None:
        """Pass the keys round, and keep what has to be added up."""
        assert call.ring is not None  # noqa: S101
        self._seen.mark_dark(name, _LATER)
        lse = call.lse
        if lse is None:
            lse = run([Lse()], call.ring.source(call.inputs, None))["lse"]
        source = call.ring.source(call.inputs, lse)
        found = collect(without_lse(fitted(asked, *call.ring.whole)), source)
        self._calls.append(_RingCall(name, call, source, found, note))
        if sum(x.nbytes for x in self._calls) > _MUCH:
            self.finish(keep=keep)

    def finish(self, *, keep: bool) -> None:
        """Add up what waits, and give each call its sight; whatever goes wrong is noted. Collective."""
        calls, self._calls = self._calls, []
        by_group: dict[int, list[_RingCall]] = {}
        for one in calls:
            by_group.setdefault(id(one.source.ring.group), []).append(one)
        found: dict[int, dict[str, Tensor]] = {}
        for some in by_group.values():
            try:
                whole = reduce_together([(x.source.ring, x.parts) for x in some])
                found |= {id(x): x.answers(parts) for x, parts in zip(some, whole, strict=True)}
            except Exception as error:  # noqa: BLE001 (a rank that is gone must not end this one's block)
                for one in some:
                    self._seen.mark_unseen(one.name, f"{_APART}: {type(error).__name__}: {error}"[:300])
        for one in calls:
            if id(one) in found:
                self._add(one, found[id(one)], keep=keep)

    def _add(self, one: _RingCall, statistics: dict[str, Tensor], *, keep: bool) -> None:
        sight = sight_of(
            one.source, statistics, tuple(one.found), lead=one.call.lead, beside=one.call.shard, keep=keep,
            name=one.name,
        )  # fmt: skip
        self._seen.add(one.name, one.note.onto(sight), is_counted=True)
        # The same number on every rank, whatever its part: all of them reach the limit at the same call.
        self._seen.nbytes += one.nbytes

    def drop(self) -> None:
        """Let go of what waits: some rank may never come by."""
        for one in self._calls:
            self._seen.mark_unseen(one.name, _LOST)
        self._calls = []
