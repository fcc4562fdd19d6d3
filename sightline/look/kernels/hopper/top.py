"""The largest weights on Hopper: a program owns 64 queries and walks over their keys.

A group is four keys whose scores lie in one thread, as for the peak. Four threads share a query: each keeps
the best groups of its own keys in order, and of the four lists the best are chosen at the end.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, warpgroup_mma_wait

from sightline.look.kernels.hopper.tiles import MMA, M, N, blocks_of, fetch, product, real_keys, ring, walk_of

NOTHING = gl.constexpr(float("-inf"))


@gluon.jit
def top_kernel(
    q_tiles, k_tiles,  # by descriptor
    lengths_ptr, lengths_b, lengths_h,
    groups_ptr,  # (B H, T, K) int32, numbered as in key_of, -1 where there are fewer
    H, group, T, S, low, high,
    HAS_LENGTHS: gl.constexpr, HAS_LOW: gl.constexpr, HAS_HIGH: gl.constexpr,
    K: gl.constexpr, D: gl.constexpr, LOG2_STAGES: gl.constexpr,
):  # fmt: skip
    """Keep the K best groups of keys of M queries."""
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
    ready = gl.zeros([M, N], gl.float32, MMA)
    zeros = blocks_of(ready)
    queries = first_query + gl.arange(0, M, gl.SliceLayout(1, zeros[0].type.layout))
    none = gl.full_like(of_pairs(zeros[0]), NOTHING)
    nowhere = gl.full_like(none, -1, dtype=gl.int32)
    kept, at = zeros[:0], zeros[:0]
    for _ in gl.static_range(K):
        kept += (none,)
        at += (nowhere,)
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
            mbarrier.wait(k_bars.index(slot), (tile >> LOG2_STAGES) & 1)
            ready = warpgroup_mma_wait(0, deps=[product(q_mem.index(0), k_mem.index(slot), ready, D)])
            coming = tile + STAGES
            fetch(k_tiles, b, h // group, start + coming * N, k_mem, k_bars, slot, coming < n_tiles, 1, N, D)
            kept, at = keep_best(
                ready, kept, at, queries, start + tile * N, limit, low, high, K, part != 1, HAS_LOW, HAS_HIGH
            )
    store_best(groups_ptr + head.to(gl.int64) * T * K, kept, at, queries, T, K)


@gluon.jit
def of_pairs(x):
    """The largest over the two neighbouring keys of each thread, (M, 4)."""
    return gl.max(gl.reshape(x, (M, 4, 2)), axis=2)


@gluon.jit
def keep_best(
    scores, kept, at, queries, first_key, limit, low, high,
    K: gl.constexpr, CUT: gl.constexpr, HAS_LOW: gl.constexpr, HAS_HIGH: gl.constexpr,
):  # fmt: skip
    """Put the groups of a tile that are among the K best of a thread into its list, the largest first."""
    blocks = blocks_of(scores)
    maxima = kept[:0]
    here = kept[0]
    for n in gl.static_range(16):
        x = blocks[n]
        if CUT:
            keys = gl.expand_dims(first_key + 8 * n + gl.arange(0, 8, gl.SliceLayout(0, x.type.layout)), 0)
            ok = keys < limit
            if HAS_HIGH:
                ok = ok & (keys - gl.expand_dims(queries, 1) <= high)
            if HAS_LOW:
                ok = ok & (keys - gl.expand_dims(queries, 1) >= low)
            x = gl.where(ok, x, NOTHING)
        here = of_pairs(x) if n % 2 == 0 else gl.maximum(here, of_pairs(x))
        if n % 2 == 1:  # a group ends here
            maxima += (here,)
    lane = gl.expand_dims(gl.arange(0, 4, gl.SliceLayout(0, maxima[0].type.layout)), 0)
    best = largest(maxima)
    # K / 4 of each of a query's threads are K of its groups: the least of those is a bound for all four.
    bound = kept[K - 1]
    if K >= 4:
        bound = gl.maximum(bound, gl.expand_dims(gl.min(kept[K // 4 - 1], axis=1), 1))
    while gl.max((best > bound).to(gl.int32)) > 0:
        which = gl.zeros_like(at[0])
        for n in gl.static_range(1, 8):
            which = gl.where(maxima[n] == best, n, which)
        rest = maxima[:0]
        for n in gl.static_range(8):
            rest += (gl.where(which == n, NOTHING, maxima[n]),)
        kept, at = insert(kept, at, best, first_key // 4 + 4 * which + lane, K)
        bound = gl.maximum(bound, kept[K - 1])
        maxima = rest
        best = largest(maxima)
    return kept, at


@gluon.jit
def largest(x):
    """The largest of some tensors, element by element."""
    best = x[0]
    for i in gl.static_range(1, len(x)):
        best = gl.maximum(best, x[i])
    return best


@gluon.jit
def insert(kept, at, value, which, K: gl.constexpr):
    """Put a value into a list, the largest first; the least of all falls out."""
    first = value > kept[0]
    new_kept = (gl.maximum(value, kept[0]),)
    new_at = (gl.where(first, which, at[0]),)
    before = first  # whether it goes ahead of the one before
    for i in gl.static_range(1, K):
        better = value > kept[i]
        new_kept += (gl.maximum(gl.minimum(value, kept[i - 1]), kept[i]),)  # type: ignore[assignment]
        new_at += (gl.where(before, at[i - 1], gl.where(better, which, at[i])),)  # type: ignore[assignment]
        before = better
    return new_kept, new_at


@gluon.jit
def store_best(groups_ptr, kept, at, queries, T, K: gl.constexpr):
    """Of the lists of a query's four threads, write the K best groups."""
    queries = gl.convert_layout(queries, gl.SliceLayout(1, kept[0].type.layout))
    for i in gl.static_range(K):
        best = gl.max(kept[0], axis=1)  # each list is in order
        first = kept[0] == gl.expand_dims(best, 1)
        which = gl.max(gl.where(first & (at[0] >= 0), at[0], -1), axis=1)
        gl.store(groups_ptr + queries.to(gl.int64) * K + i, which, mask=queries < T)
        taken = at[0] == gl.expand_dims(which, 1)
        next_kept, next_at = kept[:0], at[:0]
        for j in gl.static_range(K - 1):
            next_kept += (gl.where(taken, kept[j + 1], kept[j]),)
            next_at += (gl.where(taken, at[j + 1], at[j]),)
        next_kept += (gl.where(taken, NOTHING, kept[K - 1]),)
        next_at += (gl.where(taken, -1, at[K - 1]),)
        kept, at = next_kept, next_at
