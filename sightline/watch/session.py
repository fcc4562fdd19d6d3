"""One call of a watched model, measured: whether it was asked for, what is padding, what is kept."""

import contextlib
import functools
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch

from sightline.look.asked import Asked, fitted, measure_sight
from sightline.look.engine import tile_weights
from sightline.look.inputs import PrecomputedWeights, Tile
from sightline.look.isolate import isolated
from sightline.look.recording import Recording, StackedCalls, do_nothing
from sightline.look.sharded.axes import Shard
from sightline.look.sight import Sight
from sightline.look.source import Block
from sightline.watch.batching import WRITTEN_TO, CallQueue
from sightline.watch.call_info import CallInfo, CallTracker
from sightline.watch.kernel_calls import KernelCall, KernelParams
from sightline.watch.listeners import silence
from sightline.watch.padding import Padding, UserPadding, place_padding
from sightline.watch.random_scores import RefuseRandom
from sightline.watch.readers.sdpa import AttentionCall, UnreadableError

if TYPE_CHECKING:
    from sightline.watch.sharded import RingCalls

__all__ = ["CallSession", "RefusedError", "WatchOptions", "reason_of"]

CallDecision = Literal["measure", "leave out", "ignore"]  # what to do with a call
_FEW_QUERIES = 8  # with so few it is cheaper to keep their weights than their keys


class RefusedError(RuntimeError):
    """What must not be watched at all."""


class WatchOptions(NamedTuple):
    """What was asked of a watch; see :func:`sightline.watch`.

    Attributes:
        in_main_memory: Whether what is kept leaves the device.
        padding: What the user said is padding.
    """

    is_selected: Callable[[str], bool]
    every: int
    measure: Asked
    keep: bool
    in_main_memory: bool
    limit: int
    padding: UserPadding | None
    tokens: tuple[tuple[str, ...], ...]
    grad: bool


class CallSession:
    """Measures the calls that were asked for, and collects their sights.

    Args:
        seen: Where they are collected.
        options: What was asked for.
        notes: Takes note of what is no number.
    """

    def __init__(self, seen: Recording, options: WatchOptions, notes: CallTracker) -> None:
        self._seen, self._options, self._notes = seen, options, notes
        self._put_by: list[CallInfo] = []  # the notes of all calls that were put by, by their number
        self._counts: dict[str, int] = {}  # calls of each module so far
        self._waiting = CallQueue()
        self._ring: RingCalls | None = None  # calls whose sequence is spread over processes
        self._finish_sight = functools.partial(_finish_sight, self._put_by)  # holds the notes alone
        seen.launch = self.launch

    def plan(self, name: str) -> CallDecision:
        """Note that a module attends, and say what is to be done with this call of it."""
        count = self._counts.get(name, -1) + 1
        if not count:
            self._seen.mark_called(name)
            if not self._options.is_selected(name):
                self._seen.mark_skipped(name)
                return "ignore"
        self._counts[name] = count
        if count % self._options.every:
            return "leave out"
        if self._seen.nbytes + self._waiting.nbytes > self._options.limit and self._is_full():
            return "ignore"
        return "measure"

    def leave_out(self, name: str, call: AttentionCall) -> None:
        """Note a call that is not measured: those after it go on from where it leaves them."""
        self._notes.skip(name, call)

    def put_by(
        self,
        name: str,
        heard: KernelCall,
        facts: KernelParams,
        said: Padding | None,
        shard: Shard | None = None,
    ) -> bool:
        """Put a call of one of torch's own kernels by, unread; False if it can't wait, or not unread.

        Args:
            name: The module that called.
            heard: What it called.
            facts: What the kernel was told beside q and k.
            said: What was said of its queries that are padding.
            shard: Which heads of how many it has, where other processes have the rest.
        """
        sizes = self._waiting.put(name, heard, said, facts)
        if sizes is None:
            return False
        note = self._notes.take(name, *sizes, is_trained=heard.args[0].requires_grad)
        note.shard = shard
        self._wait(note)
        return True

    def _wait(self, note: CallInfo) -> None:
        note.waits = True
        self._put_by.append(note)
        if self._waiting.is_full:
            self.launch()

    def measure_call(self, name: str, call: AttentionCall, *, now: bool) -> Sight | None:
        """Measure a call, or put it by.

        Args:
            name: The module that called.
            call: What it called.
            now: Whether its sight is needed at once.
        """
        if _capturing():
            raise RefusedError(
                "a watched model can't be captured into a CUDA graph, whose replays write over what was "
                "seen; capture it outside the block, or watch it without the graph"
            )
        b, _, t, s = call.inputs.shape
        t, s = (t, s) if call.ring is None else call.ring.whole
        note = self._notes.take(name, b, t, s, is_trained=call.inputs.q.requires_grad)
        if call.ring is not None:
            self._measure_ring(name, call, note)
            return None
        note.shard = call.shard
        at_once = now or self._options.keep or call.inputs.sink is not None
        if not at_once and self._waiting.add(name, call):
            self._wait(note)
            return None
        self._seen.settle()
        sight = note.onto(self._measure(name, call))
        self._seen.add(name, sight)
        return sight

    def _measure_ring(self, name: str, call: AttentionCall, note: CallInfo) -> None:
        """Measure a call whose sequence is spread over processes."""
        from sightline.watch.sharded import RingCalls  # noqa: PLC0415

        if self._options.padding is not None:
            raise UnreadableError(
                "its sequence is spread over processes, and attention_mask= or lengths= is not; leave it out"
            )
        if self._options.grad:
            raise UnreadableError("its sequence is spread over processes, where grad=True keeps no graph")
        self._ring = RingCalls(self._seen) if self._ring is None else self._ring
        self._ring.measure(name, call, self._options.measure, note, keep=self._options.keep)

    def finish(self, *, failed: bool) -> None:
        """The block ends: measure what waits, and put together what is spread over processes.

        All processes come by here. From now on the sights hold on to nothing of the block.
        """
        self.launch()
        self._seen.launch = do_nothing
        ring, self._ring = self._ring, None
        if ring is None:
            return
        with silence(), isolated():
            if failed:
                ring.drop()
            else:
                ring.finish(keep=self._options.keep)

    def launch(self) -> None:
        """Measure all calls that wait; whatever goes wrong is noted, never raised."""
        if not len(self._waiting):
            return
        with isolated():  # where nothing is heard
            groups, lost = self._waiting.take()
            for name in lost:
                self._seen.mark_unseen(name, WRITTEN_TO)
            for group in groups:
                try:
                    with group.on_stream():
                        sight = self._measure(group.names[0], group.stack(), len(group.names))
                    stacked = StackedCalls(sight, group.names, group.orders)
                    self._seen.expect(stacked, self._finish_sight)
                except Exception as error:  # noqa: BLE001 (the model must not feel it)
                    for name in group.names:
                        self._seen.mark_unseen(name, reason_of(error))

    def _is_full(self) -> bool:
        """Whether as much has been collected as was allowed."""
        self.launch()
        self._seen.full = self._seen.nbytes > self._options.limit
        return self._seen.full

    def _measure(self, name: str, call: AttentionCall, n_calls: int = 1) -> Sight:
        """Measure a call, or several of one shape that have been stacked."""
        padding, source = place_padding(call.said, call.inputs)
        if call.inputs.padding is None:
            call = call.with_padding(padding)
        keep_apart = self._options.keep and call.backward is None
        with contextlib.nullcontext() if call.inputs.score is None else RefuseRandom():
            sight = measure_sight(
                call.inputs.detached() if keep_apart else call.inputs,
                fitted(self._options.measure, *call.inputs.shape[2:], n_calls),
                lead=call.lead,
                lse=call.lse,
                keep=self._options.keep,
                name=name,
                source=call.source,
                padding=source,
            )
        if call.backward is not None:
            return replace(sight, backward=call.backward)
        if self._options.keep and sight.t <= _FEW_QUERIES and call.source != "weights":
            sight = _keep_rows(sight)
        return (
            sight.with_kept(tuple(x.to("cpu") for x in sight.kept)) if self._options.in_main_memory else sight
        )


def reason_of(error: Exception) -> str:
    """An error as the reason why something was not seen."""
    if isinstance(error, UnreadableError):
        return str(error)
    first = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {first}"[:200]


def _finish_sight(notes: list[CallInfo], order: int, sight: Sight) -> Sight:
    """The sight of a call that was put by, with what was noted of it."""
    return notes[order].onto(sight)


def _keep_rows(sight: Sight) -> Sight:
    """Keep the weights themselves instead of q and k."""
    (block,) = sight.kept
    b, h, t, s = block.inputs.shape
    weights = tile_weights(block, Tile(slice(0, b), slice(0, h), (0, t), (0, s)))
    rows = PrecomputedWeights.of(weights).with_versions()
    return sight.with_kept((Block(rows, weights.new_zeros(b, h, t, dtype=torch.float64)),))


def _capturing() -> bool:
    """Whether a CUDA graph is being captured; a torch without CUDA can't be asked."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()
