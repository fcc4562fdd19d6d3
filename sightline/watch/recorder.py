"""What of the operators that are heard is attention of the model, kernels and softmaxes alike."""

import contextlib
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from sightline.look.sharded.placements import is_dtensor, local
from sightline.watch.kernel_calls import KernelCall
from sightline.watch.modules import Pointers, count_heads
from sightline.watch.readers.eager import EagerTracker
from sightline.watch.readers.sdpa import AttentionCall, UnreadableError, stored_call

__all__ = ["AttentionRecorder", "CallListener", "read_kernel"]

_IN_BLOCKS = (
    "its weights were cut into blocks before they met their values, as in banded or sparse attention; no "
    "column of them stands for one key"
)
_NOT_EXPECTED = (
    "it computed weights by hand, while the model had attended by kernels alone when it was watched before; "
    "watch it again"
)
_PLAIN = (Tensor, nn.Parameter, torch.nn.Buffer)
_KNOWN = frozenset({Tensor, type(None), bool, int, float})  # what most kernels are given


@runtime_checkable
class CallListener(Protocol):
    """Who is told of calls."""

    def on_kernel(self, heard: KernelCall) -> None:
        """A kernel was called; :func:`read_kernel` reads the call, or raises."""
        ...

    def on_call(self, read: Callable[[nn.Module], AttentionCall]) -> None:
        """Weights were computed by hand; ``read`` gives the call, or raises."""
        ...

    def on_dark(self, reason: str) -> None:
        """Something attended, and can't be measured."""
        ...

    def on_run(self, attentions: tuple[str, ...] | None) -> None:
        """A product was computed, with a parameter of these attentions; None where with no parameter."""
        ...

    def on_select(self, func: Any, args: tuple[Any, ...]) -> None:
        """Items of a tensor were selected."""
        ...


class AttentionRecorder:
    """Tells of every attention among the operators that it hears; see ``listen.py``.

    Args:
        listener: Who is told.
        pointers: Where the model's parameters lie.
        by_kernels: Whether the model is known to attend by kernels alone: then nothing has to be heard of
            products of matrices, until a softmax tells that it was a mistake.
    """

    def __init__(self, listener: CallListener, pointers: Pointers, *, by_kernels: bool) -> None:
        self.is_open = False
        self.by_kernels = by_kernels
        self.n_kernels, self.n_softmaxes = 0, 0  # heard so far
        self._listener, self._pointers = listener, pointers
        self._tracker = EagerTracker(pointers.is_parameter)

    @property
    def is_following(self) -> bool:
        """Whether scores or weights are on their way."""
        return self._tracker.is_following

    @property
    def hears_matrices(self) -> bool:
        """Whether products of two matrices may be scores, or meet weights."""
        return not self.by_kernels or self.n_softmaxes > 0 or self._tracker.is_following

    def on_attention(self, call: KernelCall) -> None:
        """An attention kernel has run."""
        self.n_kernels += 1
        self._listener.on_kernel(call)

    def on_product(self, args: tuple[Any, ...], result: Any) -> bool:
        """Matrices have been multiplied; whether that may have made scores."""
        right = args[-1]
        if self.by_kernels and not self.n_softmaxes and not right.is_nested and right.size(-2) == 1:
            return False  # a column times a row, as rotary angles are made
        attentions = self._pointers.attentions_of(right)
        self._listener.on_run(attentions)
        if attentions is not None and not self._tracker.has_weights:  # a linear layer
            return False
        if _is_plain(result):
            self._multiply(args, result)
        return True

    def _multiply(self, args: tuple[Any, ...], result: Tensor) -> None:
        try:
            made = self._tracker.multiply(args[-2:], result)
        except Exception:  # noqa: BLE001 (what is not understood is no attention)
            return
        if made is None:
            return
        if made.is_in_blocks or not made.is_of_scores:
            self._listener.on_dark(_IN_BLOCKS if made.is_in_blocks else _NOT_EXPECTED)
            return

        def read(module: nn.Module) -> AttentionCall:
            call = stored_call(self._tracker.done(made), made.lse, count_heads(module))
            return call if made.lengths is None else call.with_lengths(made.lengths)

        self._listener.on_call(read)

    def on_softmax(self, args: tuple[Any, ...], result: Any) -> None:
        """A softmax has been taken."""
        all_heard = not self.by_kernels or self.n_softmaxes > 0
        self.n_softmaxes += 1
        self._listener.on_run(None)
        if _is_plain(result):
            with contextlib.suppress(Exception):
                self._tracker.soften(args, result, all_heard=all_heard)

    def on_change(self, args: tuple[Any, ...], result: Any) -> None:
        """Something was made of what may be scores or weights."""
        first = result[0] if isinstance(result, tuple) else result
        if _is_plain(first):
            with contextlib.suppress(Exception):
                self._tracker.pass_on(args, first)

    def on_select(self, func: Any, args: tuple[Any, ...]) -> None:
        """Items of a tensor have been selected, maybe those of a cache."""
        self._listener.on_select(func, args)


def _is_plain(x: Any) -> bool:
    return type(x) in _PLAIN and x.device.type != "meta"


def read_kernel(heard: KernelCall) -> AttentionCall:
    """Read a call of a kernel, or raise why it can't be read."""
    adapter, arguments, result = heard.kernel.adapter, heard.arguments(), heard.result
    assert adapter is not None  # noqa: S101
    if torch._C._get_tracing_state() is not None:  # noqa: SLF001
        raise UnreadableError("the model was being traced")
    if all(type(x) in _KNOWN and (type(x) is not Tensor or not x.is_meta) for x in arguments.values()):
        return adapter(arguments, result)
    if heard.kernel.is_fused and is_dtensor(arguments["query"]):
        from sightline.watch.sharded import read_dtensors  # noqa: PLC0415 (it is rare)

        return read_dtensors(heard.kernel.func, arguments, result, adapter)
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
    if is_dtensor(x):
        return _local_part(x)
    if kind in _PLAIN or not _is_wrapper(kind):
        return x
    raise UnreadableError(f"it ran on tensors of the type {kind.__name__}, which a look does not know")


def _is_wrapper(kind: type) -> bool:
    """Whether a subclass of Tensor has operators of its own."""
    disabled = torch._C._disabled_torch_dispatch_impl  # noqa: SLF001
    own = getattr(kind, "__torch_dispatch__", disabled)
    return getattr(own, "__func__", own) is not disabled


def _local_part(x: Any) -> Tensor:
    """This process's items; kernels that are not torch's own say nothing of which dimension are heads."""
    for placement in x.placements:
        if not placement.is_replicate() and not (placement.is_shard() and placement.dim == 0):
            raise UnreadableError(f"it is spread over processes as {placement}, not by batch")
    return local(x)
