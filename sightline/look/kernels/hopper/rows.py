"""What belongs to queries alone: a program owns 64 of them and walks over their keys.

It waits for its products; four programs share a multiprocessor, and while one waits the others work. Nothing
is shared between programs.
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
    scan_groups,
    walk_of,
)

LN2 = gl.constexpr(0.6931471805599453)


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
    """Walk over the keys of M queries."""
    STAGES: gl.constexpr = 1 << LOG2_STAGES
    head = gl.program_id(0)
    b, h = head // H, head % H
    first_query = (gl.num_programs(1) - 1 - gl.program_id(1)) * M  # with causal masks the longest first
    limit = real_keys(lengths_ptr + b * lengths_b + h * lengths_h, S, HAS_LENGTHS)
    start, inner, outer, n_tiles = walk_of(first_query, M, limit, low, high, T, HAS_LOW, HAS_HIGH)

    q_mem, q_bar = ring(q_tiles, 1, 1, M, D)
    k_mem, k_bars = ring(k_tiles, STAGES, STAGES, N, D)
    fetch(q_tiles, b, h, first_query, q_mem, q_bar, 0, True, 1, M, D)
    for i in gl.static_range(STAGES):
        fetch(k_tiles, b, h // group, start + i * N, k_mem, k_bars, i, i < n_tiles, 1, N, D)
    wide = head.to(gl.int64) * T
    ready = gl.zeros([M, N], gl.float32, MMA)
    zeros = blocks_of(ready)
    LAYOUT: gl.constexpr = zeros[0].type.layout
    queries = first_query + gl.arange(0, M, gl.SliceLayout(1, LAYOUT))
    lse = log2_of(gl.load(lse_ptr + wide + queries, mask=queries < T, other=float("inf")))
    lse = gl.expand_dims(lse, 1)
    total = over_neighbours(zeros[0])
    best = gl.full_like(least_in_thread(zeros[0]), 0xFFFFFFFF)  # of the groups in each thread, as bits
    at = gl.zeros_like(best, dtype=gl.int32)  # the 16 keys that it lies in
    mbarrier.wait(q_bar.index(0), 0)
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
            mbarrier.wait(k_bars.index(slot), (tile >> LOG2_STAGES) & 1)
            ready = warpgroup_mma_wait(0, deps=[product(q_mem.index(0), k_mem.index(slot), ready, D)])
            coming = tile + STAGES
            fetch(k_tiles, b, h // group, start + coming * N, k_mem, k_bars, slot, coming < n_tiles, 1, N, D)
            scores = blocks_of(ready)
            spread = gl.zeros_like(scores[0])
            here = best
            least = best
            which = gl.zeros_like(at)
            for n in gl.static_range(16):
                x = block_logs(
                    scores[n], lse, gl.expand_dims(queries, 1), first_key + 8 * n, scale2,
                    limit, low, high, part != 1, HAS_LOW, HAS_HIGH,
                )  # fmt: skip
                if ENTROPY:
                    spread = exp2(x) * x + spread
                if PEAK:
                    here, least, which = scan_groups(x, n, here, least, which)
            if ENTROPY:
                total += over_neighbours(spread)
            if PEAK:
                at = gl.where(least < best, first_key // 16 + which, at)
                best = gl.minimum(least, best)
    if ENTROPY:
        entropy = gl.convert_layout(gl.maximum(gl.sum(total, axis=1) * -LN2, 0.0), queries.type.layout)
        gl.store(entropy_ptr + wide + queries, entropy, mask=queries < T)
    if PEAK:
        store_peak(peak_ptr + wide, best, at, queries, T)


@gluon.jit
def over_neighbours(x):
    """Sums over the two neighbouring keys of each thread, (M, 4)."""
    return gl.sum(gl.reshape(x, (M, 4, 2)), axis=2)


@gluon.jit
def store_peak(peak_ptr, best, at, queries, T):
    """Write each query's best group, as weights_kernel packs it."""
    value = (0xFFFFFFFF - gl.maximum(best, 0x80000000)).to(gl.int32, bitcast=True)
    lane = gl.expand_dims(gl.arange(0, 4, gl.SliceLayout(0, best.type.layout)), 0)
    packed = (value.to(gl.int64) << 32) | (0x7FFFFFFF - (at * 4 + lane)).to(gl.int64)
    packed = gl.convert_layout(gl.max(packed, axis=1), queries.type.layout)
    gl.store(peak_ptr + queries, packed, mask=queries < T)
