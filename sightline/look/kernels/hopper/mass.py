"""``mass`` on Hopper: a program owns 128 queries, as two tiles, and walks over keys in a plan's order.

While one tile's weights are added up, the other's are multiplied. Pairs of neighbouring keys belong to one
group and lie in one thread.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, warpgroup_mma_wait

from sightline.look.kernels.hopper.tiles import (
    LOG2_ZERO,
    MMA,
    M,
    N,
    blocks_of,
    exp2,
    fetch,
    log2_of,
    may_look,
    product,
    real_keys,
    ring,
)

NOWHERE = gl.constexpr(1 << 30)  # as in the plan


@gluon.jit
def mass_kernel(
    q_tiles, k_tiles,  # by descriptor; k in the order of the plan
    lse_ptr,  # (B H, T), natural
    lengths_ptr, lengths_b, lengths_h,
    keys_ptr, lowest_ptr, highest_ptr, walks_ptr, sets_ptr, owners_ptr,  # the plan
    sums_ptr,  # (B H, T, G)
    n_walks, G,
    keys_b, tiles_b,  # how far the plan of the next item is, 0 where all have the same
    H, group, T, S, scale2, low, high,
    DIRECT: gl.constexpr,  # whether each column is a group
    SETS: gl.constexpr,  # whether a walk has several sets
    HAS_LENGTHS: gl.constexpr, HAS_LOW: gl.constexpr, HAS_HIGH: gl.constexpr,
    D: gl.constexpr, STAGES: gl.constexpr, COUNTED: gl.constexpr,
):  # fmt: skip
    """Walk over the tiles of a walk with 2 M queries."""
    of_walk = gl.program_id(0) % n_walks
    head = gl.program_id(0) // n_walks
    first_query = (gl.num_programs(1) - 1 - gl.program_id(1)) * (2 * M)  # of all heads the longest first
    b, h = head // H, head % H
    wide = head.to(gl.int64) * T
    keys_ptr += b.to(gl.int64) * keys_b
    limit = real_keys(lengths_ptr + b * lengths_b + h * lengths_h, S, HAS_LENGTHS)
    walk = gl.load(walks_ptr + of_walk)
    end = gl.load(walks_ptr + of_walk + 1)
    reach, seen_by_all = limit, limit  # keys before these are for some query, and for all of them
    if HAS_HIGH:
        reach = gl.minimum(limit, gl.minimum(T, first_query + 2 * M) + high)
        seen_by_all = gl.minimum(limit, first_query + high + 1)
    lowest_ptr += b * tiles_b
    highest_ptr += b * tiles_b
    n_whole = count_below(highest_ptr, walk, end, seen_by_all, COUNTED)
    start = walk
    if HAS_LOW:
        start += count_below(highest_ptr, walk, end, first_query + low, COUNTED)
        n_whole = 0
    n_tiles = gl.maximum(walk + count_below(lowest_ptr, walk, end, reach, COUNTED) - start, 0)
    n_whole = 0 if SETS else gl.minimum(n_whole, n_tiles)  # a set may end in empty places

    q_mem, q_bar = ring(q_tiles, 2, 1, M, D)
    k_mem, k_bars = ring(k_tiles, STAGES, STAGES, N, D)
    fetch(q_tiles, b, h, first_query, q_mem, q_bar, 0, True, 2, M, D)
    for i in gl.static_range(STAGES):
        fetch(k_tiles, b, h // group, (start + i) * N, k_mem, k_bars, i, i < n_tiles, 1, N, D)
    spare = gl.zeros([M, N], gl.float32, MMA)
    zeros = blocks_of(spare)
    queries0 = first_query + gl.arange(0, M, gl.SliceLayout(1, zeros[0].type.layout))
    queries1 = queries0 + M
    lse0 = log2_of(gl.load(lse_ptr + wide + queries0, mask=queries0 < T, other=float("inf")))
    lse1 = log2_of(gl.load(lse_ptr + wide + queries1, mask=queries1 < T, other=float("inf")))
    none = zeros[:0]
    for n in gl.static_range(16):
        none += (over_pairs(zeros[n]),)
    sums0, sums1 = none, none
    of_set = gl.load(sets_ptr + start)
    mbarrier.wait(q_bar.index(0), 0)
    mbarrier.wait(k_bars.index(0), 0, pred=n_tiles > 0)
    ready0 = warpgroup_mma_wait(0, deps=[product(q_mem.index(0), k_mem.index(0), spare, D)])
    ready1 = spare
    for part in gl.static_range(2):  # tiles that no limit cuts, and those that one does
        if part == 0:
            begin, stop = 0, n_whole
        else:
            begin, stop = n_whole, n_tiles
        for tile in range(begin, stop):
            flight = product(q_mem.index(1), k_mem.index(tile % STAGES), ready1, D)
            keys = keys_ptr + (start + tile) * N
            sums0 = add_up(
                ready0, sums0, lse0, queries0, keys, scale2, limit, low, high, part == 1, HAS_LOW, HAS_HIGH
            )
            ready1 = warpgroup_mma_wait(0, deps=[flight])
            after = tile + 1
            mbarrier.wait(k_bars.index(after % STAGES), (after // STAGES) & 1, pred=after < n_tiles)
            flight = product(q_mem.index(0), k_mem.index(after % STAGES), ready0, D)
            fetch(k_tiles, b, h // group, (start + tile + STAGES) * N, k_mem, k_bars, tile % STAGES,
                  tile + STAGES < n_tiles, 1, N, D)  # fmt: skip
            sums1 = add_up(
                ready1, sums1, lse1, queries1, keys, scale2, limit, low, high, part == 1, HAS_LOW, HAS_HIGH
            )
            ready0 = warpgroup_mma_wait(0, deps=[flight])
            if SETS:
                next_set = gl.load(sets_ptr + start + gl.minimum(after, n_tiles))
                if (next_set != of_set) & (after < n_tiles):
                    owned = owners_ptr + of_set * (N // 2)
                    store(sums0, owned, sums_ptr + wide * G, queries0, T, G, DIRECT)
                    store(sums1, owned, sums_ptr + wide * G, queries1, T, G, DIRECT)
                    sums0, sums1 = none, none
                    of_set = next_set
    owned = owners_ptr + of_set * (N // 2)
    store(sums0, owned, sums_ptr + wide * G, queries0, T, G, DIRECT)
    store(sums1, owned, sums_ptr + wide * G, queries1, T, G, DIRECT)


@gluon.jit
def over_pairs(w):
    """Sums over neighbouring keys, (M, 4)."""
    return gl.sum(gl.reshape(w, (M, 4, 2)), axis=2)


@gluon.jit
def add_up(
    scores, sums, lse, queries, keys_ptr, scale2, limit, low, high,
    CUT: gl.constexpr, HAS_LOW: gl.constexpr, HAS_HIGH: gl.constexpr,
):  # fmt: skip
    """Add the weights of a tile to what its pairs of keys have got."""
    blocks = blocks_of(scores)
    added = sums[:0]
    for n in gl.static_range(16):
        x = blocks[n] * scale2 - gl.expand_dims(lse, 1)
        if CUT:
            keys = gl.load(keys_ptr + 8 * n + gl.arange(0, 8, gl.SliceLayout(0, x.type.layout)))
            x = gl.where(may_look(queries, keys, limit, low, high, HAS_LOW, HAS_HIGH), x, LOG2_ZERO)
        added += (sums[n] + over_pairs(exp2(x)),)
    return added


@gluon.jit
def store(sums, owners_ptr, sums_ptr, queries, T, G, DIRECT: gl.constexpr):
    """Write what the groups of a set have got."""
    LAYOUT: gl.constexpr = sums[0].type.layout
    queries = gl.convert_layout(queries, gl.SliceLayout(1, LAYOUT))
    sums_ptr += queries.to(gl.int64) * G
    pairs = gl.arange(0, 4, gl.SliceLayout(0, LAYOUT))
    there = queries < T
    if DIRECT:
        for n in gl.static_range(16):
            owners = gl.load(owners_ptr + 4 * n + pairs)
            at = gl.expand_dims(sums_ptr, 1) + gl.expand_dims(owners, 0)
            gl.store(at, sums[n], mask=gl.expand_dims(there, 1) & gl.expand_dims(owners >= 0, 0))
    else:
        owner = gl.load(owners_ptr)
        column = 0
        while owner >= 0:
            mass = gl.zeros_like(sums[0])
            for n in gl.static_range(16):
                is_its = gl.load(owners_ptr + 4 * n + pairs) == owner
                mass += gl.where(gl.expand_dims(is_its, 0), sums[n], 0.0)
                column += gl.sum(is_its.to(gl.int32), axis=0)
            gl.store(sums_ptr + owner, gl.sum(mass, axis=1), mask=there)
            owner = gl.load(owners_ptr + column, mask=column < N // 2, other=-1)


@gluon.jit
def count_below(ptr, start, end, bound, COUNTED: gl.constexpr):
    """How many of the ascending numbers in [start, end) are below a bound."""
    places = gl.arange(0, COUNTED, gl.BlockedLayout([1], [32], [gl.num_warps()], [0]))
    n = 0
    for first in range(start, end, COUNTED):
        found = gl.load(ptr + first + places, mask=first + places < end, other=1 << 30)
        n += gl.sum((found < bound).to(gl.int32), axis=0)
    return n
