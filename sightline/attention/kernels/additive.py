"""Attention by additive scores on the Triton kernels: which of them run, with what, into what."""

import math
from typing import Any

import torch
import torch.nn.functional as F
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import Parameter

from sightline.attention.kernels.backward import backward_kernel
from sightline.attention.kernels.forward import forward_kernel
from sightline.attention.kernels.limits import NO_LIMIT, Limits, limits_of
from sightline.attention.kernels.prepare import far_kernel, turn_kernel
from sightline.attention.masks import Mask
from sightline.shapes import Float

_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
_MOST_HEADS = 65535  # of a grid
_MOST_NUMBERS = 1 << 30  # of a head's a or b, counted in 32 bits
_LOG2E = math.log2(math.e)
_FORWARD_PAIRS = 4  # hidden units are taken two by two, and so many twos before the loop turns
_BACKWARD_PAIRS = 2
_UNITS = 2 * _FORWARD_PAIRS
_LANES = 128  # keys in the forward pass, owners in the backward pass: one for each thread
_QUERIES = 16  # in a thread's registers, forward
_INNER = 32  # and backward
_WARPS = 4
_PROGRAMS = 4  # that a processor runs at once
_REGISTERS = 128  # of a thread, so that it can
_MOST_PARTS = 16
_TILE = (64, 32)  # of lengths and hidden units, where a and b are prepared


def takes(a: Tensor, b: Tensor, values: Tensor, mask: Mask, lead: tuple[int, ...]) -> bool:
    """Whether the kernels take these projected queries and keys, values, and mask fitted to ``lead``."""
    tensors = (a, b, values, *mask.tensors)
    return (
        all(type(x) in (Tensor, Parameter) for x in tensors)
        and a.dtype == b.dtype == values.dtype
        and a.dtype in _DTYPES
        and a.size(-2) >= _QUERIES  # fewer leave most of a tile empty, and need little memory the plain way
        and min(x.numel() for x in tensors) > 0
        and math.prod(lead) <= _MOST_HEADS
        and max(a.size(-2), b.size(-2)) * _up(a.size(-1), _UNITS) < _MOST_NUMBERS
        and not any(x.requires_grad for x in mask.added)
        and not torch.compiler.is_compiling()
        and _present(a.device)
    )


def additive_attention(
    a: Float[Tensor, "B H T R"],
    b: Float[Tensor, "B H S R"],
    w: Float[Tensor, " R"],
    values: Float[Tensor, "B H S Dv"],
    mask: Mask,
    scale: float,
) -> Float[Tensor, "B H T Dv"]:
    """Mix values by softmax(scale Σ_r w[r] tanh(a[t, r] + b[s, r]) + mask), in O(T + S) memory.

    Computed in float32 whatever the inputs are in. Gradients reach a, b, w and the values, not the mask.

    Args:
        a, b: Projected queries and keys.
        w: What each hidden unit adds to a score.
        values: What is mixed.
        mask: Fitted to ``(B, H, T, S)``.
        scale: Multiplies the scores.
    """
    limits = limits_of(mask, (*a.shape[:3], b.size(2)))
    output: Tensor = _AdditiveAttention.apply(a, b, w, values, limits, float(scale))
    return output


class _AdditiveAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, a: Tensor, b: Tensor, w: Tensor, values: Tensor, limits: Limits, scale: float
    ) -> Tensor:
        prepared = _prepared(a, b, w)
        args = _KernelArgs(*prepared, values, limits, scale, a.size(2))
        output = values.new_empty(*a.shape[:3], values.size(3))
        mixed = torch.zeros_like(output, dtype=torch.float32)
        lse = args.a.new_empty(args.heads, args.t)
        forward_kernel[triton.cdiv(args.t, _QUERIES), args.heads](
            args.a, args.b, args.w, args.far, values, *values.stride(), *args.mask,
            mixed, output, lse,
            args.h, args.t, args.s, args.a.size(1), args.a.size(2), args.b.size(2), values.size(3),
            scale * _LOG2E, limits.low, limits.high, **args.options,
            BM=_QUERIES, BN=_LANES, PAIRS=_FORWARD_PAIRS, num_warps=_WARPS, num_stages=1, maxnreg=_REGISTERS,
        )  # fmt: skip
        ctx.save_for_backward(*prepared, w, values, output, lse)
        ctx.limits, ctx.scale, ctx.dtype = limits, scale, a.dtype
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, None, None]:
        a, b, padded, far, w, values, output, lse = ctx.saved_tensors
        args = _KernelArgs(a, b, padded, far, values, ctx.limits, ctx.scale, output.size(2))
        delta = (grad.float() * output.float()).sum(3)
        by_query, grad_w = args.backward(grad, lse, delta, by_query=True)
        by_key, grad_values = args.backward(grad, lse, delta, by_query=False)

        def turned(
            found: Tensor, length: int
        ) -> Tensor:  # (B H, padded R, padded length) -> (B, H, length, R)
            found = found[:, : w.numel(), :length].mT * (4 * w.float())
            return found.to(ctx.dtype).view(*output.shape[:2], length, w.numel())

        return (
            turned(by_query, args.t),
            turned(by_key, args.s),
            (-2 * grad_w[: w.numel()]).to(w.dtype),
            grad_values.to(values.dtype),
            None,
            None,
        )


class _KernelArgs:
    """What the kernels are given: a and b as they were prepared, the mask by pointers and strides."""

    def __init__(
        self,
        a: Tensor,
        b: Tensor,
        w: Tensor,
        far: Tensor,
        values: Tensor,
        limits: Limits,
        scale: float,
        t: int,
    ) -> None:
        self.a, self.b, self.w, self.far = a, b, w, far
        self.values, self.limits, self.scale = values, limits, scale
        self.h, self.t, self.s = values.size(1), t, values.size(2)
        self.heads = values.size(0) * self.h

    @property
    def mask(self) -> tuple[Any, ...]:
        """The mask's tensors with their strides; any pointer where there is none."""
        lengths, allowed, added = self.limits[2:]
        return (
            self.far if lengths is None else lengths, *((0, 0) if lengths is None else lengths.stride()),
            self.far if allowed is None else allowed, *((0,) * 4 if allowed is None else allowed.stride()),
            self.far if added is None else added, *((0,) * 4 if added is None else added.stride()),
        )  # fmt: skip

    @property
    def options(self) -> dict[str, Any]:
        return {
            "HAS_LENGTHS": self.limits.lengths is not None,
            "HAS_ALLOWED": self.limits.allowed is not None,
            "HAS_ADDED": self.limits.added is not None,
            "HAS_LOW": self.limits.low > -NO_LIMIT,
            "HAS_HIGH": self.limits.high < NO_LIMIT,
            "PRECISION": "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee",
            "BD": 16 if self.values.dtype == torch.float32 else 32,  # of the values at a time
            "PTX": self.a.is_cuda,
        }

    def backward(self, grad: Tensor, lse: Tensor, delta: Tensor, *, by_query: bool) -> tuple[Tensor, Tensor]:
        """What queries and w get, or what keys and values get."""
        values, width = self.values, self.values.size(3)
        inner, owner, inner_rows, owner_rows = (
            (self.b, self.a, values, grad) if by_query else (self.a, self.b, grad, values)
        )
        n_owners, n_inner = (self.t, self.s) if by_query else (self.s, self.t)
        blocks, units = triton.cdiv(n_owners, _LANES), self.a.size(1)
        parts = _parts(blocks * self.heads, triton.cdiv(n_inner, _INNER), _PROGRAMS * _processors(self.a))
        slab = owner.new_zeros(parts, *owner.shape)
        w_slab = torch.zeros_like(slab) if by_query else slab
        values_slab = slab if by_query else owner.new_zeros(parts, *values.shape)
        tile = owner.new_empty(parts * self.heads * blocks, _INNER, _LANES)
        backward_kernel[blocks, self.heads, parts](
            inner, owner, self.w, self.far,
            inner_rows, *inner_rows.stride(), owner_rows, *owner_rows.stride(), lse, delta, *self.mask,
            slab, w_slab, values_slab, tile,
            self.h, self.t, self.s, units, inner.size(2), owner.size(2), width,
            self.scale, self.scale * _LOG2E, self.limits.low, self.limits.high, 1,
            BY_QUERY=by_query, **self.options, BI=_INNER, BO=_LANES, PAIRS=_BACKWARD_PAIRS,
            num_warps=_WARPS, num_stages=1, maxnreg=_REGISTERS,
        )  # fmt: skip
        return slab.sum(0), (w_slab.sum((0, 1, 3)) if by_query else values_slab.sum(0))


def _prepared(a: Tensor, b: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Turn a and b, pad w, and find the heads that are far."""
    far = torch.zeros(a.size(0) * a.size(1), dtype=torch.int32, device=a.device)
    padded = F.pad(w.float(), (0, _up(w.numel(), _UNITS) - w.numel()))
    for x in (a, b):
        far_kernel[_tiles(x)](
            x, *x.stride(), far, x.size(1), *x.shape[2:], BL=_TILE[0], BR=_TILE[1], num_warps=4
        )
    return _turned(a, far), _turned(b, far), padded, far


def _turned(x: Tensor, far: Tensor) -> Tensor:
    """(B, H, length, R) -> (B H, padded R, padded length)."""
    n, h, length, units = x.shape
    y = torch.empty(n * h, _up(units, _UNITS), _up(length, _LANES), dtype=torch.float32, device=x.device)
    turn_kernel[_tiles(x)](
        x, *x.stride(), y, far, h, length, units, y.size(2), y.size(1), BL=_TILE[0], BR=_TILE[1], num_warps=4
    )
    return y


def _tiles(x: Tensor) -> tuple[int, int, int]:
    return (
        triton.cdiv(_up(x.size(2), _LANES), _TILE[0]),
        triton.cdiv(_up(x.size(3), _UNITS), _TILE[1]),
        x.size(0) * x.size(1),
    )


def _present(device: torch.device) -> bool:
    """Whether the device is an NVIDIA GPU of Ampere's kind or newer, or the interpreter's CPU."""
    if device.type == "cpu":
        return True
    return torch.version.hip is None and torch.cuda.get_device_capability(device) >= (8, 0)


def _up(n: int, size: int) -> int:
    return triton.cdiv(n, size) * size


def _processors(x: Tensor) -> int:
    return torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 2


def _parts(blocks: int, tiles: int, slots: int) -> int:
    """Into how many parts each block's tiles go, so that all programs end as early as they can.

    Example:
        >>> _parts(64, 32, 528), _parts(300, 32, 528), _parts(5000, 32, 528), _parts(1, 2, 528)
        (8, 7, 1, 2)
    """
    most = min(_MOST_PARTS, tiles, max(1, 4 * slots // blocks))
    return min(range(1, max(2, most + 1)), key=lambda n: (-(-blocks * n // slots)) * -(-tiles // n))
