"""What is known of an attention kernel before it is called: found out once, since each call feels it."""

import functools
from typing import Any

from sightline.look.adapters import KERNEL, Adapter, adapter_of
from sightline.look.fused import FUSED, argument_names

__all__ = ["Kernel", "kernel_of"]

_WHOLE_LAYER = "aten::_transformer_encoder_layer_fwd"
_LSE = "compute_log_sumexp"


class Kernel:
    """An operator that attends.

    Attributes:
        func: The operator.
        names: What it calls its arguments.
        adapter: How a call of it is read; None if it is no attention.
        is_fused: Whether it is one of torch's own on (B, H, T, D), which are all read alike.
        child: The child of the running module that it belongs to, where it is a whole layer.
    """

    __slots__ = ("_lse_at", "adapter", "child", "func", "is_fused", "names")

    def __init__(self, func: Any) -> None:
        self.func = func
        self.names = argument_names(func)
        self.adapter: Adapter | None = adapter_of(func)
        self.is_fused = func in FUSED
        self.child = "self_attn" if _name(func) == _WHOLE_LAYER else ""
        self._lse_at = self.names.index(_LSE) if _LSE in self.names else None

    def ask_lse(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The same arguments, asking for the log-sum-exp where it may be left out."""
        at = self._lse_at
        if at is None:
            return args, kwargs
        if at < len(args):  # this changes no bit of the output
            return (*args[:at], True, *args[at + 1 :]), kwargs
        return args, kwargs | {_LSE: True}

    def fused_call(self, arguments: dict[str, Any], result: Any) -> tuple[dict[str, Any], Any] | None:
        """The call of one of torch's own kernels that this was, or that ran inside; None if none is known."""
        inner: tuple[dict[str, Any], Any] | None
        inner = (arguments, result) if self.is_fused else arguments.get(KERNEL)
        return inner

    def named(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Arguments by their names."""
        arguments = dict(zip(self.names, args, strict=False))
        arguments.update(kwargs)
        return arguments


def _name(func: Any) -> str:
    schema = getattr(func, "_schema", None)
    return "" if schema is None else str(schema.name)


@functools.cache
def kernel_of(func: Any) -> Kernel:
    """What is known of an operator."""
    return Kernel(func)
