"""Call something, and catch what the fused kernels in it say beside their output."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from sightline.look import keys
from sightline.look.fused import FusedCallRecorder, fused_lse
from sightline.look.heard import HeardCall
from sightline.look.listen import register, uses_compiled_code
from sightline.look.listeners import LISTENERS, THREAD

__all__ = ["call_and_catch"]

_T = TypeVar("_T")


def call_and_catch(call: Callable[[], _T]) -> tuple[_T, list[Tensor | None]]:
    """Make a call: what it gives, and the log-sum-exps of torch's fused kernels in it.

    A key hears them, which costs next to nothing. A mode does where others listen, or torch transforms or
    compiles.

    Example:
        >>> x = torch.randn(1, 2, 5, 8)
        >>> _, (lse,) = call_and_catch(lambda: torch.nn.functional.scaled_dot_product_attention(x, x, x))
        >>> lse.shape
        torch.Size([1, 2, 5])
    """
    lses: list[Tensor | None] = []
    if not _is_alone():
        with FusedCallRecorder(lambda fused: lses.append(fused.lse)):
            return call(), lses
    register()
    before = LISTENERS.set((_Catcher(lses),))
    keys.include(keys.ATTENTION, on=True)
    try:
        return call(), lses
    finally:
        keys.include(keys.ATTENTION, on=False)
        LISTENERS.reset(before)


def _is_alone() -> bool:
    """Whether nobody else listens in this thread, and nothing is transformed, compiled or computed again."""
    core: Any = torch._C  # noqa: SLF001
    return (
        not THREAD.open
        and not LISTENERS.get()
        and not core._len_torch_dispatch_stack()  # noqa: SLF001
        and core._functorch.peek_interpreter_stack() is None  # noqa: SLF001
        and core._current_graph_task_id() == -1  # noqa: SLF001
        and not torch.compiler.is_compiling()
        and not uses_compiled_code()
    )


class _Catcher:
    """A listener that keeps the log-sum-exps of fused kernels."""

    is_open = True
    is_following = False
    hears_matrices = False

    def __init__(self, lses: list[Tensor | None]) -> None:
        self._lses = lses

    def on_attention(self, call: HeardCall) -> None:
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
