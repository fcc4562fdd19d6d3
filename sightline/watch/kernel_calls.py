"""What is known of an attention kernel before it is called, and a call of it, as it was heard."""

import functools
from typing import Any

from torch import Tensor

from sightline.watch.readers.operators import FUSED, argument_names
from sightline.watch.readers.sdpa import HEADS, KERNEL, LAYERS, Adapter, adapter_of

__all__ = ["Kernel", "KernelCall", "KernelParams", "kernel_of"]

_LSE = "compute_log_sumexp"
KernelParams = tuple[Tensor | None, bool, float | None]


class Kernel:
    """An operator that attends.

    Attributes:
        func: The operator.
        redispatch: Calls it at given keys; of an operator that takes functions it is not known.
        names: What it calls its arguments.
        adapter: How a call of it is read; None if it is no attention.
        is_fused: Whether it is one of torch's own on (B, H, T, D), which are all read alike.
        is_layer: Whether it is a whole layer, projections included.
        may_leave_out_lse: Whether it has to be asked for the log-sum-exp.
    """

    __slots__ = (
        "_bias_at", "_causal_at", "_lse_at", "adapter", "func", "is_fused", "is_layer", "may_leave_out_lse",
        "names", "redispatch",
    )  # fmt: skip

    def __init__(self, func: Any) -> None:
        self.func = func
        handle = getattr(func, "_handle", None)  # a step less than the operator's own method
        self.redispatch: Any = getattr(handle, "redispatch_boxed", None) or getattr(func, "redispatch", None)
        self.names = argument_names(func)
        self.adapter: Adapter | None = adapter_of(func)
        self.is_fused = func in FUSED
        schema = getattr(func, "_schema", None)
        self.is_layer = schema is not None and schema.name in LAYERS
        self.may_leave_out_lse = _LSE in self.names
        self._lse_at = self._place_of(_LSE)
        self._bias_at = self._place_of("attn_bias")
        self._causal_at = self._place_of("is_causal")

    def _place_of(self, name: str) -> int:
        return self.names.index(name) if name in self.names else len(self.names)

    def ask_lse(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The same arguments, asking for the log-sum-exp."""
        at = self._lse_at
        if at < len(args):  # this changes no bit of the output
            return (*args[:at], True, *args[at + 1 :]), kwargs
        return args, kwargs | {_LSE: True}

    def facts(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> KernelParams:
        """Of a fused kernel what is added to the scores, whether it is causal, and its scale."""
        bias = args[self._bias_at] if self._bias_at < len(args) else kwargs.get("attn_mask")
        causal = args[self._causal_at] if self._causal_at < len(args) else False
        return bias, causal, kwargs.get("scale")


class KernelCall:
    """A call of a kernel.

    Attributes:
        kernel: The operator.
        args, kwargs, result: What it was given, and what it gave.
        parts: Of a whole layer, what was heard inside: queries and keys, and the call of a fused kernel.
        is_inside: Whether it was heard inside a layer: then nobody else can hold its queries and keys.
    """

    __slots__ = ("args", "is_inside", "kernel", "kwargs", "parts", "result")

    def __init__(
        self,
        kernel: Kernel,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,
        parts: dict[str, Any] | None = None,
        *,
        is_inside: bool = False,
    ) -> None:
        self.kernel, self.args, self.kwargs, self.result = kernel, args, kwargs, result
        self.parts, self.is_inside = parts, is_inside

    @property
    def fused(self) -> "KernelCall | None":
        """The call of one of torch's own kernels that this was, or that ran inside; None if none is known."""
        if self.kernel.is_fused:
            return self
        return None if self.parts is None else self.parts.get(KERNEL)

    def arguments(self) -> dict[str, Any]:
        """Arguments by their names, and what was heard inside."""
        arguments = dict(zip(self.kernel.names, self.args, strict=False))
        arguments.update(self.kwargs)
        if self.parts:
            inner = self.fused
            if inner is not None:
                arguments[KERNEL] = inner.arguments(), inner.result
            if HEADS in self.parts:
                arguments[HEADS] = self.parts[HEADS]
        return arguments


@functools.cache
def kernel_of(func: Any) -> Kernel:
    """What is known of an operator."""
    return Kernel(func)
