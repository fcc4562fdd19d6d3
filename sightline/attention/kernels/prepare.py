"""Projected queries and keys as the kernels read them: exponentials, in float32, lengths side by side.

(B, H, length, R) of any strides becomes (B H, R', length'), R' and length' padded to whole blocks, so that no
later load need ask where the end is.
"""

import triton
import triton.language as tl

from sightline.attention.kernels.pairs import NEAR

LN2 = tl.constexpr(0.6931471805599453)
TWO_LOG2E = tl.constexpr(2.885390043258667)  # 2 log2(e) as a float32,
REST = tl.constexpr(3.851925978e-08)  # and what is missing


@triton.jit
def far_kernel(
    x_ptr, x_b, x_h, x_t, x_r,
    far_ptr,  # (B H) int32, zeros
    H, L, R,
    BL: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    """Mark the heads with an exponential too large or small for the product of two."""
    head = tl.program_id(2).to(tl.int64)
    x = tile_of(x_ptr + (head // H) * x_b + (head % H) * x_h, x_t, x_r, L, R, BL, BR)
    far = tl.max(tl.max((tl.abs(x) * TWO_LOG2E > NEAR).to(tl.int32), axis=1), axis=0)
    tl.atomic_max(far_ptr + head, far, mask=far > 0, sem="relaxed")


@triton.jit
def turn_kernel(
    x_ptr, x_b, x_h, x_t, x_r,
    y_ptr,  # (B H, padded R, padded L)
    far_ptr,  # (B H) int32
    H, L, R, padded_L, padded_R,
    BL: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    """Write exp(2 x), or its log2 in the heads that are far."""
    head = tl.program_id(2).to(tl.int64)
    x = tile_of(x_ptr + (head // H) * x_b + (head % H) * x_h, x_t, x_r, L, R, BL, BR)
    y = x * TWO_LOG2E
    if tl.load(far_ptr + head) == 0:  # what the product has lost is made up for: it would be an error of A
        lost = tl.fma(x, TWO_LOG2E, -y) + x * REST
        y = tl.exp2(y)
        y += y * (lost * LN2)
    at = (tl.program_id(0) * BL + tl.arange(0, BL))[:, None]
    r = (tl.program_id(1) * BR + tl.arange(0, BR))[None, :]
    y_ptr += head * padded_R * padded_L
    tl.store(y_ptr + r * padded_L + at, y, mask=(at < padded_L) & (r < padded_R))


@triton.jit
def tile_of(x_ptr, x_t, x_r, L, R, BL: tl.constexpr, BR: tl.constexpr):
    """The program's tile, zeros beyond the end."""
    at = (tl.program_id(0) * BL + tl.arange(0, BL))[:, None]
    r = (tl.program_id(1) * BR + tl.arange(0, BR))[None, :]
    return tl.load(x_ptr + at.to(tl.int64) * x_t + r * x_r, mask=(at < L) & (r < R), other=0.0).to(tl.float32)
