"""FlexAttention as Hugging Face calls it: compiled on its own, inside a model that is not.

Compiled code meets no operator that a look could hear, so the call itself is heard, where transformers hands
out the compiled function. Models that are compiled as a whole don't pass there, and nothing is recompiled.
"""

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from torch import Tensor

__all__ = ["FlexListener", "hear_compiled_flex"]

_MODULE = "transformers.integrations.flex_attention"
_CLASS = "WrappedFlexAttention"


class FlexListener(Protocol):
    """Who makes a call of compiled FlexAttention, and may look at what it was called with."""

    def call_flex(self, call: Callable[[], Any], q: Tensor, k: Tensor, options: dict[str, Any]) -> Any:
        """Make the call."""
        ...


class _Listeners(threading.local):
    """Those of this thread, innermost last."""

    stack: tuple[FlexListener, ...] = ()


_LISTENERS = _Listeners()
_LOCK = threading.Lock()
_USERS: list[Any] = []  # the original method, once per listener in any thread


@contextlib.contextmanager
def hear_compiled_flex(listener: FlexListener) -> Iterator[None]:
    """Tell of calls in this thread, inside the block."""
    before = _LISTENERS.stack
    wrapped = getattr(sys.modules.get(_MODULE), _CLASS, None)
    _LISTENERS.stack = (*before, listener)
    _install(wrapped)
    try:
        yield
    finally:
        _LISTENERS.stack = before
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
    call: Callable[[], Any] = functools.partial(function, query, key, value, **options)
    for listener in _LISTENERS.stack:
        call = functools.partial(listener.call_flex, call, query, key, options)
    return call()
