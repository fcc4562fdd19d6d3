"""``watch(model, grad=True)``: attention heard above autograd, so that sights keep the graph.

There q and k still have their history: a loss on a sight trains the model, and a hook on the output gets its
gradient in the backward pass. What ``nn.MultiheadAttention`` hides is computed from its arguments.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from sightline.attention.attend import attention, four_dimensional
from sightline.attention.from_torch import heads, mask_from_torch
from sightline.attention.masks import Mask, causal
from sightline.look.output_gradient import OutputGradient
from sightline.look.score_inputs import make_score_inputs
from sightline.shapes import leading
from sightline.watch.readers.calls import Call, read_attention_call, read_sdpa_call
from sightline.watch.readers.sdpa import AttentionCall, UnreadableError

__all__ = ["capture_graph", "disable_saved_tensor_hooks"]

Read = Callable[[nn.Module, Any], AttentionCall]
_MHA = ("query", "key", "value", "embed_dim", "num_heads")


@runtime_checkable
class GraphWatch(Protocol):
    """Who measures the calls that are heard."""

    def call_with_graph(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], read: Read
    ) -> Any:
        """Make a call and measure it, keeping the graph."""
        ...


_WATCHES: ContextVar[tuple[GraphWatch, ...]] = ContextVar("graph_watches", default=())


class GradientListener(TorchFunctionMode):
    """Hand the calls of attention to the watches of this context, where gradients are on.

    All of these modes are alike, so blocks may end in any order.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        watches = _WATCHES.get()
        if func not in _READERS or not watches or not torch.is_grad_enabled():
            return func(*args, **kwargs)
        before = _WATCHES.set(())
        try:
            return _call_with_graph(watches, func, args, kwargs)
        finally:
            _WATCHES.reset(before)


def _call_with_graph(
    watches: tuple[GraphWatch, ...], func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Make a call for the last watch, which hears what the others have made of it."""
    if not watches:
        return func(*args, **kwargs)
    *others, watch = watches
    call = functools.partial(_call_with_graph, tuple(others), func)
    reader = _READERS[func]
    return watch.call_with_graph(
        lambda *args, **kwargs: call(args, kwargs),
        args,
        kwargs,
        lambda module, output: reader(module, args, kwargs, output),
    )


@contextlib.contextmanager
def capture_graph(watch: GraphWatch) -> Iterator[None]:
    """Let a watch hear calls above autograd until the block ends."""
    _WATCHES.set((*_WATCHES.get(), watch))
    try:
        with GradientListener():
            yield
    finally:
        _WATCHES.set(tuple(other for other in _WATCHES.get() if other is not watch))


def disable_saved_tensor_hooks() -> contextlib.AbstractContextManager[None]:
    """Keep what a sight's graph needs as it is: gradient checkpointing counts what the model keeps."""
    return torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x)


def _read_sdpa(
    _module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor
) -> AttentionCall:
    if args and args[0].is_nested:
        raise UnreadableError("it ran on nested tensors, which keep no graph here")
    return _graph_call(read_sdpa_call(args, kwargs, ""), output)


def _read_ours(
    _module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor
) -> AttentionCall:
    return _graph_call(read_attention_call(args, kwargs), output)


def _read_mha(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> AttentionCall:
    """Compute the heads once more, with their history, and the output's gradient through the projection."""
    arguments = dict(zip(_MHA, args, strict=False)) | kwargs
    if not isinstance(module, nn.MultiheadAttention):
        raise UnreadableError("F.multi_head_attention_forward was called outside of an nn.MultiheadAttention")
    padding, attn_mask = arguments.get("key_padding_mask"), arguments.get("attn_mask")
    hint = arguments.get("is_causal") and padding is None and not arguments.get("need_weights", True)
    mask = causal(align="start") if hint else mask_from_torch(attn_mask, padding, module.num_heads)
    query, key, value = (
        arguments[name] for name in ("query", "key", "value")
    )  # (T, B, E), whatever its order
    if module.batch_first and query.dim() == 3:
        turned = {id(x): x.transpose(0, 1) for x in (query, key, value)}
        query, key, value = (turned[id(x)] for x in (query, key, value))
    q, k, v, mask = heads(module, query, key, value, mask)
    inputs, lead = make_score_inputs(q, k, v, mask)
    with torch.no_grad():
        context = attention(q, k, v, mask)
    record = OutputGradient(v=v.detach(), output=context)
    result: Tensor = output[0]
    if result.requires_grad:

        def arrived(gradient: Tensor) -> None:
            each = gradient @ module.out_proj.weight.detach()  # (T, B, E) or (T, E)
            each = each if each.dim() == 3 else each.unsqueeze(1)
            record.add(each.unflatten(-1, (module.num_heads, -1)).permute(1, 2, 0, 3))

        result.register_hook(arrived)
    return AttentionCall(inputs=inputs, lead=lead, backward=record)


def _graph_call(call: Call, output: Tensor) -> AttentionCall:
    inputs, lead = make_score_inputs(call.q, call.k, call.v, call.mask, call.scale, call.score)
    v, shape = _four(call, lead), inputs.shape[:3]
    record = OutputGradient(v=v.detach(), output=output.detach().reshape(*shape, -1))
    if output.requires_grad:

        def arrived(gradient: Tensor) -> None:
            record.add(gradient.reshape(*shape, -1))

        output.register_hook(arrived)
    return AttentionCall(inputs=inputs, lead=lead, backward=record)


def _four(call: Call, lead: tuple[int, ...]) -> Tensor:
    return four_dimensional(call.q, call.k, call.v, Mask(), lead or leading(call.q, call.k, call.v))[2]


_READERS: dict[Any, Callable[..., AttentionCall]] = {
    F.scaled_dot_product_attention: _read_sdpa,
    attention: _read_ours,
    F.multi_head_attention_forward: _read_mha,
}
