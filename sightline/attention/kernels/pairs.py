"""Additive scores of a tile of pairs, in registers: what the kernels forward and backward share.

A hyperbolic tangent of a sum is a sigmoid, and an exponential of a sum a product:

    tanh(a + b) = 1 - 2 σ          σ = 1 / (1 + A B)          A = exp(2 a),  B = exp(2 b)

so the exponentials are taken once for each query and once for each key, and a pair is left with a
multiply-add and a reciprocal. Reciprocals come from the special-function units, sixteen a clock in each
processor, which is what bounds all this; so two share one, 1 / x = y / (x y). That is twice the speed of the
hardware's own tangent (whose packed half-precision form is two instructions on Hopper, not one), at the
accuracy of float32 rather than at ten bits.

The product of two such terms is a float32 while a and b are within ±10. Beyond that, in heads that are FAR,
the sum is formed first, as the equation says, at about a third of the speed.
"""

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
NEAR = tl.constexpr(31.0)  # log2 of A and B at most: (1 + A B)² is then a float32


@triton.jit
def inverse(x, PTX: tl.constexpr):
    """1 / x to the last bit but one, in one instruction where there is one."""
    if PTX:
        y = tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        y = 1.0 / x
    return y


@triton.jit
def grown(a, b, FAR: tl.constexpr):
    """1 + exp(2 (a + b)), from the exponentials, or from the logarithms where those are FAR."""
    if FAR:
        x = a + b
        y = 1.0 + tl.exp2(tl.where(x > 2 * NEAR, 2 * NEAR, x))
    else:
        y = a * b + 1.0
    return y


@triton.jit
def summed_sigmoids(
    inner_ptr, owner_ptr,  # (R, length) each, at the first of the tile's rows and columns
    w_ptr, R, inner_length, owner_length,
    FAR: tl.constexpr, PTX: tl.constexpr, BI: tl.constexpr, BO: tl.constexpr, PAIRS: tl.constexpr,
):  # fmt: skip
    """Σ_r w[r] σ[i, o, r], (BI, BO): the score is a constant, which no weight feels, less twice this."""
    inner_at = inner_ptr + tl.arange(0, BI)
    owner_at = owner_ptr + tl.arange(0, BO)
    total = tl.zeros((BI, BO), tl.float32)
    for r in range(0, R, 2 * PAIRS):
        for j in tl.static_range(PAIRS):
            w0 = tl.load(w_ptr + r + 2 * j)
            w1 = tl.load(w_ptr + r + 2 * j + 1)
            x0, x1 = two_grown(inner_at, owner_at, r + 2 * j, inner_length, owner_length, FAR)
            total += (w0 * x1 + w1 * x0) * inverse(x0 * x1, PTX)
    return total


@triton.jit
def two_grown(inner_at, owner_at, r, inner_length, owner_length, FAR: tl.constexpr):
    """1 + exp(2 (a + b)) of hidden units r and r + 1."""
    inner0 = tl.load(inner_at + r * inner_length)
    inner1 = tl.load(inner_at + (r + 1) * inner_length)
    owner0 = tl.load(owner_at + r * owner_length)
    owner1 = tl.load(owner_at + (r + 1) * owner_length)
    x0 = grown(inner0[:, None], owner0[None, :], FAR)
    x1 = grown(inner1[:, None], owner1[None, :], FAR)
    return x0, x1


@triton.jit
def limited(
    x,  # a tile of scores, in units of log2
    queries, keys,  # positions, (1, n) and (m, 1) or the other way round
    limit,  # how many keys are real
    low, high,
    allowed_ptr, allowed_t, allowed_s,
    added_ptr, added_t, added_s,
    T,
    HAS_LOW: tl.constexpr, HAS_HIGH: tl.constexpr, HAS_ALLOWED: tl.constexpr, HAS_ADDED: tl.constexpr,
):  # fmt: skip
    """Add what the mask adds, and put -inf where a query may not look."""
    ok = (queries < T) & (keys < limit)
    if HAS_HIGH:
        ok = ok & (keys - queries <= high)
    if HAS_LOW:
        ok = ok & (keys - queries >= low)
    if HAS_ALLOWED:
        at = queries.to(tl.int64) * allowed_t + keys.to(tl.int64) * allowed_s
        ok = ok & (tl.load(allowed_ptr + at, mask=ok, other=0) != 0)
    if HAS_ADDED:
        at = queries.to(tl.int64) * added_t + keys.to(tl.int64) * added_s
        x += tl.load(added_ptr + at, mask=ok, other=0.0).to(tl.float32) * LOG2E
    return tl.where(ok, x, float("-inf"))
