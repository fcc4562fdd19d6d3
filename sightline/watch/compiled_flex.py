"""FlexAttention as people call it: compiled on its own, inside a model that is not.

Compiled code meets no operator that a look could hear, so the call itself is heard. ``torch.compile`` wraps a
function in another one, which tells torch when it has ended: there its function, its arguments and its output
can be read off Python's stack. Hugging Face hands out a compiled function of its own and may compile it in
the block, so it is heard where it is handed out. Models that are compiled as a whole don't pass at either
place, and nothing is recompiled.
"""

import contextlib
import functools
import inspect
import sys
import threading
from collections.abc import Callable
from contextvars import ContextVar, Token
from types import FrameType
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from sightline.watch.listeners import LISTENERS, listeners, silence
from sightline.watch.modules import local_variables

__all__ = ["FlexListener", "intercept_compiled_flex"]

_FLEX = "torch.nn.attention.flex_attention"
_WRAPPER = "compile_wrapper"  # the function around a compiled one


@runtime_checkable
class FlexListener(Protocol):
    """Who makes a call of compiled FlexAttention, and may look at what it was called with."""

    def call_flex(self, call: Callable[[], Any], q: Tensor, k: Tensor, options: dict[str, Any]) -> Any:
        """Make the call."""
        ...

    def on_compiled(self, function: str) -> None:
        """Another compiled function has run."""
        ...


_LISTENERS: ContextVar[tuple[FlexListener, ...]] = ContextVar("flex_listeners", default=())
_LOCK = threading.Lock()
_QUIET: dict[int, Token[Any]] = {}  # the listeners before each call that has begun, by its frame


class intercept_compiled_flex:  # noqa: N801 (used as a function)
    """Tell of calls in this thread and context, inside the block."""

    __slots__ = ("_listener", "_undo")

    def __init__(self, listener: FlexListener) -> None:
        self._listener = listener

    def __enter__(self) -> None:
        """They are told from here on."""
        _LISTENERS.set((*_LISTENERS.get(), self._listener))
        self._undo = _install()

    def __exit__(self, *_error: object) -> None:
        """No more."""
        _LISTENERS.set(tuple([other for other in _LISTENERS.get() if other is not self._listener]))
        self._undo()


class _Patch:
    """An attribute that is another one while any block of the process is open.

    Args:
        owner: What has the attribute.
        name: The attribute.
        wrap: What it is replaced by, given what it was.
    """

    def __init__(self, owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
        self._owner, self._name, self._wrap = owner, name, wrap
        self._n_open = 0

    def install(self) -> None:
        if not self._n_open:
            self._original = getattr(self._owner, self._name)
            setattr(self._owner, self._name, self._wrap(self._original))
        self._n_open += 1

    def uninstall(self) -> None:
        self._n_open -= 1
        if not self._n_open:
            setattr(self._owner, self._name, self._original)


_PATCHES: dict[str, _Patch] = {}


def _install() -> Callable[[], None]:
    """Listen at both places, as far as they have been imported; gives what undoes it."""
    with _LOCK:
        for module, (owner, name, wrap) in _PLACES.items():
            found = sys.modules.get(module)
            found = found if owner is None else getattr(found, owner, None)
            if module not in _PATCHES and hasattr(found, name):
                _PATCHES[module] = _Patch(found, name, wrap)
        there = list(_PATCHES.values())
        for patch in there:
            patch.install()

    def undo() -> None:
        with _LOCK:
            for patch in there:
                patch.uninstall()

    return undo


# Hugging Face's compiled function


def _hand_out(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda self: functools.partial(_heard, original(self))


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


# A function that anyone has given to torch.compile


def _around_call(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """What torch calls before and after compiled code."""

    def set_eval_frame(callback: Any) -> Any:
        frame = sys._getframe(1)  # noqa: SLF001
        if frame.f_code.co_name == _WRAPPER and _LISTENERS.get():
            with contextlib.suppress(Exception):  # what is not understood is no attention
                _begin_or_end(frame, callback)
        return original(callback)  # from here on Python functions may be compiled

    return set_eval_frame


def _begin_or_end(frame: FrameType, callback: Any) -> None:
    quiet = _QUIET.pop(id(frame), None)
    if quiet is not None:
        LISTENERS.reset(quiet)
    variables = local_variables(frame, "fn", "args", "kwargs", "prior", "result")
    function, args, kwargs, prior, result = variables
    flex = getattr(sys.modules.get(_FLEX), "flex_attention", None)
    function = inspect.unwrap(function)
    while isinstance(function, functools.partial):
        args, kwargs = (*function.args, *args), function.keywords | kwargs
        function = inspect.unwrap(function.func)
    if not listeners():
        return
    if function is not flex:
        if callback is prior:
            for listener in _LISTENERS.get():
                listener.on_compiled(getattr(function, "__name__", type(function).__name__))
        return
    if quiet is None:  # it begins; should its operators be heard, they are a part of it
        _QUIET[id(frame)] = LISTENERS.set(())
        return
    has_raised = result is None if "result" in frame.f_code.co_varnames else sys.exc_info()[0] is not None
    if has_raised:
        return
    given = inspect.signature(flex).bind(*args, **kwargs).arguments
    for listener in _LISTENERS.get():
        listener.call_flex(lambda: result, given["query"], given["key"], given)


_PLACES: dict[str, tuple[str | None, str, Callable[[Any], Any]]] = {
    "transformers.integrations.flex_attention": ("WrappedFlexAttention", "__call__", _hand_out),
    "torch._dynamo.eval_frame": (None, "_maybe_set_eval_frame", _around_call),
}
