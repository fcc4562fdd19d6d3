"""The mode that hears a model's attention, wherever it is computed, and changes nothing.

It stands below autograd, so that it meets the operators themselves: called from Python or C++, eager or from
inside compiled code. It is on in one thread only.
"""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from sightline.look.adapters import Adapter, AttentionCall, UnreadableError, adapter_of, stored_call
from sightline.look.by_hand import COMPOSITE, PRODUCTS, WATCHED, SoftmaxTracker
from sightline.look.fused import call_with_lse
from sightline.look.isolate import is_recomputing
from sightline.look.reorders import SELECTIONS

__all__ = ["AttentionRecorder", "Listener"]

_MATMUL = frozenset({torch.ops.aten.matmul.default})  # of nested tensors it is an operator of its own
_PLAIN = (Tensor, nn.Parameter, torch.nn.Buffer)


@runtime_checkable
class Listener(Protocol):
    """Who is told of calls."""

    def is_busy(self) -> bool:
        """Whether operators that run now are a look's own."""
        ...

    def on_call(self, read: Callable[[nn.Module], AttentionCall]) -> None:
        """An attention was called; ``read`` gives it, or raises."""
        ...

    def on_blocks(self) -> None:
        """Weights were cut into blocks before they met their values."""
        ...

    def on_product(self) -> None:
        """A product of matrices was computed."""
        ...

    def on_select(self, func: Any, args: tuple[Any, ...]) -> None:
        """Items of a tensor were selected."""
        ...


class AttentionRecorder(TorchDispatchMode):
    """Tells a listener of every attention that runs.

    Args:
        listener: Who is told.
        parameters: The storages of the model's parameters.
    """

    supports_higher_order_operators = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Compiled code stays compiled, and is heard when it runs."""
        return True

    def __init__(self, listener: Listener, parameters: frozenset[int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._listener = listener
        self._tracker = SoftmaxTracker(parameters)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operator; if it is attention, or part of one, tell."""
        kwargs = kwargs or {}
        if func in WATCHED or (func in _MATMUL and _is_nested(args)):
            result = func(*args, **kwargs)
            if not self._listener.is_busy() and not is_recomputing():
                self._follow(func, args, result)
            return result
        if func in COMPOSITE and not _is_nested(args):
            with self:
                return func.decompose(*args, **kwargs)
        adapter = adapter_of(func)
        if adapter is None or self._listener.is_busy():
            return func(*args, **kwargs)
        arguments, result = call_with_lse(func, args, kwargs)
        if not is_recomputing():
            self._listener.on_call(lambda _module: _read(adapter, arguments, result))
        return result

    def _follow(self, func: Any, args: tuple[Any, ...], result: Any) -> None:
        """Follow scores and weights that are computed by hand; this must not fail."""
        if func in PRODUCTS:
            self._listener.on_product()
        elif func in SELECTIONS:
            self._listener.on_select(func, args)
        first = result[0] if isinstance(result, tuple) else result
        if type(first) not in _PLAIN or first.device.type == "meta":
            return
        try:
            made = self._tracker.follow(func, args, result)
        except Exception:  # noqa: BLE001 (what is not understood is no attention)
            return
        if made is None:
            return
        if made.is_in_blocks:
            self._listener.on_blocks()
            return

        def read(module: nn.Module) -> AttentionCall:
            from sightline.look.owners import count_heads  # noqa: PLC0415

            call = stored_call(self._tracker.done(made), made.lse, count_heads(module))
            return call.with_padding(made.padding)

        self._listener.on_call(read)


def _is_nested(args: tuple[Any, ...]) -> bool:
    return any(isinstance(x, Tensor) and x.is_nested for x in args)


def _read(adapter: Adapter, arguments: dict[str, Any], result: Any) -> AttentionCall:
    if torch._C._get_tracing_state() is not None:  # noqa: SLF001
        raise UnreadableError("the model was being traced")
    return adapter({name: _local(x) for name, x in arguments.items()}, _local(result))


def _local(x: Any) -> Any:
    """A tensor with numbers that can be read here: of a distributed one, this process's part."""
    if isinstance(x, tuple | list):
        return type(x)(map(_local, x)) if type(x) in (tuple, list) else x
    if not isinstance(x, Tensor):
        return x
    kind = type(x)
    if kind.__name__ == "FakeTensor" or x.device.type == "meta":
        raise UnreadableError("it ran on meta or fake tensors, which hold no numbers")
    if kind.__name__ == "DTensor":
        return _local_part(x)
    if kind in _PLAIN or not _is_wrapper(kind):
        return x
    raise UnreadableError(f"it ran on tensors of the type {kind.__name__}, which a look does not know")


def _is_wrapper(kind: type) -> bool:
    """Whether a subclass of Tensor has operators of its own."""
    disabled = torch._C._disabled_torch_dispatch_impl  # noqa: SLF001
    own = getattr(kind, "__torch_dispatch__", disabled)
    return own is not disabled and getattr(own, "__func__", own) is not getattr(
        disabled, "__func__", disabled
    )


def _local_part(x: Any) -> Tensor:
    for placement in x.placements:
        if placement.is_partial() or (placement.is_shard() and placement.dim not in (0, 1)):
            raise UnreadableError(f"it is spread over processes as {placement}, not by batch or heads")
    part: Tensor = x._local_tensor  # noqa: SLF001
    return part
