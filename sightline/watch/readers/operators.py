"""Torch's fused attention operators: what they are called with and what they return.

They return the log-sum-exp of each query's scores beside the output, and torch's function drops it. Here it
is captured below autograd, so that looking starts from what the kernel has computed already.
"""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from sightline.attention.masks import Mask, causal

# Each takes (B, H, length, width) and gives (output, lse, ...).
_KERNELS = (
    "flash_attention_for_cpu",
    "flash_attention",
    "efficient_attention",
    "cudnn_attention",
    "fused_attention_overrideable",
)
FUSED = frozenset(
    getattr(torch.ops.aten, f"_scaled_dot_product_{kernel}").default
    for kernel in _KERNELS
    if hasattr(torch.ops.aten, f"_scaled_dot_product_{kernel}")
)
_CAUSAL = causal(align="start")


@dataclass(frozen=True, eq=False)
class FusedCall:
    """One call of a fused operator."""

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Mask
    scale: float
    output: Tensor
    lse: Tensor | None


class FusedCallRecorder(TorchDispatchMode):
    """Pass every call of a fused attention operator to ``on_call``; change nothing.

    Example:
        >>> calls = []
        >>> x = torch.randn(1, 2, 5, 8)
        >>> with FusedCallRecorder(calls.append):
        ...     output = torch.nn.functional.scaled_dot_product_attention(x, x, x)
        >>> len(calls), calls[0].output is output, tuple(calls[0].lse.shape)
        (1, True, (1, 2, 5))
    """

    def __init__(self, on_call: Callable[[FusedCall], object]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._on_call = on_call

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operator; if it is one of ours, tell."""
        if func not in FUSED:
            return func(*args, **kwargs) if kwargs else func(*args)
        arguments, result = call_with_lse(func, args, kwargs or {}, func)
        self._on_call(fused_call(arguments, result))
        return result


def call_with_lse(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], call: Callable[..., Any]
) -> tuple[dict[str, Any], Any]:
    """Call an operator, asking for its log-sum-exp where it may be left out; arguments and result.

    Args:
        func: The operator.
        args, kwargs: Its arguments.
        call: What calls it.
    """
    names = argument_names(func)
    if "compute_log_sumexp" in names:  # this changes no bit of the output
        at = names.index("compute_log_sumexp")
        if at < len(args):
            args = (*args[:at], True, *args[at + 1 :])
        else:
            kwargs = kwargs | {"compute_log_sumexp": True}
    return dict(zip(names, args, strict=False)) | kwargs, call(*args, **kwargs)


@functools.cache
def argument_names(func: Any) -> tuple[str, ...]:
    """What the operator calls its arguments."""
    schema = getattr(func, "_schema", None)
    if schema is None:  # a higher-order operator
        return tuple(name for name in inspect.signature(func.__call__).parameters if name != "self")
    return tuple(argument.name for argument in schema.arguments)


def fused_call(arguments: dict[str, Any], result: tuple[Any, ...]) -> FusedCall:
    """Read a call of one of them."""
    q, k, v = arguments["query"], arguments["key"], arguments["value"]
    added = arguments.get("attn_mask", arguments.get("attn_bias"))
    mask = Mask() if added is None else Mask(added=(added,))
    if arguments.get("is_causal"):
        mask = _CAUSAL if added is None else mask & _CAUSAL
    scale = arguments.get("scale")
    return FusedCall(
        q=q,
        k=k,
        v=v,
        mask=mask,
        scale=q.size(-1) ** -0.5 if scale is None else scale,
        output=result[0],
        lse=fused_lse(q, result),
    )


def fused_lse(q: Tensor, result: tuple[Any, ...]) -> Tensor | None:
    """The log-sum-exp (B, H, T) that one of them gave; None where it was told not to compute it."""
    lse: Tensor | None = result[1]
    if lse is None or lse.numel() == 0:
        return None
    if lse.dim() == 4:  # cuDNN's has a last dimension of one
        lse = lse.squeeze(-1)
    return lse if lse.size(-1) == q.size(2) else lse[..., : q.size(2)]  # the efficient kernel's is padded
