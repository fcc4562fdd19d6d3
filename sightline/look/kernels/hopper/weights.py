"""The sums of the plain weights.py: a program owns 128 keys and walks over the queries that may look at them.

What belongs to a key is added up in registers. The map is read off the same sums: when the walk leaves
a row of cells, what has come since the last row is what that row has given.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, warpgroup_mma_wait

from sightline.look.kernels.hopper.tiles import (
    MMA,
    OF_QUERIES,
    M,
    N,
    exp2,
    fetch,
    group_maxima,
    largest,
    log2_of,
    over_keys,
    over_queries,
    product,
    real_keys,
    ring,
    tile_logs,
)

FIXED = gl.constexpr(float(1 << 40))


@gluon.jit
def weights_kernel(
    q_tiles, k_tiles,  # by descriptor
    lse_ptr,  # (B H, T), natural
    lengths_ptr, lengths_b, lengths_h,
    received_ptr,  # (B H, S)
    cells_ptr,  # (B H, rows, n_blocks, NC, 4): what each warp adds to the cells that a block of keys touches
    entropy_ptr,  # (B H, T) int64: sum of w log2 w
    peak_ptr,  # (B H, T) int64: the largest log2 w, and the group of keys that holds it
    H, group, T, S, scale2, low, high, n_rows, n_columns, n_blocks,
    RECEIVED: gl.constexpr, CELLS: gl.constexpr, ENTROPY: gl.constexpr, PEAK: gl.constexpr,
    HAS_LENGTHS: gl.constexpr, HAS_LOW: gl.constexpr, HAS_HIGH: gl.constexpr,
    D: gl.constexpr, STAGES: gl.constexpr,
    NC: gl.constexpr,  # columns of the map that a block of keys may touch
    ALIGNED: gl.constexpr,  # whether no row of the map ends inside a tile
):  # fmt: skip
    """Add up the weights of N keys."""
    head = gl.program_id(0)
    b, h = head // H, head % H
    first_key = gl.program_id(1) * N
    limit = real_keys(lengths_ptr + b * lengths_b + h * lengths_h, S, HAS_LENGTHS)
    start, end = 0, T
    if HAS_HIGH:
        start = (gl.maximum(0, first_key - high) // M) * M
    if HAS_LOW:
        end = gl.minimum(T, first_key + N - low)
    if first_key >= limit:
        end = 0
    n_pairs = gl.maximum(0, (end - start + 2 * M - 1) // (2 * M))
    inner, outer = 0, n_pairs  # pairs of tiles that see all
    if HAS_HIGH:
        inner = (gl.maximum(start, first_key + N - 1 - high) - start + 2 * M - 1) // (2 * M)
    if HAS_LOW:
        outer = gl.minimum(outer, gl.maximum(first_key + 1 - low - start, 0) // (2 * M))
    if (first_key + N > limit) | (outer <= inner):
        inner, outer = n_pairs, n_pairs

    k_mem, k_bar = ring(k_tiles, 1, N, D)
    q_mem, q_bars = ring(q_tiles, STAGES, M, D)
    fetch(k_tiles, b, h // group, first_key, k_mem, k_bar, 0, True, N, D)
    for i in gl.static_range(STAGES):
        fetch(q_tiles, b, h, start + i * M, q_mem, q_bars, i, i < 2 * n_pairs, M, D)
    wide = head.to(gl.int64)
    lse_ptr += wide * T
    entropy_ptr += wide * T
    peak_ptr += wide * T
    row = ((start + 1) * (wide * 0 + n_rows) - 1) // T  # of the map
    bound = ((row + 1) * T // n_rows).to(gl.int32)  # where the next one begins
    cells_ptr += ((wide * n_rows + row) * n_blocks + gl.program_id(1) * 2) * (NC * 4)

    in_tile = gl.arange(0, M, OF_QUERIES)
    spare = gl.zeros([M, N], gl.float32, MMA)
    sums = over_queries(spare)
    edges = edges_of(first_key, n_columns, S)  # where a block's keys pass into another column of the map
    written = shares(sums, edges, NC)  # how much of the sums is in the map already
    none = written
    mbarrier.wait(k_bar.index(0), 0)
    mbarrier.wait(q_bars.index(0), 0, pred=n_pairs > 0)
    ready = warpgroup_mma_wait(0, deps=[product(q_mem.index(0), k_mem.index(0), spare, D)])
    lse_next = gl.load(lse_ptr + start + in_tile, mask=start + in_tile < T, other=float("inf"))
    for part in gl.static_range(3):  # tiles that a limit cuts, those it does not, those that one cuts again
        if part == 0:
            begin, stop = 0, inner
        elif part == 1:
            begin, stop = inner, outer
        else:
            begin, stop = outer, n_pairs
        if part < 2 or HAS_LOW:
            for pair in range(begin, stop):
                for i in gl.static_range(2):
                    t = pair * 2 + i
                    after = t + 1
                    mbarrier.wait(
                        q_bars.index(after % STAGES), (after // STAGES) & 1, pred=after < 2 * n_pairs
                    )
                    flight = product(q_mem.index(after % STAGES), k_mem.index(0), spare, D)
                    coming = t + STAGES
                    fetch(q_tiles, b, h, start + coming * M, q_mem, q_bars, t % STAGES, coming < 2 * n_pairs,
                          M, D)  # fmt: skip
                    first_query = start + t * M
                    queries = first_query + in_tile
                    there = queries < T
                    lse = log2_of(lse_next)
                    lse_next = gl.load(lse_ptr + queries + M, mask=queries + M < T, other=float("inf"))
                    x = tile_logs(
                        ready, lse, queries, first_key, scale2, limit, low, high, part != 1, HAS_LOW, HAS_HIGH
                    )
                    w = exp2(x)
                    if RECEIVED or CELLS:
                        sums += over_queries(w)
                    if CELLS:
                        late = none  # what belongs to the next row of the map already
                        if not ALIGNED and first_query + M > bound:
                            w_late = gl.where(gl.expand_dims(queries >= bound, 1), w, 0.0)
                            late = shares(over_queries(w_late), edges, NC)
                    if ENTROPY:
                        fixed = (gl.sum(over_keys(w * x), axis=1) * FIXED).to(gl.int64)
                        fixed = gl.convert_layout(fixed, OF_QUERIES)
                        gl.atomic_add(entropy_ptr + queries, fixed, mask=there, sem="relaxed")
                    if PEAK:
                        found = packed(group_maxima(x), first_key // 8)
                        gl.atomic_max(peak_ptr + queries, found, mask=there, sem="relaxed")
                    spare = ready
                    ready = warpgroup_mma_wait(0, deps=[flight])
                    if CELLS and (first_query + M >= bound) & (first_query < T):  # a row of the map ends here
                        written = store_shares(cells_ptr, shares(sums, edges, NC), late, written, NC)
                        row += 1
                        bound = ((row + 1) * T // n_rows).to(gl.int32)
                        cells_ptr += n_blocks * (NC * 4)
    if CELLS and row < n_rows:  # the walk may have ended inside a row of the map
        store_shares(cells_ptr, shares(sums, edges, NC), none, written, NC)
    if RECEIVED:
        total = gl.sum(gl.sum(sums, axis=0), axis=0)
        keys = first_key + gl.arange(0, N, total.type.layout)
        gl.store(received_ptr + wide * S + keys, gl.where(keys < limit, total, 0.0), mask=keys < S)


@gluon.jit
def packed(maxima, first_group):
    """The largest of each query's maxima and its group as an integer, the larger the better."""
    top, at = largest(maxima)
    bits = top.to(gl.int32, bitcast=True)
    bits = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # floats as integers in the same order
    found = (bits.to(gl.int64) << 32) | (0x7FFFFFFF - first_group - at).to(gl.int64)
    return gl.convert_layout(found, OF_QUERIES)


@gluon.jit
def edges_of(first_key, n_columns, S):
    """Where the second column of the map begins in each of two blocks of 64 keys, counted from the first."""
    wide = first_key.to(gl.int64)
    first = (((wide + 1) * n_columns - 1) // S + 1) * S // n_columns - wide
    second = (((wide + 65) * n_columns - 1) // S + 1) * S // n_columns - wide
    return first.to(gl.int32), second.to(gl.int32)


@gluon.jit
def shares(sums, edges, NC: gl.constexpr):
    """What each of two blocks of keys has given to each column it touches, (4, 8, 2): of threads in a row."""
    sums_by_column = edges[:0]
    if NC == 1:
        sums_by_column += (of_blocks(sums),)
    else:
        keys = gl.arange(0, N, gl.SliceLayout(0, gl.SliceLayout(0, sums.type.layout)))
        first = gl.expand_dims(gl.expand_dims(keys < gl.where(keys < 64, edges[0], edges[1]), 0), 0)
        sums_by_column += (of_blocks(gl.where(first, sums, 0.0)), of_blocks(gl.where(first, 0.0, sums)))
    return sums_by_column


@gluon.jit
def of_blocks(sums):
    """Sums over each block of 64 keys."""
    return gl.sum(gl.sum(gl.reshape(sums, (4, 8, 2, 8, 8)), axis=3), axis=3)


@gluon.jit
def store_shares(cells_ptr, sums_by_column, late, written, NC: gl.constexpr):
    """Write what a row of the map has got, and say how much is written now."""
    now = written[:0]
    for c in gl.static_range(NC):
        early = sums_by_column[c] - late[c]
        grown = gl.sum(early - written[c], axis=1)  # (4, 2)
        warps = gl.expand_dims(gl.arange(0, 4, gl.SliceLayout(1, grown.type.layout)), 1)
        blocks = gl.expand_dims(gl.arange(0, 2, gl.SliceLayout(0, grown.type.layout)), 0)
        gl.store(cells_ptr + (blocks * NC + c) * 4 + warps, grown)
        now += (early,)
    return now
