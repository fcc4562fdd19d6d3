"""Who wants to know of calls of attention in this thread or task: ``sl.watch`` does."""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import torch

__all__ = ["Observer", "call_observed", "is_watched", "observe"]

Observer = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
_OBSERVERS: ContextVar[tuple[Observer, ...]] = ContextVar("observers", default=())  # the last to come is last


def observe(observer: Observer) -> Callable[[], None]:
    """Let an observer make the calls of attention in this context; what is returned takes it off again."""
    _OBSERVERS.set((*_OBSERVERS.get(), observer))

    def stop() -> None:
        _OBSERVERS.set(tuple(other for other in _OBSERVERS.get() if other is not observer))

    return stop


def is_watched() -> bool:
    """Whether an observer wants to know of calls; compiled code is on its own."""
    return not torch.compiler.is_compiling() and bool(_OBSERVERS.get())


def call_observed(function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Let the last observer make a call of attention; those before it see the call that it makes."""
    *rest, last = _OBSERVERS.get()
    before = _OBSERVERS.set(tuple(rest))
    try:
        return last(function, args, options)
    finally:
        _OBSERVERS.reset(before)
