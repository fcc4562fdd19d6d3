"""What belongs to queries alone: a program owns 128 of them, as two tiles, and walks over their keys.

While one tile's weights are worked on, the other's are multiplied. Nothing is shared between programs.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, warpgroup_mma_wait

from sightline.look.kernels.hopper.tiles import (
    MMA,
    M,
    N,
    block_logs,
    blocks_of,
    exp2,
    fetch,
    least_in_thread,
    log2_of,
    product,
    real_keys,
    ring,
    walk_of,
)

LN2 = gl.constexpr(0.6931471805599453)
CHUNK = gl.constexpr(16)  # tiles whose sums are added up on their own, so that rounding does not grow


@gluon.jit
def rows_kernel(
    q_tiles, k_tiles,  # by descriptor
    lse_ptr,  # (B H, T), natural
    lengths_ptr, lengths_b, lengths_h,
    entropy_ptr,  # (B H, T), in nats
    peak_ptr,  # (B H, T) int64: the largest log2 w, and the group of keys that holds it
    H, group, T, S, scale2, low, high,
    ENTROPY: gl.constexpr, PEAK: gl.constexpr,
    HAS_LENGTHS: gl.constexpr, HAS_LOW: gl.constexpr, HAS_HIGH: gl.constexpr,
    D: gl.constexpr, LOG2_STAGES: gl.constexpr,
):  # fmt: skip
    """Walk over the keys of 2 M queries."""
    STAGES: gl.constexpr = 1 << LOG2_STAGES
    head = gl.program_id(0)
    b, h = head // H, head % H
    first_query = (gl.num_programs(1) - 1 - gl.program_id(1)) * (2 * M)  # with causal masks the longest first
    limit = real_keys(lengths_ptr + b * lengths_b + h * lengths_h, S, HAS_LENGTHS)
    start, inner, outer, n_tiles = walk_of(first_query, limit, low, high, T, HAS_LOW, HAS_HIGH)

    q_mem, q_bar = ring(q_tiles, 2, 1, M, D)
    k_mem, k_bars = ring(k_tiles, STAGES, STAGES, N, D)
    fetch(q_tiles, b, h, first_query, q_mem, q_bar, 0, True, 2, M, D)
    for i in gl.static_range(STAGES):
        fetch(k_tiles, b, h // group, start + i * N, k_mem, k_bars, i, i < n_tiles, 1, N, D)
    wide = head.to(gl.int64) * T
    spare = gl.zeros([M, N], gl.float32, MMA)
    zeros = blocks_of(spare)
    LAYOUT: gl.constexpr = zeros[0].type.layout
    queries0 = first_query + gl.arange(0, M, gl.SliceLayout(1, LAYOUT))
    queries1 = queries0 + M
    lse0 = log2_of(gl.load(lse_ptr + wide + queries0, mask=queries0 < T, other=float("inf")))
    lse1 = log2_of(gl.load(lse_ptr + wide + queries1, mask=queries1 < T, other=float("inf")))
    near0, far0, near1, far1 = zeros[0], zeros[0], zeros[0], zeros[0]
    none = gl.full_like(least_in_thread(zeros[0]), 0xFFFFFFFF)
    nowhere = gl.zeros_like(none, dtype=gl.int32)
    best0, best1, at0, at1 = none, none, nowhere, nowhere
    mbarrier.wait(q_bar.index(0), 0)
    mbarrier.wait(k_bars.index(0), 0, pred=n_tiles > 0)
    ready0 = warpgroup_mma_wait(0, deps=[product(q_mem.index(0), k_mem.index(0), spare, D)])
    ready1 = spare
    for part in gl.static_range(3):  # tiles that a limit cuts, those it does not, those that one cuts again
        if part == 0:
            begin, stop = 0, inner
        elif part == 1:
            begin, stop = inner, outer
        else:
            begin, stop = outer, n_tiles
        for tile in range(begin, stop):
            slot = tile & (STAGES - 1)
            first_key = start + tile * N
            flight = product(q_mem.index(1), k_mem.index(slot), ready1, D)
            near0, best0, at0 = look_at(
                ready0, near0, best0, at0, lse0, queries0, first_key, scale2, limit, low, high,
                ENTROPY, PEAK, part != 1, HAS_LOW, HAS_HIGH,
            )  # fmt: skip
            ready1 = warpgroup_mma_wait(0, deps=[flight])
            after = tile + 1
            mbarrier.wait(
                k_bars.index(after & (STAGES - 1)), (after >> LOG2_STAGES) & 1, pred=after < n_tiles
            )
            flight = product(q_mem.index(0), k_mem.index(after & (STAGES - 1)), ready0, D)
            coming = tile + STAGES
            fetch(k_tiles, b, h // group, start + coming * N, k_mem, k_bars, slot, coming < n_tiles, 1, N, D)
            near1, best1, at1 = look_at(
                ready1, near1, best1, at1, lse1, queries1, first_key, scale2, limit, low, high,
                ENTROPY, PEAK, part != 1, HAS_LOW, HAS_HIGH,
            )  # fmt: skip
            ready0 = warpgroup_mma_wait(0, deps=[flight])
            if ENTROPY and tile % CHUNK == CHUNK - 1:
                far0 += near0
                far1 += near1
                near0 = zeros[0]
                near1 = zeros[0]
    if ENTROPY:
        store_entropy(entropy_ptr + wide, far0 + near0, queries0, T)
        store_entropy(entropy_ptr + wide, far1 + near1, queries1, T)
    if PEAK:
        store_peak(peak_ptr + wide, best0, at0, queries0, T)
        store_peak(peak_ptr + wide, best1, at1, queries1, T)


@gluon.jit
def look_at(
    scores, spread, best, at, lse, queries, first_key, scale2, limit, low, high,
    ENTROPY: gl.constexpr, PEAK: gl.constexpr,
    CUT: gl.constexpr, HAS_LOW: gl.constexpr, HAS_HIGH: gl.constexpr,
):  # fmt: skip
    """Add a tile to the sums of its queries, and to each thread's best group and the 16 keys it lies in."""
    blocks = blocks_of(scores)
    lse = gl.expand_dims(lse, 1)
    queries = gl.expand_dims(queries, 1)
    here = best
    least = best
    which = gl.zeros_like(at)
    for n in gl.static_range(16):
        x = block_logs(
            blocks[n], lse, queries, first_key + 8 * n, scale2, limit, low, high, CUT, HAS_LOW, HAS_HIGH
        )
        if ENTROPY:
            spread = exp2(x) * x + spread
        if PEAK:
            bits = least_in_thread(x)
            here = bits if n % 2 == 0 else gl.minimum(here, bits)
            if n == 1:  # a group ends here
                least = here
            elif n % 2 == 1:
                which = gl.where(here < least, n // 2, which)
                least = gl.minimum(here, least)
    if PEAK:
        at = gl.where(least < best, first_key // 16 + which, at)
        best = gl.minimum(least, best)
    return spread, best, at


@gluon.jit
def store_entropy(entropy_ptr, spread, queries, T):
    """Write the entropies of a tile, in nats."""
    entropy = gl.maximum(gl.sum(spread, axis=1) * -LN2, 0.0)
    gl.store(entropy_ptr + queries, entropy, mask=queries < T)


@gluon.jit
def store_peak(peak_ptr, best, at, queries, T):
    """Write each query's best group, as weights_kernel packs it."""
    value = (0xFFFFFFFF - gl.maximum(best, 0x80000000)).to(gl.int32, bitcast=True)
    lane = gl.expand_dims(gl.arange(0, 4, gl.SliceLayout(0, best.type.layout)), 0)
    packed = (value.to(gl.int64) << 32) | (0x7FFFFFFF - (at * 4 + lane)).to(gl.int64)
    packed = gl.convert_layout(gl.max(packed, axis=1), queries.type.layout)
    gl.store(peak_ptr + queries, packed, mask=queries < T)
