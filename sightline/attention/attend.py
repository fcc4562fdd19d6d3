"""``attention``: the equation of ``reference.py`` by the fastest exact way these inputs allow.

The work is done by torch's fused kernels, which never store the T x S weights. What this file adds is
that they are always reached: inputs of any rank are brought to the four dimensions the kernels take,
scores are turned into dot products, and masks are kept as structure for as long as possible.

==========================================  ==================================================
the mask                                     the way
==========================================  ==================================================
none                                         one fused call
causal: T = S, T = 1, or from the start      one fused call, the kernel skips what is masked
causal, T < S, on a GPU                      one fused call, by torch's own lower-right mask
padding, or few enough pairs                 one fused call with a small dense mask
any other                                    a fused call for each block of queries, over the keys
                                             that block may look at: O(T + S) memory; a window
                                             costs T x window, not T x S
==========================================  ==================================================

Scores that are no dot product (additive, or your own) run block by block as well, by ``softmax(scores) @ v``;
additive ones on a GPU by kernels of their own, which keep the hidden layer in registers.
With autograd on, a block is recomputed in the backward pass rather than kept.
"""

import math
from collections.abc import Callable
from numbers import Real
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function_unary
from torch.utils.checkpoint import checkpoint

from sightline.attention import scores
from sightline.attention.kernels import interpreted
from sightline.attention.mask_values import check_not_binary
from sightline.attention.masks import Mask, as_mask, causal, on_device
from sightline.attention.observers import call_observed, is_watched
from sightline.attention.scores import Additive, Score
from sightline.attention.softmax import masked_softmax
from sightline.shapes import (
    Float,
    Shaped,
    are_cast,
    are_plain,
    check_qkv,
    check_same_width,
    is_grouped,
    leading,
)

__all__ = ["attention", "four_dimensional", "is_causal"]

# Up to this many query-key pairs one call with a dense mask beats a loop over blocks of queries.
_PAIRS = {"cpu": 1 << 22, "cuda": 1 << 26}
_BLOCK = {"cpu": 256, "cuda": 2048}

_FEW = 1 << 16  # pairs that the CPU attends to as fast without its fused kernel
_NO_MASK = Mask()
_HALF = (torch.float16, torch.bfloat16)
_CAUSAL = causal().bands
_CAUSAL_FROM_START = causal(align="start").bands


def attention(
    q: Float[Tensor, "... T Dq"],
    k: Float[Tensor, "... S Dk"],
    v: Float[Tensor, "... S Dv"],
    mask: Shaped[Tensor, "..."] | Mask | None = None,
    *,
    score: Score | str | None = None,
    scale: float | None = None,
    dropout_p: float = 0.0,
) -> Float[Tensor, "... T Dv"]:
    """Mix the values, each query weighting them by how well it matches the keys.

        weights = softmax(scale * score(q, k) + mask)        output = weights @ v

    Args:
        q, k, v: Queries, keys and values. Any number of leading dimensions, which broadcast; with four
            dimensions q may have a multiple of the heads of k and v (grouped queries).
        mask: A boolean tensor, True where a query may look, of a shape that broadcasts to
            ``(..., T, S)``, where three dimensions are items, not heads: ``(B, 1, S)`` is one row for each
            item of the batch, ``(B, T, S)`` a table for each, and ``mask[None]`` makes ``(H, T, S)`` one
            for each head; or a float tensor that is added to the scores, never one of ones and zeros alone,
            whose three dimensions are ``(H, T, S)``, as in torch; or a
            :class:`~sightline.attention.masks.Mask`: torch's ``is_causal=True`` is ``sl.masks.causal()``.
        score: How a query and a key are matched, a :class:`~sightline.attention.scores.Score` or the
            name of one without parameters. Default: the scaled dot product.
        scale: Multiplies the scores. Default: ``D ** -0.5`` for the scaled dot product, else 1.
        dropout_p: Drops weights with this probability. It is always on when asked for: pass 0 in eval.

    Returns:
        The mixed values. A query that may look at nothing gets zeros, and no gradient flows through it.

    Raises:
        ValueError: If shapes, heads, devices, the mask, the scale or ``dropout_p`` don't fit.
        TypeError: If dtypes or types don't.

    Example:
        >>> q, k, v = torch.ones(1, 2), torch.ones(3, 2), torch.eye(3)
        >>> attention(q, k, v, torch.tensor([True, True, False]))
        tensor([[0.5000, 0.5000, 0.0000]])
    """
    if score is None and scale is None and _is_share(dropout_p) and are_plain(q, k, v):
        if mask is None or is_causal(mask, q, k):  # short inputs feel every step around the kernel
            return F.scaled_dot_product_attention(q, k, v, None, dropout_p, mask is not None)
        added = _bias_alone(mask, q, k)
        if added is not None:
            return F.scaled_dot_product_attention(q, k, v, added, dropout_p)
    if is_watched() or _has_mode():
        return _observed(q, k, v, mask, {"score": score, "scale": scale, "dropout_p": dropout_p})
    check_qkv(q, k, v)
    _check_scale(scale)
    _check_dropout(dropout_p)
    mask = _NO_MASK if mask is None else as_mask(mask)
    if score is not None:
        score = scores.named(score)
        dot = score.as_dot(q, k)
        if dot is None:
            if type(score) is Additive and (q.is_cuda or interpreted()) and dropout_p == 0.0:
                output = _additive(score, q, k, v, mask, 1.0 if scale is None else scale)
                if output is not None:
                    return output
            return _explicit(score, q, k, v, mask, 1.0 if scale is None else scale, dropout_p)
        q, k, own_scale = dot
        scale = own_scale if scale is None else own_scale * scale
    else:
        check_same_width(q, k)
        scale = q.size(-1) ** -0.5 if scale is None else scale
    return _by_dot_product(q, k, v, mask, scale, dropout_p)


def _has_mode() -> bool:
    """Whether one of torch's modes for functions is on."""
    return not torch.compiler.is_compiling() and bool(has_torch_function_unary(None))


def _observed(q: Tensor, k: Tensor, v: Tensor, mask: Any, options: dict[str, Any]) -> Any:
    """Let others make the call, one of torch's modes first."""
    if _has_mode():
        return handle_torch_function(attention, (), q, k, v, mask, **options)
    return call_observed(attention, (q, k, v, mask), options)


def is_causal(mask: object, q: Tensor, k: Tensor) -> bool:
    """Whether the mask is causal and nothing else, in the way that the kernels know."""
    if not isinstance(mask, Mask) or mask.lengths or mask.allowed or mask.added:
        return False
    if mask.bands == _CAUSAL:
        return q.shape[2] == k.shape[2]
    return mask.bands == _CAUSAL_FROM_START


def _bias_alone(mask: object, q: Tensor, k: Tensor) -> Tensor | None:
    """The mask's bias, if it is nothing else and the kernels take it as it is."""
    is_explicit = isinstance(mask, Mask)
    if isinstance(mask, Mask):
        if len(mask.added) != 1 or mask.bands or mask.lengths or mask.allowed:
            return None
        mask = mask.added[0]
    if type(mask) is not Tensor or mask.dtype != q.dtype or mask.device != q.device or mask.dim() != 4:
        return None
    b, h, t, s = mask.shape
    if not (b in (1, q.size(0)) and h in (1, q.size(1)) and t in (1, q.size(2)) and s == k.size(2)):
        return None
    if not is_explicit:
        check_not_binary(mask)
    return mask


def _by_dot_product(q: Tensor, k: Tensor, v: Tensor, mask: Mask, scale: float, dropout_p: float) -> Tensor:
    """Bring queries, keys and values to four dimensions, attend, and bring the output back."""
    lead = leading(q, k, v)
    if mask.limits:
        mask = on_device(mask, q).fitted(lead, q.size(-2), k.size(-2))
    output = _in_plain_steps(q, k, v, mask, lead, scale, dropout_p)
    if output is None:
        output = _fused(*four_dimensional(q, k, v, mask, lead), scale, dropout_p)
    return output if len(lead) == 2 else output.reshape(*lead, *output.shape[-2:])


def _fused(
    q: Float[Tensor, "B H T D"],
    k: Float[Tensor, "B Hkv S D"],
    v: Float[Tensor, "B Hkv S Dv"],
    mask: Mask,
    scale: float,
    dropout_p: float,
) -> Float[Tensor, "B H T Dv"]:
    """Attend by dot product, in one call where the kernel or a small tensor can hold the mask."""
    t, s, device = q.size(-2), k.size(-2), q.device

    def call(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *, causal: bool = False) -> Tensor:
        return _sdpa(q, k, v, mask, causal, scale, dropout_p)

    if not mask.limits:
        return call(q, k, v, None)
    if is_causal(mask, q, k):
        return call(q, k, v, None, causal=True)
    if mask.bands == _CAUSAL and not mask.tensors and t < s and q.is_cuda and not is_grouped(q, k, v):
        from torch.nn.attention.bias import causal_lower_right  # noqa: PLC0415 (loads torch.compile: 1.6 s)

        return call(q, k, v, causal_lower_right(t, s))
    if _pairs(mask, t, s) <= _PAIRS.get(device.type, _PAIRS["cuda"]):
        return call(q, k, v, mask.block((0, t), (0, s), t, s, device=device))

    def attend_block(
        rows: tuple[int, int], columns: tuple[int, int], q: Tensor, k: Tensor, v: Tensor
    ) -> Tensor:
        return call(q, k, v, mask.block(rows, columns, t, s, device=device))

    return _by_blocks(attend_block, q, k, v, mask, _BLOCK.get(device.type, _BLOCK["cuda"]), dropout_p)


def _explicit(
    score: Score, q: Tensor, k: Tensor, v: Tensor, mask: Mask, scale: float, dropout_p: float
) -> Float[Tensor, "... T Dv"]:
    """Attend by any score at all: softmax(scores) @ v, a block of queries at a time."""
    if is_grouped(q, k, v):
        k, v = (x.repeat_interleave(q.size(1) // k.size(1), 1) for x in (k, v))
    lead, t, s = leading(q, k, v), q.size(-2), k.size(-2)
    mask = on_device(mask, q).fitted(lead, t, s)

    def attend_block(
        rows: tuple[int, int], columns: tuple[int, int], q: Tensor, k: Tensor, v: Tensor
    ) -> Tensor:
        block = mask.block(rows, columns, t, s, device=q.device)
        weights = masked_softmax(score(q, k) * scale, block)
        return F.dropout(weights, dropout_p) @ v

    size = max(1, _PAIRS.get(q.device.type, _PAIRS["cuda"]) // max(1, s * math.prod(lead)))
    output = _by_blocks(attend_block, q, k, v, mask, size, dropout_p)
    return output.expand(*lead, *output.shape[-2:])


def _additive(
    score: Additive, q: Tensor, k: Tensor, v: Tensor, mask: Mask, scale: float
) -> Float[Tensor, "... T Dv"] | None:
    """Attend by additive scores on their own kernels; None where those don't take the inputs."""
    try:
        from sightline.attention.kernels.additive import additive_attention, takes  # noqa: PLC0415 (Triton)
    except ImportError:  # no Triton for this system
        return None
    if is_grouped(q, k, v):
        k, v = (x.repeat_interleave(q.size(1) // k.size(1), 1) for x in (k, v))
    lead = leading(q, k, v)
    mask = on_device(mask, q).fitted(lead, q.size(-2), k.size(-2))
    a, b = score.projected(q, k)
    v = v.to(a.dtype)  # as autocast would
    if not takes(a, b, v, mask, lead):
        return None
    a, b, v, mask = four_dimensional(a, b, v, mask, lead)
    output = additive_attention(a, b, score.v, v, mask, scale)
    return output.reshape(*lead, *output.shape[-2:])


def _by_blocks(
    attend_block: Callable[..., Tensor],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask,
    size: int,
    dropout_p: float,
) -> Float[Tensor, "... T Dv"]:
    """Attend with ``size`` queries at a time, each block over the keys that it may look at."""
    t, s = q.size(-2), k.size(-2)
    keep_nothing = t > size and torch.is_grad_enabled()
    outputs = []
    for top in range(0, max(t, 1), size):
        rows = (top, min(top + size, t))
        columns = mask.keys(rows, t, s)
        block = (rows, columns, q[..., slice(*rows), :], *(x[..., slice(*columns), :] for x in (k, v)))
        if keep_nothing:  # autograd would keep every block's mask, T x S in all: compute it again instead
            outputs.append(
                checkpoint(attend_block, *block, use_reentrant=False, preserve_rng_state=dropout_p > 0)
            )
        else:
            outputs.append(attend_block(*block))
    return torch.cat(outputs, dim=-2) if len(outputs) > 1 else outputs[0]


def _sdpa(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    causal: bool,
    scale: float,
    dropout_p: float,
) -> Tensor:
    """Call torch's fused attention, around the corners where it would be slow or wrong."""
    if not (q.size(1) and k.size(2)):  # zeros: torch 2.11 divides by the number of heads, and dies; without
        return q @ k[:, :1].mT @ v[:, :1]  # keys it adds 0 * q.sum(), which is NaN where the sum is infinite
    d, d_v = q.size(-1), v.size(-1)
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))  # the fused kernels want it
    grouped = q.size(1) != k.size(1)
    if scale <= 0:  # the causal kernels would multiply their -inf by it
        q, scale = q * scale, 1.0
    if grouped and q.is_cuda and q.dtype not in _HALF:  # no fused kernel takes these
        k, v = (x.repeat_interleave(q.size(1) // k.size(1), 1) for x in (k, v))
        grouped = False
    if type(mask) is Tensor:  # not torch's own kind of causal mask, which the kernels know
        if mask.dtype == torch.bool and q.is_cuda:  # cuDNN would let an empty row look everywhere
            mask = torch.zeros_like(mask, dtype=q.dtype).masked_fill_(~mask, -torch.inf)
        elif mask.dtype != torch.bool:
            mask = mask.to(q.dtype)
    padded = d != d_v and not q.is_cuda and q.shape[:3].numel() * k.size(-2) > _FEW
    if padded:  # the CPU's kernel wants one width
        q, k, v = (F.pad(x, (0, max(d, d_v) - x.size(-1))) for x in (q, k, v))
    output = F.scaled_dot_product_attention(q, k, v, mask, dropout_p, causal, scale=scale, enable_gqa=grouped)
    return output[..., :d_v] if padded else output


def _in_plain_steps(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, lead: tuple[int, ...], scale: float, dropout_p: float
) -> Tensor | None:
    """Attend in steps that can be differentiated twice and forward; None where that would cost time.

    The fused kernel has one derivative. With other than four dimensions torch does without it.
    """
    small = math.prod(lead) * q.size(-2) * k.size(-2) <= _FEW and not q.is_cuda
    if len(lead) == 2 or not small or not any(x.requires_grad or _is_dual(x) for x in (q, k, v)):
        return None
    if are_cast(q, k, v):  # as the fused call would be, this operator isn't
        q, k, v = (x.to(torch.get_autocast_dtype(x.device.type)) for x in (q, k, v))
    q, k, v, mask = four_dimensional(q, k, v, mask, lead)
    t, s = q.size(-2), k.size(-2)
    block = mask.block((0, t), (0, s), t, s, device=q.device) if mask.limits else None
    if block is not None and block.dtype == torch.bool:
        block = torch.zeros_like(block, dtype=q.dtype).masked_fill_(~block, -torch.inf)
    elif block is not None:
        block = block.to(q.dtype)
    output: Tensor
    output, _ = torch.ops.aten._scaled_dot_product_attention_math(  # noqa: SLF001
        q, k, v, block, dropout_p, False, None, scale=scale
    )
    return output


def _is_dual(x: Tensor) -> bool:
    """Whether forward-mode autograd is at work."""
    return torch.autograd.forward_ad.unpack_dual(x).tangent is not None


def four_dimensional(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, lead: tuple[int, ...]
) -> tuple[Tensor, Tensor, Tensor, Mask]:
    """Bring any leading dimensions to the two, batch and heads, that the kernels take."""
    if q.shape[:-2] == k.shape[:-2] == v.shape[:-2] and len(lead) == 2:
        return q, k, v, mask
    if is_grouped(q, k, v):
        k, v = (x.expand(lead[0], -1, -1, -1) for x in (k, v))
        return q.expand(*lead, -1, -1), k, v, mask
    split = max(len(lead) - 1, 1)  # where the batch ends and the heads begin

    def four(x: Tensor, shape: tuple[int, ...]) -> Tensor:
        x = x.expand(*shape, *x.shape[-2:])
        return x.reshape(math.prod(shape[:split]), math.prod(shape[split:]), *x.shape[-2:])

    def four_mask(x: Tensor) -> Tensor:
        batch, heads = x.shape[:-2][:split], x.shape[:-2][split:]
        return four(x, (*(batch if math.prod(batch) == 1 else lead[:split]), *heads))

    q, k, v = (four(x, lead) for x in (q, k, v))
    lengths, allowed, added = (tuple(map(four_mask, x)) for x in (mask.lengths, mask.allowed, mask.added))
    return q, k, v, Mask(mask.bands, lengths, allowed, added)


def _pairs(mask: Mask, t: int, s: int) -> int:
    """How many numbers the mask would take if it were built whole, beyond what the caller has built."""
    shapes = [x.shape for x in mask.tensors] + [(t, 1) for _ in mask.bands]
    pairs = math.prod(torch.broadcast_shapes(*shapes, (1, s)))
    return 0 if any(x.numel() == pairs for x in mask.allowed + mask.added) else pairs


def _check_scale(scale: object) -> None:
    if scale is None:
        return
    if not isinstance(scale, Real):
        raise TypeError(
            f"scale must be a number, got {type(scale).__name__}; multiply q by a scale that is to be learned"
        )
    if not math.isfinite(scale):
        raise ValueError(f"scale must be a finite number, got {scale}; None gives D ** -0.5")


def _is_share(dropout_p: object) -> bool:
    return isinstance(dropout_p, float) and 0.0 <= dropout_p < 1.0


def _check_dropout(dropout_p: object) -> None:
    if not isinstance(dropout_p, Real):
        raise TypeError(f"dropout_p must be a number in [0, 1), got {type(dropout_p).__name__}")
    if not 0.0 <= float(dropout_p) < 1.0:
        raise ValueError(f"dropout_p must lie in [0, 1), got {dropout_p}; 0 drops nothing")
