"""``mass`` on Hopper: a program owns 64 queries and walks over keys in the order of ``mass_plan``.

A tile's scores are multiplied into one half of the registers while the weights of the one before are added
up from the other. Pairs of neighbouring keys belong to one group and lie in one thread.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, warpgroup_mma, warpgroup_mma_wait

from sightline.look.kernels.hopper.tiles import LOG2_ZERO, exp2, fetch, log2_of, real_keys, ring

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
    D: gl.constexpr, STAGES: gl.constexpr, M: gl.constexpr, N: gl.constexpr, MMA: gl.constexpr,
    COUNTED: gl.constexpr,
):  # fmt: skip
    """Walk over the tiles of a walk with M queries."""
    of_walk = gl.program_id(0) % n_walks
    first_query = (gl.num_programs(0) // n_walks - 1 - gl.program_id(0) // n_walks) * M  # the longest first
    head = gl.program_id(1)
    b, h = head // H, head % H
    wide = head.to(gl.int64)
    keys_ptr += b.to(gl.int64) * keys_b
    limit = real_keys(lengths_ptr + b * lengths_b + h * lengths_h, S, HAS_LENGTHS)
    walk = gl.load(walks_ptr + of_walk)
    end = gl.load(walks_ptr + of_walk + 1)
    reach, seen_by_all = limit, limit  # keys before these are for some query, and for all of them
    if HAS_HIGH:
        reach = gl.minimum(limit, gl.minimum(T, first_query + M) + high)
        seen_by_all = gl.minimum(limit, first_query + high + 1)
    lowest_ptr += b * tiles_b
    highest_ptr += b * tiles_b
    n_whole = count_below(highest_ptr, walk, end, seen_by_all, COUNTED)
    start = walk
    if HAS_LOW:
        start += count_below(highest_ptr, walk, end, first_query + low, COUNTED)
        n_whole = 0
    n_tiles = gl.maximum(walk + count_below(lowest_ptr, walk, end, reach, COUNTED) - start, 0)
    n_pairs = (n_tiles + 1) // 2  # of tiles: two at a time change places without a move
    n_whole = 0 if SETS else gl.minimum(n_whole, n_tiles) // 2  # a set may end in empty places

    q_mem, q_bar = ring(q_tiles, 1, 1, M, D)
    k_mem, k_bars = ring(k_tiles, STAGES, STAGES, N, D)
    fetch(q_tiles, b, h, first_query, q_mem, q_bar, 0, True, 1, M, D)
    for i in gl.static_range(STAGES):
        fetch(k_tiles, b, h // group, (start + i) * N, k_mem, k_bars, i, i < 2 * n_pairs, 1, N, D)
    queries = first_query + gl.arange(0, M, gl.SliceLayout(1, MMA))
    lse = log2_of(gl.load(lse_ptr + wide * T + queries, mask=queries < T, other=float("inf")))
    in_tile = gl.arange(0, N, gl.SliceLayout(0, MMA))
    spare = gl.zeros([M, N], gl.float32, MMA)
    sums = over_pairs(spare, M, N)
    of_set = gl.load(sets_ptr + start)
    mbarrier.wait(q_bar.index(0), 0)
    mbarrier.wait(k_bars.index(0), 0, pred=n_pairs > 0)
    ready = warpgroup_mma_wait(0, deps=[scores(q_mem.index(0), k_mem.index(0), spare, M, N, D)])
    for part in gl.static_range(2):  # tiles that no limit cuts, and those that one does
        if part == 0:
            begin, stop = 0, n_whole
        else:
            begin, stop = n_whole, n_pairs
        for pair in range(begin, stop):
            for i in gl.static_range(2):
                tile = pair * 2 + i
                after = tile + 1
                mbarrier.wait(k_bars.index(after % STAGES), (after // STAGES) & 1, pred=after < 2 * n_pairs)
                flight = scores(q_mem.index(0), k_mem.index(after % STAGES), spare, M, N, D)
                fetch(k_tiles, b, h // group, (start + tile + STAGES) * N, k_mem, k_bars, tile % STAGES,
                      tile + STAGES < 2 * n_pairs, 1, N, D)  # fmt: skip
                is_cut = True
                if SETS:
                    next_set = gl.load(sets_ptr + start + gl.minimum(after, n_tiles))
                    highest = gl.load(highest_ptr + start + tile, mask=tile < n_tiles, other=NOWHERE)
                    is_cut = HAS_LOW or highest >= seen_by_all
                x = ready * scale2 - gl.expand_dims(lse, 1)
                if part == 1 and is_cut:
                    there = (in_tile < N) & (tile < n_tiles)
                    keys = gl.load(keys_ptr + (start + tile) * N + in_tile, mask=there, other=NOWHERE)
                    ok = may_look(queries, keys, limit, low, high, HAS_LOW, HAS_HIGH)
                    x = gl.where(ok, x, LOG2_ZERO)
                sums += over_pairs(exp2(x), M, N)
                spare = ready
                ready = warpgroup_mma_wait(0, deps=[flight])
                if SETS and (next_set != of_set) & (after < n_tiles):
                    owned = owners_ptr + of_set * (N // 2)
                    store(sums, owned, sums_ptr, wide, first_query, T, G, DIRECT, M, N)
                    sums = gl.zeros_like(sums)
                    of_set = next_set
    store(sums, owners_ptr + of_set * (N // 2), sums_ptr, wide, first_query, T, G, DIRECT, M, N)


@gluon.jit
def scores(q, k, into, M: gl.constexpr, N: gl.constexpr, D: gl.constexpr):
    """Issue the scores of a tile; ``into`` lends its registers."""
    k = k.reshape([N, D]).permute((1, 0))
    return warpgroup_mma(q.reshape([M, D]), k, into, use_acc=False, is_async=True)


@gluon.jit
def over_pairs(w, M: gl.constexpr, N: gl.constexpr):
    """Sums over neighbouring keys."""
    return gl.sum(gl.reshape(w, (M, N // 2, 2)), axis=2)


@gluon.jit
def may_look(queries, keys, limit, low, high, HAS_LOW: gl.constexpr, HAS_HIGH: gl.constexpr):
    """Which query may look at which key; a place without a key is beyond the limit."""
    keys = gl.expand_dims(keys, 0)
    ahead = keys - gl.expand_dims(queries, 1)
    ok = keys < limit
    if HAS_HIGH:
        ok = ok & (ahead <= high)
    if HAS_LOW:
        ok = ok & (ahead >= low)
    return ok


@gluon.jit
def store(
    sums,
    owners_ptr,
    sums_ptr,
    wide,
    first_query,
    T,
    G,
    DIRECT: gl.constexpr,
    M: gl.constexpr,
    N: gl.constexpr,
):
    """Write what the groups of a set have got."""
    owners = gl.load(owners_ptr + gl.arange(0, N // 2, gl.SliceLayout(0, sums.type.layout)))
    rows = first_query + gl.arange(0, M, gl.SliceLayout(1, sums.type.layout))
    if DIRECT:
        at = gl.expand_dims((wide * T + rows) * G, 1) + gl.expand_dims(owners, 0)
        gl.store(sums_ptr + at, sums, mask=gl.expand_dims(rows < T, 1) & gl.expand_dims(owners >= 0, 0))
    else:
        owner = gl.load(owners_ptr)
        column = 0
        while owner >= 0:
            whole = gl.sum(gl.where(gl.expand_dims(owners == owner, 0), sums, 0.0), axis=1)
            gl.store(sums_ptr + (wide * T + rows) * G + owner, whole, mask=rows < T)
            column += gl.sum((owners == owner).to(gl.int32), axis=0)
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
