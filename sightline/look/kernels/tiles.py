"""What the kernels share: how a tile of scores is loaded, limited and turned into logarithms of weights.

Logarithms are to the base two in here, for ``exp2`` is what the hardware has.
"""

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
LOG2_ZERO = tl.constexpr(-1e4)  # log w of a pair that may not look: its exp2 is 0, and so is w log w
EMPTY_LSE = tl.constexpr(3e4)  # lse of a query that looks at nothing: log w is below LOG2_ZERO everywhere
LOG2_CUTOFF = tl.constexpr(-5e3)
FAR = tl.constexpr(1e30)


@triton.jit
def tile_scores(
    a, b,  # (BM, D), (BN, D)
    queries, keys,  # positions, (BM,) and (BN,)
    scale2,
    added_ptr, added_t, added_s,
    T, S,
    HAS_ADDED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Scores of a tile in units of log2: scale q·k + added."""
    x = tl.dot(a, tl.trans(b), input_precision=PRECISION) * scale2
    if HAS_ADDED:
        inside = (queries < T)[:, None] & (keys < S)[None, :]
        at = queries[:, None].to(tl.int64) * added_t + keys[None, :].to(tl.int64) * added_s
        x += tl.load(added_ptr + at, mask=inside, other=0.0).to(tl.float32) * LOG2E
    return x


@triton.jit
def apply_limits(
    x,  # (BM, BN)
    queries, keys,
    limit,  # how many keys are real
    low, high,
    allowed_ptr, allowed_t, allowed_s,
    T, S,
    nothing,  # what takes the place of a score that may not be
    CUT: tl.constexpr, HAS_LOW: tl.constexpr, HAS_HIGH: tl.constexpr, HAS_ALLOWED: tl.constexpr,
):  # fmt: skip
    """Put ``nothing`` where a query may not look; a tile that is not CUT lies inside length and band."""
    if HAS_ALLOWED:
        inside = (queries < T)[:, None] & (keys < S)[None, :]
        at = queries[:, None].to(tl.int64) * allowed_t + keys[None, :].to(tl.int64) * allowed_s
        allowed = tl.load(allowed_ptr + at, mask=inside, other=0).to(tl.float32)
        x += (allowed - 1) * FAR  # added, not chosen: so the scores stay in the registers they are in
        x = tl.where(x < -0.5 * FAR, nothing, x)
    if CUT:
        ok = (keys < limit)[None, :] & (queries < T)[:, None]
        ahead = keys[None, :] - queries[:, None]
        if HAS_HIGH:
            ok = ok & (ahead <= high)
        if HAS_LOW:
            ok = ok & (ahead >= low)
        x = tl.where(ok, x, nothing)
    return x


@triton.jit
def tile_logs(
    q, k, lse, rest, queries, keys, scale2, limit, low, high,
    allowed_ptr, allowed_t, allowed_s, added_ptr, added_t, added_s, T, S,
    CUT: tl.constexpr, TWO_PARTS: tl.constexpr, HAS_ADDED: tl.constexpr,
    HAS_LOW: tl.constexpr, HAS_HIGH: tl.constexpr, HAS_ALLOWED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The logarithms of a tile's weights, LOG2_ZERO where a query may not look."""
    x = tile_scores(q, k, queries, keys, scale2, added_ptr, added_t, added_s, T, S, HAS_ADDED, PRECISION)
    x -= lse[:, None]
    if TWO_PARTS:
        x -= rest[:, None]
    return apply_limits(
        x, queries, keys, limit, low, high, allowed_ptr, allowed_t, allowed_s, T, S, LOG2_ZERO,
        CUT, HAS_LOW, HAS_HIGH, HAS_ALLOWED,
    )  # fmt: skip


@triton.jit
def real_keys(lengths_ptr, lengths_b, lengths_h, b, h, S, HAS_LENGTHS: tl.constexpr):
    """How many keys are real."""
    limit = S
    if HAS_LENGTHS:
        limit = tl.minimum(S, tl.load(lengths_ptr + b * lengths_b + h * lengths_h)).to(tl.int32)
    return limit


@triton.jit
def keys_for(
    first_query, limit, low, high, T,
    HAS_LOW: tl.constexpr, HAS_HIGH: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """The keys that BM queries walk over, [start, end); [inner, outer) are whole tiles that all see."""
    start, end = 0, limit
    if HAS_LOW:
        start = tl.maximum(0, first_query + low)
    if HAS_HIGH:
        end = tl.minimum(limit, tl.minimum(T, first_query + BM) + high)
    start = (start // BN) * BN
    inner, outer = start, limit
    if HAS_LOW:
        inner = tl.cdiv(tl.maximum(start, first_query + BM - 1 + low), BN) * BN
    if HAS_HIGH:
        outer = tl.minimum(outer, tl.maximum(first_query + high + 1, 0))
    outer = (outer // BN) * BN
    if outer <= inner:
        inner, outer = end, end
    return start, inner, outer, end


@triton.jit
def queries_for(
    first_key, limit, low, high, T,
    HAS_LOW: tl.constexpr, HAS_HIGH: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """The queries that BN keys walk over, [start, end); [inner, outer) are whole tiles that see all."""
    start, end = 0, T
    if HAS_HIGH:
        start = tl.maximum(0, first_key - high)
    if HAS_LOW:
        end = tl.minimum(T, first_key + BN - low)
    if first_key >= limit:
        end = 0
    start = (start // BM) * BM
    inner, outer = start, tl.maximum(start, end)
    if HAS_HIGH:
        inner = tl.cdiv(tl.maximum(start, first_key + BN - 1 - high), BM) * BM
    if HAS_LOW:
        outer = (tl.minimum(outer, tl.maximum(first_key + 1 - low, 0)) // BM) * BM
    if (first_key + BN > limit) | (outer <= inner):
        inner, outer = end, end
    return start, inner, outer, end


@triton.jit
def group_maxima(x, BM: tl.constexpr, BN: tl.constexpr):
    """The largest score in each of 32 groups of a tile's keys, (BM, 32); key 8 i + c is in (i // n, c).

    A group's keys lie in one thread's registers, so this is the plain maximum, halfway through.
    """
    return tl.max(tl.reshape(x, (BM, 4, BN // 32, 8)), axis=2).reshape(BM, 32)


@triton.jit
def key_of(group, i, BN: tl.constexpr, N: tl.constexpr):
    """The i-th key of a numbered group, groups being counted through all tiles.

    A program's 32 groups reach over its N tiles of BN keys. N is 0 for those of the Hopper kernel: there
    each 16 keys hold 4 groups of 4, a group's keys being those that lie in one thread.
    """
    if N == 0:
        key = (group // 4) * 16 + (i // 2) * 8 + (group % 4) * 2 + i % 2
    else:
        inside = group % 32
        tile = (group // 32) * N + i // (BN // 32)
        key = tile * BN + (inside // 8) * (BN // 4) + (i % (BN // 32)) * 8 + inside % 8
    return key


@triton.jit
def packed(log2_w, group):
    """A logarithm of a weight and the group that holds it as an integer, the larger the better; 0 is less.

    No log w is above zero but by rounding, so the bits of its size are in order, upside down.
    """
    size = tl.minimum(log2_w, 0.0).to(tl.int32, bitcast=True) & 0x7FFFFFFF
    return ((0x7FFFFFFF - size).to(tl.int64) << 32) | (0x7FFFFFFF - group).to(tl.int64)


@triton.jit
def unpacked(best):
    """And back; not a number where nothing was packed."""
    size = 0x7FFFFFFF - (best >> 32).to(tl.int32)
    return -size.to(tl.float32, bitcast=True), (0x7FFFFFFF - (best & 0x7FFFFFFF)).to(tl.int32)


@triton.jit
def cell_of(position, n_cells, length):
    """The row or column of the map that a position falls into."""
    return (((position.to(tl.int64) + 1) * n_cells - 1) // length).to(tl.int32)


@triton.jit
def start_of(cell, n_cells, length):
    """Where a row or column of the map begins."""
    return (cell.to(tl.int64) * length // n_cells).to(tl.int32)


@triton.jit
def load_tile(ptr, rows, row_stride, n_rows, width, width_stride, D):
    """Some rows of a matrix, zeros beyond its edges."""
    inside = ((rows >= 0) & (rows < n_rows))[:, None] & (width < D)[None, :]
    at = rows[:, None].to(tl.int64) * row_stride + width[None, :] * width_stride
    return tl.load(ptr + at, mask=inside, other=0.0)


@triton.jit
def load_lse(ptr, queries, there):
    """The lse in units of log2, EMPTY_LSE for a query that looks at nothing."""
    lse = tl.load(ptr + queries, mask=there, other=float("inf"))
    return tl.where(tl.abs(lse) < 1e30, lse * LOG2E, EMPTY_LSE)


@triton.jit
def queries_between(
    first, last, first_key, limit, low, high,
    HAS_LOW: tl.constexpr, HAS_HIGH: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """The queries of a window that BN keys walk over, [start, end); [inner, outer) are tiles that see all."""
    start, end = first, last
    if HAS_HIGH:
        start = tl.maximum(start, first_key - high)
    if HAS_LOW:
        end = tl.minimum(end, first_key + BN - low)
    if first_key >= limit:
        end = start
    inner, outer = start, end
    if HAS_HIGH:
        inner = start + tl.cdiv(tl.maximum(first_key + BN - 1 - high - start, 0), BM) * BM
    if HAS_LOW:
        outer = tl.minimum(outer, first_key + 1 - low)
    outer = start + (tl.maximum(outer - start, 0) // BM) * BM
    if (first_key + BN > limit) | (outer <= inner):
        inner, outer = end, end
    return start, inner, outer, end
