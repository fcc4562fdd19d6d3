"""``relevance`` on Hopper: a program owns 128 keys and walks over the queries that may look at them.

The gradients of a tile's weights are multiplied while the weights themselves are made, and the scores of the
next tile while what this one has given is added up.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, warpgroup_mma, warpgroup_mma_wait

from sightline.look.kernels.hopper.tiles import LOG2_ZERO, exp2, fetch, log2_of, may_look, real_keys, ring


@gluon.jit
def relevance_kernel(
    q_tiles, g_tiles, k_tiles, v_tiles,  # by descriptor; g is the gradient of the output
    lse_ptr,  # (B H, T), natural
    lengths_ptr, lengths_b, lengths_h,
    others_ptr,  # where BY_QUERY (B H, T) float64: one over the unit; else (B, T): the factors
    keys_ptr,  # (B H, S)
    queries_ptr,  # (B H, T) int64
    H, group, T, S, scale2, low, high,
    BY_QUERY: gl.constexpr,
    HAS_LENGTHS: gl.constexpr, HAS_LOW: gl.constexpr, HAS_HIGH: gl.constexpr,
    D: gl.constexpr, DV: gl.constexpr, STAGES: gl.constexpr, G_STAGES: gl.constexpr,
    M: gl.constexpr, N: gl.constexpr, MMA: gl.constexpr,
):  # fmt: skip
    """Add up the relevance of N keys."""
    head = gl.program_id(0)
    b, h = head // H, head % H
    wide = head.to(gl.int64)
    first_key = gl.program_id(1) * N
    limit = real_keys(lengths_ptr + b * lengths_b + h * lengths_h, S, HAS_LENGTHS)
    start, end = 0, T
    if HAS_HIGH:
        start = (gl.maximum(0, first_key - high) // M) * M
    if HAS_LOW:
        end = gl.minimum(T, first_key + N - low)
    if first_key >= limit:
        end = 0
    n_tiles = gl.maximum(0, (end - start + M - 1) // M)
    inner, outer = 0, n_tiles  # tiles that see all
    if HAS_HIGH:
        inner = (gl.maximum(start, first_key + N - 1 - high) - start + M - 1) // M
    if HAS_LOW:
        outer = gl.minimum(outer, gl.maximum(first_key + 1 - low - start, 0) // M)
    if (first_key + N > limit) | (outer <= inner):
        inner, outer = n_tiles, n_tiles

    k_mem, k_bar = ring(k_tiles, 1, 1, N, D)
    v_mem, v_bar = ring(v_tiles, 1, 1, N, DV)
    q_mem, q_bars = ring(q_tiles, STAGES, STAGES, M, D)
    g_mem, g_bars = ring(g_tiles, G_STAGES, G_STAGES, M, DV)
    fetch(k_tiles, b, h // group, first_key, k_mem, k_bar, 0, True, 1, N, D)
    for i in gl.static_range(STAGES):
        fetch(q_tiles, b, h, start + i * M, q_mem, q_bars, i, i < n_tiles, 1, M, D)
    fetch(v_tiles, b, h // group, first_key, v_mem, v_bar, 0, True, 1, N, DV)
    for i in gl.static_range(G_STAGES):
        fetch(g_tiles, b, h, start + i * M, g_mem, g_bars, i, i < n_tiles, 1, M, DV)
    lse_ptr += wide * T
    queries_ptr += wide * T
    others_ptr += (wide if BY_QUERY else wide // H) * T

    in_tile = gl.arange(0, M, gl.SliceLayout(1, MMA))
    keys = first_key + gl.arange(0, N, gl.SliceLayout(0, MMA))
    relevant = gl.zeros([M, N], gl.float32, MMA)
    sums = over_queries(relevant, M, N)
    mbarrier.wait(k_bar.index(0), 0)
    mbarrier.wait(q_bars.index(0), 0, pred=n_tiles > 0)
    flight = scores(q_mem.index(0), k_mem.index(0), gl.zeros([M, N], gl.float32, MMA), M, N, D)
    lse_next = gl.load(lse_ptr + start + in_tile, mask=start + in_tile < T, other=float("inf"))
    mbarrier.wait(v_bar.index(0), 0)
    for part in gl.static_range(3):  # tiles that a limit cuts, those it does not, those that one cuts again
        if part == 0:
            begin, stop = 0, inner
        elif part == 1:
            begin, stop = inner, outer
        else:
            begin, stop = outer, n_tiles
        if part < 2 or HAS_LOW:
            for tile in range(begin, stop):
                queries = start + tile * M + in_tile
                there = queries < T
                after = tile + 1
                others = gl.load(others_ptr + queries, mask=there, other=0.0)
                lse = log2_of(lse_next)
                lse_next = gl.load(lse_ptr + queries + M, mask=queries + M < T, other=float("inf"))
                ready = warpgroup_mma_wait(0, deps=[flight])
                mbarrier.wait(g_bars.index(tile % G_STAGES), (tile // G_STAGES) & 1)
                slopes = scores(g_mem.index(tile % G_STAGES), v_mem.index(0), relevant, M, N, DV)
                fetch(q_tiles, b, h, start + (tile + STAGES) * M, q_mem, q_bars, tile % STAGES,
                      tile + STAGES < n_tiles, 1, M, D)  # fmt: skip
                x = ready * scale2 - gl.expand_dims(lse, 1)
                if part != 1:
                    x = gl.where(may_look(queries, keys, limit, low, high, HAS_LOW, HAS_HIGH), x, LOG2_ZERO)
                w = exp2(x)
                slopes = warpgroup_mma_wait(0, deps=[slopes])
                relevant = w * gl.maximum(slopes, 0.0)
                mbarrier.wait(q_bars.index(after % STAGES), (after // STAGES) & 1, pred=after < n_tiles)
                flight = scores(q_mem.index(after % STAGES), k_mem.index(0), w, M, N, D)
                fetch(g_tiles, b, h, start + (tile + G_STAGES) * M, g_mem, g_bars, tile % G_STAGES,
                      tile + G_STAGES < n_tiles, 1, M, DV)  # fmt: skip
                if BY_QUERY:
                    fixed = (gl.sum(relevant, axis=1).to(gl.float64) * others).to(gl.int64)
                    gl.atomic_add(queries_ptr + queries, fixed, mask=there, sem="relaxed")
                    sums += over_queries(relevant, M, N)
                else:
                    sums += over_queries(relevant * gl.expand_dims(others, 1), M, N)
    warpgroup_mma_wait(0, deps=[flight])
    total = gl.sum(gl.sum(sums, axis=0), axis=0)
    keys = first_key + gl.arange(0, N, total.type.layout)
    gl.store(keys_ptr + wide * S + keys, gl.where(keys < limit, total, 0.0), mask=keys < S)


@gluon.jit
def over_queries(x, M: gl.constexpr, N: gl.constexpr):
    """Sums over the two queries of each thread, (M / 16, 8, N)."""
    return gl.sum(gl.reshape(x, (M // 16, 2, 8, N)), axis=1)


@gluon.jit
def scores(q, k, into, M: gl.constexpr, N: gl.constexpr, D: gl.constexpr):
    """Issue the scores of a tile; ``into`` lends its registers."""
    k = k.reshape([N, D]).permute((1, 0))
    return warpgroup_mma(q.reshape([M, D]), k, into, use_acc=False, is_async=True)
