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

import functools
import sys
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from sightline.watch import dispatch_keys
from sightline.watch.beams import SELECTIONS
from sightline.watch.kernel_calls import Kernel, KernelCall, kernel_of
from sightline.watch.listeners import LISTENERS, THREAD, Listener, listeners
from sightline.watch.readers.eager import CHANGES, COMPOSITE, MATRICES, NESTED, PRODUCTS, SOFTMAX, WHOLE
from sightline.watch.readers.operators import FUSED
from sightline.watch.readers.sdpa import HEADS, KERNEL, LAYERS, NAMES, adapter_of, hub_kernels

__all__ = ["listening", "register", "register_flex", "track_beam_reorders", "uses_compiled_code"]

# ruff: noqa: SLF001 (torch has no public way to its dispatcher)
_C: Any = torch._C
_FLEX = "flex_attention"
_ENCODER_LAYER = "aten::_transformer_encoder_layer_fwd"
_BELOW = dispatch_keys.BELOW[dispatch_keys.ATTENTION]
# How a listener is told of what a mode hears.
_STEPS = (
    dict.fromkeys(CHANGES | WHOLE, "on_change")
    | dict.fromkeys(SOFTMAX, "on_softmax")
    | dict.fromkeys(PRODUCTS | MATRICES, "on_product")
)


_FLEX_OPERATORS: list[Any] = []  # FlexAttention, once its calls are heard
# What has been heard inside a whole layer that is one operator; None outside of them.
_PARTS: ContextVar[dict[str, Any] | None] = ContextVar("parts", default=None)


class listening:  # noqa: N801 (used as a function)
    """Tell a listener of what is called in this thread and context until the block ends."""

    __slots__ = ("_listener", "_mode")

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._mode: Any = None

    def __enter__(self) -> None:
        """It is told from here on."""
        self._listener.is_open = True
        LISTENERS.set((*LISTENERS.get(), self._listener))
        try:
            register_flex()
            if uses_compiled_code():
                mode: Any = _ListenMode()
                mode.__enter__()
                self._mode = mode
            else:
                _include(self._listener)
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *error: object) -> None:
        """It is told no more."""
        try:
            if self._mode is not None:
                self._mode.__exit__(*error)
        finally:
            self._listener.is_open = False
            LISTENERS.set(tuple([other for other in LISTENERS.get() if other is not self._listener]))
            THREAD.include()


def _include(listener: Listener) -> None:
    """Turn the key on in this thread."""
    register()
    for name in hub_kernels():
        _register_kernel(name)
    THREAD.open.add(listener)
    THREAD.include()


def uses_compiled_code() -> bool:
    """Whether anything has been given to torch.compile in this process."""
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    backends: dict[int, Any] = getattr(dynamo, "cached_backends", {})
    return any(backend is not None for backend in backends.values())


class _ListenMode(TorchDispatchMode):
    """Hears the same below autograd. All of them are alike, so blocks may end in any order.

    Of several that are open the uppermost tells all listeners, and the others keep quiet.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Compiled code stays compiled, and is heard when it runs."""
        return True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operator; if it is attention, or part of one, tell."""
        kwargs = kwargs or {}
        there = () if THREAD.has_told else listeners()
        if not there:
            return func(*args, **kwargs)
        THREAD.has_told = True
        try:
            return self._hear(there, func, args, kwargs)
        finally:
            THREAD.has_told = False

    def _hear(
        self, there: tuple[Listener, ...], func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        nested = any(isinstance(x, Tensor) and x.is_nested for x in args)
        told = "on_product" if nested and func in NESTED else _STEPS.get(func)
        if told is not None:
            result = func(*args, **kwargs)
            for listener in there:
                getattr(listener, told)(args, result)
                if func in SELECTIONS:
                    listener.on_select(func, args)
            return result
        if func in COMPOSITE and not nested:
            THREAD.has_told = False
            with self:
                return func.decompose(*args, **kwargs)
        if adapter_of(func) is None:
            return func(*args, **kwargs)
        kernel = kernel_of(func)
        if kernel.may_leave_out_lse:
            args, kwargs = kernel.ask_lse(args, kwargs)
        result = func(*args, **kwargs)
        for listener in there:
            listener.on_attention(KernelCall(kernel, args, kwargs, result))
        return result


# The functions that the keys lead to


def _hear_attention(kernel: Kernel, on: Any, *args: Any, **kwargs: Any) -> Any:
    parts = _PARTS.get()
    there = listeners() if parts is None else ()
    if not there and parts is None:
        return kernel.redispatch(on & _BELOW, *args, **kwargs)
    if kernel.may_leave_out_lse:
        args, kwargs = kernel.ask_lse(args, kwargs)
    with _C._ExcludeDispatchKeyGuard(dispatch_keys.ALL):  # what it is made of is no attention of its own
        result = _call_below(kernel, on, args, kwargs)
    if parts is None:
        call = KernelCall(kernel, args, kwargs, result)
        for listener in there:
            listener.on_attention(call)
    elif kernel.is_fused:
        parts[KERNEL] = KernelCall(kernel, args, kwargs, result, is_inside=True)
    return result


def _call_below(kernel: Kernel, on: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a kernel; a mode that is open as well keeps quiet."""
    if not _C._len_torch_dispatch_stack():
        return kernel.redispatch(on & _BELOW, *args, **kwargs)
    told, THREAD.has_told = THREAD.has_told, True
    try:
        return kernel.redispatch(on & _BELOW, *args, **kwargs)
    finally:
        THREAD.has_told = told


def _hear_layer(kernel: Kernel, on: Any, *args: Any, **kwargs: Any) -> Any:
    """A whole layer: the attention in it is heard on the way, and told with what the layer was given."""
    there = listeners() if _PARTS.get() is None else ()
    if not there:
        return kernel.redispatch(on & _BELOW, *args, **kwargs)
    parts: dict[str, Any] = {}
    before = _PARTS.set(parts)
    try:
        result = _call_below(kernel, on, args, kwargs)
    finally:
        _PARTS.reset(before)
    call = KernelCall(kernel, args, kwargs, result, parts)
    for listener in there:
        listener.on_attention(call)
    return result


def _hear_heads(func: Any, on: Any, *args: Any, **kwargs: Any) -> Any:
    """The queries and keys of a whole layer's attention."""
    result = func.redispatch(on & _BELOW, *args, **kwargs)
    parts = _PARTS.get()
    if parts is not None:
        q, k = result[:2]
        parts[HEADS] = q.clone(), k  # torch writes the output over its queries
    return result


def _hear_product(func: Any, on: Any, *args: Any, **kwargs: Any) -> Any:
    below = on & dispatch_keys.BELOW[dispatch_keys.MATRICES if func in MATRICES else dispatch_keys.ATTENTION]
    result = func.redispatch(below, *args, **kwargs)
    register_flex()  # in case that it has been imported in the block
    for listener in listeners() if _PARTS.get() is None else ():
        if listener.on_product(args, result):
            _follow(listener)
    return result


def _hear_softmax(func: Any, on: Any, *args: Any, **kwargs: Any) -> Any:
    result = func.redispatch(on & _BELOW, *args, **kwargs)
    for listener in listeners() if _PARTS.get() is None else ():
        listener.on_softmax(args, result)
        _follow(listener)
    return result


def _follow(listener: Listener) -> None:
    """Turn the second key on, if a listener has something to follow."""
    if listener.is_following and not THREAD.follows:
        _register_changes()
        THREAD.include()


def _hear_change(func: Any, _on: Any, *args: Any, **kwargs: Any) -> Any:
    with _C._ExcludeDispatchKeyGuard(
        dispatch_keys.CHANGES
    ):  # a number is taken for a tensor here, not by redispatch
        result = func(*args, **kwargs)
    for listener in listeners():
        listener.on_change(args, result)
        if not listener.is_following:
            THREAD.include()
    return result


def _hear_nested(func: Any, on: Any, *args: Any, **kwargs: Any) -> Any:
    """A product of nested tensors, once there are weights; of others its parts are heard."""
    if not any(x.is_nested for x in args):
        return func.redispatch(on & dispatch_keys.BELOW[dispatch_keys.BY_HAND], *args, **kwargs)
    with _C._ExcludeDispatchKeyGuard(dispatch_keys.CHANGES):
        result = func(*args, **kwargs)
    for listener in listeners() if result.is_nested else ():
        listener.on_product(args, result)
    return result


def _hear_selection(func: Any, on: Any, *args: Any, **kwargs: Any) -> Any:
    for listener in listeners():
        listener.on_select(func, args)
    return func.redispatch(on & _BELOW, *args, **kwargs)


def _hear_flex(*args: Any, **kwargs: Any) -> Any:
    func = dispatch_keys.higher_order_operators()[_FLEX]
    there = listeners()
    with _C._ExcludeDispatchKeyGuard(dispatch_keys.ALL):
        if not there:
            return func(*args, **kwargs)
        result = func(*args, **kwargs)
    for listener in there:
        listener.on_attention(KernelCall(kernel_of(func), args, kwargs, result))
    return result


# What the keys lead to, registered once in a process and when it is needed first


@functools.cache
def register() -> None:
    """Lead the first key to attention kernels, products and softmaxes, the third one to matrices."""
    dispatch_keys.fall_through()
    for func in FUSED:
        dispatch_keys.lead(func, dispatch_keys.ATTENTION, functools.partial(_hear_attention, kernel_of(func)))
    for name in NAMES:
        if name != _ENCODER_LAYER:  # the attention inside is heard
            _register_kernel(name)
    dispatch_keys.lead_by_name("aten::_transform_bias_rescale_qkv", dispatch_keys.ATTENTION, _hear_heads)
    for func in PRODUCTS:
        dispatch_keys.lead(func, dispatch_keys.ATTENTION, functools.partial(_hear_product, func))
    for func in MATRICES:
        dispatch_keys.lead(func, dispatch_keys.MATRICES, functools.partial(_hear_product, func))
    for func in SOFTMAX:
        dispatch_keys.lead(func, dispatch_keys.ATTENTION, functools.partial(_hear_softmax, func))


@functools.cache
def _register_kernel(name: str) -> None:
    """Lead the first key to an attention kernel."""
    dispatch_keys.lead_by_name(
        name, dispatch_keys.ATTENTION, _hear_layer if name in LAYERS else _hear_attention, kernel_of
    )


@functools.cache
def track_beam_reorders() -> None:
    """Hear from now on where items are selected; a model that only trains never asks for it."""
    for func in SELECTIONS:
        dispatch_keys.lead(func, dispatch_keys.ATTENTION, functools.partial(_hear_selection, func))


@functools.cache
def _register_changes() -> None:
    """Lead the second key to what may be done to scores and weights."""
    for func in CHANGES:
        dispatch_keys.lead(func, dispatch_keys.BY_HAND, functools.partial(_hear_change, func))
    for func in NESTED:
        dispatch_keys.lead(func, dispatch_keys.BY_HAND, functools.partial(_hear_nested, func))


def register_flex() -> bool:
    """Lead the first key to FlexAttention, once it has been imported; whether that was not so before."""
    flex = dispatch_keys.higher_order_operators().get(_FLEX)
    if flex is None or flex in _FLEX_OPERATORS:
        return False
    dispatch_keys.fall_through()  # before: it lets FlexAttention pass too
    flex.py_impl(dispatch_keys.KEYS[dispatch_keys.ATTENTION])(_hear_flex)
    _FLEX_OPERATORS.append(flex)
    return True
