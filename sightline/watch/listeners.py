"""Who listens: in this thread and this task of an event loop, and to which keys."""

import threading
from contextvars import ContextVar
from typing import Any, Protocol, runtime_checkable

import torch
from torch._guards import _TLS

from sightline.watch import dispatch_keys
from sightline.watch.kernel_calls import KernelCall

# ruff: noqa: SLF001 (torch has no public way to its dispatcher)
__all__ = ["LISTENERS", "THREAD", "Listener", "listeners", "silence"]

_C: Any = torch._C
_graph_task, _transform = _C._current_graph_task_id, _C._functorch.peek_interpreter_stack


@runtime_checkable
class Listener(Protocol):
    """Who is told of operators, after they have run; it must not raise."""

    is_open: bool

    @property
    def is_following(self) -> bool:
        """Whether scores or weights are on their way."""
        ...

    @property
    def hears_matrices(self) -> bool:
        """Whether to tell it of products of two matrices."""
        ...

    def on_attention(self, call: KernelCall) -> None:
        """An attention kernel has run."""
        ...

    def on_product(self, args: tuple[Any, ...], result: Any) -> bool:
        """Matrices have been multiplied; whether that may have made scores."""
        ...

    def on_softmax(self, args: tuple[Any, ...], result: Any) -> None:
        """A softmax has been taken."""
        ...

    def on_change(self, args: tuple[Any, ...], result: Any) -> None:
        """Something was done to what may be scores or weights."""
        ...

    def on_select(self, func: Any, args: tuple[Any, ...]) -> None:
        """Items of a tensor are selected."""
        ...


LISTENERS: ContextVar[tuple[Listener, ...]] = ContextVar("listeners", default=())


class _Thread(threading.local):
    """The open listeners of this thread, in whatever context, and how far they are."""

    def __init__(self) -> None:
        self.open: set[Listener] = set()
        self.follows = False
        self.has_told = False  # whether a mode around this one is at it

    def include(self) -> None:
        """Turn the keys on and off as the open listeners need them."""
        self.open = {listener for listener in self.open if listener.is_open}
        dispatch_keys.include(dispatch_keys.ATTENTION, on=bool(self.open))
        self.follows = any(listener.is_following for listener in self.open)
        dispatch_keys.include(dispatch_keys.BY_HAND, on=self.follows)
        dispatch_keys.include(
            dispatch_keys.MATRICES, on=any(listener.hears_matrices for listener in self.open)
        )


THREAD = _Thread()


def listeners() -> tuple[Listener, ...]:
    """Who listens here and now: nobody while torch compiles, transforms, or computes something again."""
    there = LISTENERS.get()
    if (
        not there
        or _graph_task() != -1  # a backward pass, where checkpoints compute again
        or _TLS.__dict__.get("tracing_context") is not None
        or _transform() is not None  # the operators that it leads to come later
    ):
        return ()
    for listener in there:
        if not listener.is_open:  # a block that was left in another context
            return tuple(other for other in there if other.is_open)
    return there


class silence:  # noqa: N801 (used as a function)
    """Hear nothing: a look's own operators are no part of the model."""

    __slots__ = ("_before", "_guard")

    def __enter__(self) -> None:
        """Nobody listens from here on."""
        self._before = LISTENERS.set(())
        self._guard = _C._ExcludeDispatchKeyGuard(dispatch_keys.ALL)
        self._guard.__enter__()

    def __exit__(self, *_error: object) -> None:
        """As before."""
        self._guard.__exit__(None, None, None)
        LISTENERS.reset(self._before)
