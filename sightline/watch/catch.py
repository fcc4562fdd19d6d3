"""Call something, and catch what the fused kernels in it say beside their output.

The plain call of one kernel is made without torch's function around it, which drops what a look needs: the
same operator with the same arguments, and no dispatcher that has to tell Python of it.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend
from torch.overrides import has_torch_function_unary

from sightline.watch import dispatch_keys
from sightline.watch.intercept import register, uses_compiled_code
from sightline.watch.kernel_calls import KernelCall
from sightline.watch.listeners import LISTENERS, THREAD
from sightline.watch.readers.operators import FusedCallRecorder, fused_lse

__all__ = ["call_kernel", "run_with_lse"]

# ruff: noqa: SLF001 (torch has no public way to its kernels, nor to who listens)
_C: Any = torch._C
_T = TypeVar("_T")
_CUDNN, _FLASH, _EFFICIENT = (
    kind.value
    for kind in (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION)
)
_FLASH_WIDTH = 8  # on a GPU torch pads other widths to a multiple of it
_SDPA = F.scaled_dot_product_attention
_IMPLEMENTATIONS: set[str] = torch.library._impls  # those that were registered in Python


def call_kernel(q: Tensor, k: Tensor, v: Tensor, *, is_causal: bool) -> tuple[Tensor, Tensor | None] | None:
    """Attend by the very operator that torch's function would call: its output and its log-sum-exp.

    Args:
        q, k, v: Plain tensors of four dimensions that fit together, see :func:`sightline.shapes.are_plain`.
        is_causal: Whether each query sees itself and the past, lined up at the start.

    Returns:
        None where torch's function does more than call one operator, or somebody is to hear of the call.

    Example:
        >>> x = torch.randn(1, 2, 5, 8)
        >>> output, lse = call_kernel(x, x, x, is_causal=True)
        >>> torch.equal(output, torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True))
        True
    """
    if not _is_unheard() or has_torch_function_unary(None) or _C._get_tracing_state() is not None:
        return None
    if _C._is_any_autocast_enabled() or not (q.is_cuda or q.is_cpu) or _is_replaced(q):
        return None
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        return None
    choice = torch._fused_sdp_choice(q, k, v, None, 0.0, is_causal)
    result: Any = None
    if choice == _CUDNN:
        result = torch._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, is_causal)
    elif choice == _FLASH and not q.is_cuda:
        result = torch._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, is_causal)
    elif choice == _FLASH and q.size(3) % _FLASH_WIDTH == 0:
        result = torch._scaled_dot_product_flash_attention(q, k, v, 0.0, is_causal)
    elif choice == _EFFICIENT:
        result = torch._scaled_dot_product_efficient_attention(q, k, v, None, True, 0.0, is_causal)
    return None if result is None else (result[0], fused_lse(q, result))


def run_with_lse(call: Callable[[], _T]) -> tuple[_T, list[Tensor | None]]:
    """Make a call: what it gives, and the log-sum-exps of torch's fused kernels in it.

    A key hears them, which costs next to nothing. A mode does where others listen, or torch transforms or
    compiles.

    Example:
        >>> x = torch.randn(1, 2, 5, 8)
        >>> _, (lse,) = run_with_lse(lambda: torch.nn.functional.scaled_dot_product_attention(x, x, x))
        >>> lse.shape
        torch.Size([1, 2, 5])
    """
    lses: list[Tensor | None] = []
    if not _is_alone():
        with FusedCallRecorder(lambda fused: lses.append(fused.lse)):
            return call(), lses
    register()
    before = LISTENERS.set((_Catcher(lses),))
    dispatch_keys.include(dispatch_keys.ATTENTION, on=True)
    try:
        return call(), lses
    finally:
        dispatch_keys.include(dispatch_keys.ATTENTION, on=False)
        LISTENERS.reset(before)


def _is_replaced(q: Tensor) -> bool:
    """Whether somebody has put another function in the place of torch's, or an implementation below it."""
    key = "aten/scaled_dot_product_attention/CUDA" if q.is_cuda else "aten/scaled_dot_product_attention/CPU"
    return F.scaled_dot_product_attention is not _SDPA or key in _IMPLEMENTATIONS


def _is_alone() -> bool:
    """Whether nobody else listens in this thread, and no code is compiled that minds the keys."""
    return _is_unheard() and not uses_compiled_code()


def _is_unheard() -> bool:
    """Whether nobody listens in this thread, and nothing is transformed, compiled or computed again."""
    return (
        not torch.compiler.is_compiling()
        and not THREAD.open
        and not LISTENERS.get()
        and not _C._len_torch_dispatch_stack()
        and _C._functorch.peek_interpreter_stack() is None
        and _C._current_graph_task_id() == -1
    )


class _Catcher:
    """A listener that keeps the log-sum-exps of fused kernels."""

    is_open = True
    is_following = False
    hears_matrices = False

    def __init__(self, lses: list[Tensor | None]) -> None:
        self._lses = lses

    def on_attention(self, call: KernelCall) -> None:
        """An attention kernel has run."""
        if call.kernel.is_fused:
            self._lses.append(fused_lse(call.args[0], call.result))

    def on_product(self, args: tuple[Any, ...], result: Any) -> bool:  # noqa: ARG002
        """Matrices have been multiplied."""
        return False

    def on_softmax(self, args: tuple[Any, ...], result: Any) -> None:
        """A softmax has been taken."""

    def on_change(self, args: tuple[Any, ...], result: Any) -> None:
        """Something was changed."""

    def on_select(self, func: Any, args: tuple[Any, ...]) -> None:
        """Items are selected."""
