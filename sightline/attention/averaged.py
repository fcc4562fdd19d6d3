"""Attention that also hands back its weights.

The plain way to their average over the heads stores the weights of all heads, ``(B, H, T, S)``, and keeps
them for the backward pass. Here no such tensor is made, but for small inputs on a GPU, which wait for
launches rather than for memory. Small inputs go a few heads at a time. With large ones the fused kernel
computes the output, and the average is computed on its own, some queries at a time; its backward pass,
which few ask for, computes them again. On a GPU a kernel averages them where no gradient is asked for.
"""

import functools
import importlib.util
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual
from torch.utils.checkpoint import checkpoint

from sightline.attention.attend import attention
from sightline.attention.kernels import interpreted
from sightline.attention.masks import Mask
from sightline.attention.observers import call_observed, is_watched
from sightline.attention.softmax import masked_softmax
from sightline.shapes import Float

_SMALL = 1 << 22  # weights of all heads together, up to which they go head by head
_WIDEST = 128  # queries and keys of which a tile fits into a kernel's shared memory
_TILE = {"cpu": 1 << 19, "cuda": 1 << 26}  # weights alive at a time beyond that


def attention_with_weights(
    q: Float[Tensor, "B H T D"],
    k: Float[Tensor, "B H S D"],
    v: Float[Tensor, "B H S Dv"],
    mask: Mask,
    dropout_p: float = 0.0,
) -> tuple[Float[Tensor, "B H T Dv"], Float[Tensor, "B H T S"]]:
    """The equation, for a caller who wants the weights of every head."""
    if is_watched():
        call = call_observed(attention_with_weights, (q, k, v, mask), {"dropout_p": dropout_p})
        return call[0], call[1]
    weights = _weights(q, k, mask.fitted((q.size(0), q.size(1)), q.size(2), k.size(2)))
    weights = F.dropout(weights.flatten(0, 1), dropout_p).view_as(weights)
    return weights @ v, weights


def attention_with_average(
    q: Float[Tensor, "B H T D"],
    k: Float[Tensor, "B H S D"],
    v: Float[Tensor, "B H S Dv"],
    mask: Mask,
    dropout_p: float = 0.0,
) -> tuple[Float[Tensor, "B H T Dv"], Float[Tensor, "B T S"]]:
    """Attend by the scaled dot product; also return the mean over the heads of the weights.

    With dropout the weights are the ones that were used: some are zero, the rest are scaled up.

    Args:
        q: Queries, with the heads already split.
        k: Keys.
        v: Values.
        mask: What each query may look at.
        dropout_p: Drops weights with this probability.

    Returns:
        ``(output, average)``; gradients flow through both, and into a bias in the mask.
    """
    if is_watched():
        call = call_observed(attention_with_average, (q, k, v, mask), {"dropout_p": dropout_p})
        return call[0], call[1]
    n_batch, n_heads, t = q.shape[:3]
    fitted = mask.fitted((n_batch, n_heads), t, k.size(2))
    small = n_batch * n_heads * t * k.size(2) <= _SMALL and not (interpreted() and _has_kernel(q, k))
    if small or dropout_p > 0 or _is_transformed(q, k, v):
        return _head_by_head(q, k, v, fitted, dropout_p)
    if not fitted.limits and _has_kernel(q, k):
        from sightline.attention.kernels.average import average_weights  # noqa: PLC0415 (Triton)

        return attention(q, k, v), average_weights(q, k)
    bias = functools.reduce(torch.add, fitted.added) if fitted.added else None
    allowed = Mask(fitted.bands, fitted.lengths, fitted.allowed)
    rows, keys = q.contiguous(), k.contiguous()  # every tile reads them again
    average: Tensor = _Average.apply(rows, keys, bias, allowed)  # type: ignore[no-untyped-call]
    return attention(q, k, v, mask), average


def _head_by_head(q: Tensor, k: Tensor, v: Tensor, mask: Mask, dropout_p: float) -> tuple[Tensor, Tensor]:
    """A few heads at a time, in steps that torch can differentiate as often as it likes.

    On a CPU never all of them; on a GPU, where small inputs wait for launches, as many as are small.
    """
    n_batch, n_heads, t = q.shape[:3]
    some = max(1, min(n_heads if q.is_cuda else n_heads // 2, _SMALL // max(1, n_batch * t * k.size(2))))
    large = (
        n_heads * n_batch * t * k.size(2) > _SMALL
        and torch.is_grad_enabled()
        and not _is_transformed(q, k, v)
    )
    outputs, total = [], None
    factors = None
    if dropout_p > 0:  # drawn at once and in torch's shape: the same weights are dropped as by torch
        ones = q.new_ones(n_batch * n_heads, t, k.size(2))
        factors = F.dropout(ones, dropout_p).view(n_batch, n_heads, t, k.size(2))
    for i, (q_some, k_some, v_some) in enumerate(
        zip(*(x.split(some, dim=1) for x in (q, k, v)), strict=True)
    ):
        heads = slice(i * some, (i + 1) * some)
        part_of_factors = None if factors is None else factors[:, heads]
        step = functools.partial(_some_heads, _of_heads(mask, heads), part_of_factors)
        if large:  # keep nothing for the backward pass: compute it again
            output, part = checkpoint(step, q_some, k_some, v_some, use_reentrant=False)
        else:
            output, part = step(q_some, k_some, v_some)
        outputs.append(output)
        total = part if total is None else total + part
    assert total is not None  # noqa: S101
    return torch.cat(outputs, dim=1) if len(outputs) > 1 else outputs[0], total / n_heads


def _some_heads(mask: Mask, factors: Tensor | None, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    weights = _weights(q, k, mask)
    weights = weights if factors is None else weights * factors
    return weights @ v, _over_heads(weights)


class _Average(torch.autograd.Function):
    """(B, H, T, D), (B, H, S, D) -> (B, T, S): the mean over the heads, some queries at a time."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, bias: Tensor | None, mask: Mask) -> Tensor:
        ctx.save_for_backward(q, k, bias)
        ctx.mask = mask
        average = q.new_zeros(q.size(0), q.size(2), k.size(2))
        for heads, rows in _tiles(q, k):
            weights = _weights(q[:, heads], k[:, heads], _of_heads(_with(mask, bias), heads), rows)
            average[:, rows] += _over_heads(weights)
        return average.div_(q.size(1))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, bias = ctx.saved_tensors
        if torch.is_grad_enabled():  # this will be differentiated in its turn: in plain steps
            average = _weights(q, k, _with(ctx.mask, bias)).mean(1)
            inputs = [x for x, wanted in zip((q, k, bias), ctx.needs_input_grad[:3], strict=True) if wanted]
            grads = iter(torch.autograd.grad(average, inputs, grad, create_graph=True))
            return *(next(grads) if wanted else None for wanted in ctx.needs_input_grad[:3]), None
        scale, n_heads = q.size(-1) ** -0.5, q.size(1)
        grad_q, grad_k = torch.empty_like(q), torch.zeros_like(k)
        grad_bias = torch.zeros_like(bias) if ctx.needs_input_grad[2] else None
        for heads, rows in _tiles(q, k):
            weights = _weights(q[:, heads], k[:, heads], _of_heads(_with(ctx.mask, bias), heads), rows)
            each = grad[:, None, rows] / n_heads
            # the derivative of softmax: w * (g - w·g)
            grad_scores = weights.mul_(each - (each * weights).sum(-1, keepdim=True))
            grad_q[:, heads, rows] = grad_scores @ k[:, heads] * scale
            grad_k[:, heads] += grad_scores.mT @ q[:, heads, rows] * scale
            if grad_bias is not None:
                part = grad_bias[:, heads] if grad_bias.size(1) != 1 else grad_bias
                part = part[:, :, rows] if part.size(2) != 1 else part
                part += grad_scores.sum_to_size(part.shape)
        return grad_q, grad_k, grad_bias, None


def _weights(q: Tensor, k: Tensor, mask: Mask, rows: slice | None = None) -> Float[Tensor, "B H t S"]:
    """softmax(q kᵀ / √D) of all or some queries over all keys, under a fitted mask."""
    t, s = q.size(2), k.size(2)
    span = (0, t) if rows is None else (rows.start, rows.stop)
    scores = ((q if rows is None else q[:, :, rows]) * q.size(-1) ** -0.5) @ k.mT
    if not mask.limits:
        return scores.softmax(-1)
    return masked_softmax(scores, mask.block(span, (0, s), t, s, device=q.device))


def _of_heads(mask: Mask, heads: slice) -> Mask:
    """A fitted mask for some of the heads."""
    if not mask.tensors:
        return mask
    tensors = (
        tuple(x[:, heads] if x.size(1) != 1 else x for x in part)
        for part in (mask.lengths, mask.allowed, mask.added)
    )
    return Mask(mask.bands, *tensors)


def _over_heads(weights: Float[Tensor, "B H t S"]) -> Float[Tensor, "B t S"]:
    """Sum over the heads; on a GPU as a product with ones, which reads the weights at full speed."""
    if not weights.is_cuda:
        return weights.sum(1)
    ones = weights.new_ones(1, 1, weights.size(1))
    return (ones @ weights.flatten(2)).unflatten(2, weights.shape[2:])[:, 0]


def _with(mask: Mask, bias: Tensor | None) -> Mask:
    return mask if bias is None else mask & Mask(added=(bias,))


def _tiles(q: Tensor, k: Tensor) -> Iterator[tuple[slice, slice]]:
    """Cut H x T into tiles of about ``_TILE`` weights: on a CPU of one head each, on a GPU of all of them."""
    n_batch, n_heads, t = q.shape[:3]
    some = n_heads if q.is_cuda else 1
    rows = max(1, _TILE.get(q.device.type, _TILE["cuda"]) // max(1, n_batch * some * k.size(2)))
    for head in range(0, n_heads, some):
        for top in range(0, t, rows):
            yield slice(head, head + some), slice(top, min(top + rows, t))


def _has_kernel(q: Tensor, k: Tensor) -> bool:
    """Whether a kernel can average the weights: in half precision, without gradients, on a GPU."""
    wants_grad = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad)
    is_half = q.dtype == k.dtype and q.dtype in (torch.float16, torch.bfloat16)
    if not is_half or wants_grad or q.size(3) > _WIDEST:
        return False
    return _has_triton(q.device.index) if q.is_cuda else interpreted()


@functools.cache
def _has_triton(device: int) -> bool:
    """Whether Triton is installed and runs on this device."""
    if importlib.util.find_spec("triton") is None or torch.version.hip is not None:
        return False
    return torch.cuda.get_device_capability(device) >= (8, 0)


def _is_transformed(*tensors: Tensor) -> bool:
    """Whether torch.compile, torch.func or forward-mode autograd is at work, which want plain steps."""
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():  # noqa: SLF001
        return True
    return any(unpack_dual(x).tangent is not None for x in tensors)
