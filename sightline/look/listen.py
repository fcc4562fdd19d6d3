"""Hear the operators that attention is made of, where they are called and nowhere else.

Torch's dispatcher has keys that nobody uses. One of them, on in this thread while a block is open, leads to
functions of ours for the few operators that matter; every other operator falls through it and pays nothing.
It lies above autograd, so q and k come as the model made them. A second key follows scores that a model
computes by hand, and is on only between a product and the softmax or values that it meets. A third one hears
products of two matrices: nearly all of them are linear layers, so it stays off for a model that is known to
attend by kernels alone.

Compiled code checks which keys are on before it runs, and would be compiled again. Where torch.compile is in
use a mode listens instead, which compiled code does not mind: every operator pays for it, but compiled code
has few.

Who listens is kept in a context variable: each thread and each task of an event loop has its own listeners,
in whatever order their blocks begin and end, and no module is hooked.
"""

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch._guards import TracingContext
from torch.library import Library, fallthrough_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from sightline.look.adapters import HEADS, KERNEL, LAYERS, NAMES, adapter_of
from sightline.look.by_hand import CHANGES, COMPOSITE, MATRICES, NESTED, PRODUCTS, SOFTMAX, WHOLE
from sightline.look.fused import FUSED, argument_names, call_with_lse
from sightline.look.isolate import is_recomputing

__all__ = ["Listener", "listeners", "listening", "silence"]

_C: Any = torch._C  # noqa: SLF001
_ATTENTION = "TESTING_ONLY_GenericMode"  # hears attention; the highest key that nobody uses
_BY_HAND = "TESTING_ONLY_GenericWrapper"  # hears what becomes of scores
_MATRICES = "DeferredInit"  # hears products of two matrices, which most often are linear layers
_KEYS = {name: _C._parse_dispatch_key(name) for name in (_ATTENTION, _BY_HAND, _MATRICES)}
_BELOW = {name: _C._dispatch_keyset_full_after(key) for name, key in _KEYS.items()}
_CHANGES = _C.DispatchKeySet(_KEYS[_BY_HAND])
_ALL = _CHANGES.add(_KEYS[_ATTENTION]).add(_KEYS[_MATRICES])
_FLEX = "flex_attention"
# How a listener is told of what a mode hears.
_STEPS = (
    dict.fromkeys(CHANGES | WHOLE, "on_change")
    | dict.fromkeys(SOFTMAX, "on_softmax")
    | dict.fromkeys(PRODUCTS | MATRICES, "on_product")
)


@runtime_checkable
class Listener(Protocol):
    """Who is told of operators, after they have run; it must not raise."""

    is_open: bool
    is_following: bool  # whether scores or weights are on their way
    hears_matrices: bool  # whether to tell it of products of two matrices

    def on_attention(self, func: Any, arguments: dict[str, Any], result: Any) -> None:
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


_LISTENERS: ContextVar[tuple[Listener, ...]] = ContextVar("listeners", default=())
# What has been heard inside a whole layer that is one operator; None outside of them.
_PARTS: ContextVar[dict[str, Any] | None] = ContextVar("parts", default=None)


class _Thread(threading.local):
    """The open listeners of this thread, in whatever context, and whether the second key is on."""

    def __init__(self) -> None:
        self.open: set[Listener] = set()
        self.follows = False

    def include(self) -> None:
        """Turn the keys on and off as the open listeners need them."""
        self.open = {listener for listener in self.open if listener.is_open}
        _C._dispatch_tls_set_dispatch_key_included(_KEYS[_ATTENTION], bool(self.open))
        self.follows = any(listener.is_following for listener in self.open)
        _C._dispatch_tls_set_dispatch_key_included(_KEYS[_BY_HAND], self.follows)
        matrices = any(listener.hears_matrices for listener in self.open)
        _C._dispatch_tls_set_dispatch_key_included(_KEYS[_MATRICES], matrices)


_THREAD = _Thread()


@contextlib.contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Tell a listener of what is called in this thread and context until the block ends."""
    listener.is_open = True
    _LISTENERS.set((*_LISTENERS.get(), listener))
    try:
        with _ListenMode() if _uses_compiled_code() else _included(listener):
            yield
    finally:
        listener.is_open = False
        _LISTENERS.set(tuple(other for other in _LISTENERS.get() if other is not listener))
        _THREAD.include()


@contextlib.contextmanager
def _included(listener: Listener) -> Iterator[None]:
    """Turn the key on in this thread; :func:`listening` turns it off."""
    _register()
    _register_flex()
    _THREAD.open.add(listener)
    _THREAD.include()
    yield


def _uses_compiled_code() -> bool:
    """Whether anything has been given to torch.compile in this process."""
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    backends: dict[int, Any] = getattr(dynamo, "cached_backends", {})
    return any(backend is not None for backend in backends.values())


class _ListenMode(TorchDispatchMode):
    """Hears the same below autograd. All of them are alike, so blocks may end in any order."""

    supports_higher_order_operators = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Compiled code stays compiled, and is heard when it runs."""
        return True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operator; if it is attention, or part of one, tell."""
        kwargs = kwargs or {}
        there = listeners()
        if not there:
            return func(*args, **kwargs)
        nested = any(isinstance(x, Tensor) and x.is_nested for x in args)
        told = "on_product" if nested and func in NESTED else _STEPS.get(func)
        if told is not None:
            result = func(*args, **kwargs)
            for listener in there:
                getattr(listener, told)(args, result)
            return result
        if func in COMPOSITE and not nested:
            with self:
                return func.decompose(*args, **kwargs)
        if adapter_of(func) is None:
            return func(*args, **kwargs)
        arguments, result = call_with_lse(func, args, kwargs, func)
        for listener in there:
            listener.on_attention(func, arguments, result)
        return result


def listeners() -> tuple[Listener, ...]:
    """Who listens here and now: nobody while torch compiles, transforms, or computes something again."""
    there = _LISTENERS.get()
    if not there or is_recomputing() or TracingContext.try_get() is not None:
        return ()
    if _C._functorch.peek_interpreter_stack() is not None:  # the operators that it leads to come later
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
        self._before = _LISTENERS.set(())
        self._guard = _C._ExcludeDispatchKeyGuard(_ALL)
        self._guard.__enter__()

    def __exit__(self, *_error: object) -> None:
        """As before."""
        self._guard.__exit__(None, None, None)
        _LISTENERS.reset(self._before)


# The functions that the keys lead to


def _hear_attention(func: Any, keys: Any, *args: Any, **kwargs: Any) -> Any:
    below, there = keys & _BELOW[_ATTENTION], listeners()
    if not there:
        return func.redispatch(below, *args, **kwargs)
    with _C._ExcludeDispatchKeyGuard(_ALL):  # what it is made of is no attention of its own
        arguments, result = call_with_lse(func, args, kwargs, functools.partial(func.redispatch, below))
    parts = _PARTS.get()
    if parts is not None:
        parts[KERNEL] = arguments, result
        return result
    for listener in there:
        listener.on_attention(func, arguments, result)
    return result


def _hear_layer(func: Any, keys: Any, *args: Any, **kwargs: Any) -> Any:
    """A whole layer: the attention in it is heard on the way, and told with what the layer was given."""
    below, there = keys & _BELOW[_ATTENTION], listeners()
    if not there or _PARTS.get() is not None:
        return func.redispatch(below, *args, **kwargs)
    parts: dict[str, Any] = {}
    before = _PARTS.set(parts)
    try:
        result = func.redispatch(below, *args, **kwargs)
    finally:
        _PARTS.reset(before)
    arguments = dict(zip(argument_names(func), args, strict=False)) | kwargs | parts
    for listener in there:
        listener.on_attention(func, arguments, result)
    return result


def _hear_heads(func: Any, keys: Any, *args: Any, **kwargs: Any) -> Any:
    """The queries and keys of a whole layer's attention."""
    result = func.redispatch(keys & _BELOW[_ATTENTION], *args, **kwargs)
    parts = _PARTS.get()
    if parts is not None:
        parts[HEADS] = result[:2]
    return result


def _hear_product(func: Any, keys: Any, *args: Any, **kwargs: Any) -> Any:
    result = func.redispatch(keys & _BELOW[_MATRICES if func in MATRICES else _ATTENTION], *args, **kwargs)
    for listener in listeners() if _PARTS.get() is None else ():
        if listener.on_product(args, result):
            _follow(listener)
    return result


def _hear_softmax(func: Any, keys: Any, *args: Any, **kwargs: Any) -> Any:
    result = func.redispatch(keys & _BELOW[_ATTENTION], *args, **kwargs)
    for listener in listeners() if _PARTS.get() is None else ():
        listener.on_softmax(args, result)
        _follow(listener)
    return result


def _follow(listener: Listener) -> None:
    """Turn the second key on, if a listener has something to follow."""
    if listener.is_following and not _THREAD.follows:
        _register_changes()
        _THREAD.include()


def _hear_change(func: Any, _keys: Any, *args: Any, **kwargs: Any) -> Any:
    with _C._ExcludeDispatchKeyGuard(_CHANGES):  # a number is taken for a tensor here, not by redispatch
        result = func(*args, **kwargs)
    for listener in listeners():
        listener.on_change(args, result)
        if not listener.is_following:
            _THREAD.include()
    return result


def _hear_nested(func: Any, _keys: Any, *args: Any, **kwargs: Any) -> Any:
    """A product of nested tensors, once there are weights; of others its parts are heard."""
    with _C._ExcludeDispatchKeyGuard(_CHANGES):
        result = func(*args, **kwargs)
    for listener in listeners() if result.is_nested else ():
        listener.on_product(args, result)
    return result


def _hear_flex(*args: Any, **kwargs: Any) -> Any:
    func = _higher_order_operators()[_FLEX]
    there = listeners()
    with _C._ExcludeDispatchKeyGuard(_ALL):
        if not there:
            return func(*args, **kwargs)
        arguments, result = call_with_lse(func, args, kwargs, func)
    for listener in there:
        listener.on_attention(func, arguments, result)
    return result


# How they are registered, once in a process and when they are needed first

_LIBRARIES: list[Library] = []  # what is registered lasts as long as these


@functools.cache
def _register() -> None:
    """Lead the first key to attention kernels, products and softmaxes."""
    for name in _KEYS:
        fallback = Library("_", "IMPL")
        fallback.fallback(fallthrough_kernel, name)
        _LIBRARIES.append(fallback)
    for key in _KEYS.values():  # operators of operators have no fallback
        torch._ops._HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS.append(key)  # noqa: SLF001
        for operator in _higher_order_operators().values():
            operator.fallthrough(key)
    for func in FUSED:
        _lead(func, _ATTENTION, _hear_attention)
    for name in NAMES:
        _lead_by_name(name, _ATTENTION, _hear_layer if name in LAYERS else _hear_attention)
    _lead_by_name("aten::_transform_bias_rescale_qkv", _ATTENTION, _hear_heads)
    for func in PRODUCTS:
        _lead(func, _ATTENTION, _hear_product)
    for func in MATRICES:
        _lead(func, _MATRICES, _hear_product)
    for func in SOFTMAX:
        _lead(func, _ATTENTION, _hear_softmax)


@functools.cache
def _register_changes() -> None:
    """Lead the second key to what may be done to scores and weights."""
    for func in CHANGES:
        _lead(func, _BY_HAND, _hear_change)
    for func in NESTED:
        _lead(func, _BY_HAND, _hear_nested)


def _register_flex() -> None:
    """Lead the first key to FlexAttention, once it has been imported."""
    flex = _higher_order_operators().get(_FLEX)
    if flex is not None and _KEYS[_ATTENTION] not in flex.py_kernels:
        flex.py_impl(_KEYS[_ATTENTION])(_hear_flex)


def _lead(func: Any, key: str, hear: Callable[..., Any]) -> None:
    """Lead a key to a function for one operator."""
    schema = func._schema
    name = f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name
    _implement(name, functools.partial(hear, func), key)


def _lead_by_name(name: str, key: str, hear: Callable[..., Any]) -> None:
    """The same for an operator that need not be there yet."""
    namespace, operator = name.split("::")

    def kernel(keys: Any, *args: Any, **kwargs: Any) -> Any:
        return hear(getattr(getattr(torch.ops, namespace), operator).default, keys, *args, **kwargs)

    _implement(name, kernel, key)


def _implement(name: str, kernel: Callable[..., Any], key: str) -> None:
    library = Library(name.split("::", maxsplit=1)[0], "IMPL")
    library.impl(name, kernel, key, with_keyset=True)
    _LIBRARIES.append(library)


def _higher_order_operators() -> dict[str, Any]:
    operators: dict[str, Any] = torch._ops._higher_order_ops  # noqa: SLF001
    return operators
