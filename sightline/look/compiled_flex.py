"""FlexAttention as Hugging Face calls it: compiled on its own, inside a model that is not.

Compiled code meets no operator that a look could hear, so the call itself is heard, where transformers hands
out the compiled function. Models that are compiled as a whole don't pass there, and nothing is recompiled.
"""

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from sightline.look.listeners import silence

__all__ = ["FlexListener", "hear_compiled_flex"]

_MODULE = "transformers.integrations.flex_attention"
_CLASS = "WrappedFlexAttention"


@runtime_checkable
class FlexListener(Protocol):
    """Who makes a call of compiled FlexAttention, and may look at what it was called with."""

    def call_flex(self, call: Callable[[], Any], q: Tensor, k: Tensor, options: dict[str, Any]) -> Any:
        """Make the call."""
        ...


_LISTENERS: ContextVar[tuple[FlexListener, ...]] = ContextVar("flex_listeners", default=())
_LOCK = threading.Lock()
_USERS: list[Any] = []  # the original method, once per listener in any thread


@contextlib.contextmanager
def hear_compiled_flex(listener: FlexListener) -> Iterator[None]:
    """Tell of calls in this thread and context, inside the block."""
    wrapped = getattr(sys.modules.get(_MODULE), _CLASS, None)
    _LISTENERS.set((*_LISTENERS.get(), listener))
    _install(wrapped)
    try:
        yield
    finally:
        _LISTENERS.set(tuple(other for other in _LISTENERS.get() if other is not listener))
        _uninstall(wrapped)


def _install(wrapped: Any) -> None:
    if wrapped is None:
        return
    with _LOCK:
        original = _USERS[0] if _USERS else wrapped.__call__
        if not _USERS:
            wrapped.__call__ = lambda self: functools.partial(_heard, original(self))
        _USERS.append(original)


def _uninstall(wrapped: Any) -> None:
    if wrapped is None:
        return
    with _LOCK:
        original = _USERS.pop()
        if not _USERS:
            wrapped.__call__ = original


def _heard(function: Callable[..., Any], query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Any:
    there = _LISTENERS.get()
    call: Callable[[], Any] = functools.partial(function, query, key, value, **options)
    if there:
        call = functools.partial(_call_in_silence, call)
    for listener in there:
        call = functools.partial(listener.call_flex, call, query, key, options)
    return call()


def _call_in_silence(call: Callable[[], Any]) -> Any:
    """Compile and run as if nobody listened: compiled code checks who does."""
    with silence():
        return call()
