"""The sums of the plain weights.py: a program owns 128 keys and walks over queries that may look at them.

What belongs to a key is added up in registers. So is the map where its cells are no smaller than a tile: it
is read off the same sums whenever the walk leaves a row of cells. A program waits for its products; three
share a multiprocessor, and while one waits the others work. A long walk is shared by several programs, so
that all multiprocessors have work to the end.

What belongs to queries is padded to a multiple of a tile, with a tile beyond the last one: so nothing in the
loop asks whether a query is there.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, warpgroup_mma_wait

from sightline.look.kernels.hopper.cells import (
    OWN_KEY,
    PLACES,
    add_fine_cells,
    add_kept,
    add_share,
    add_shares,
    add_weighted,
    cell_of,
    keep_shares,
    places_for,
    shares,
    start_of,
    to_edges,
    zero_shares,
)
from sightline.look.kernels.hopper.tiles import (
    FIXED,
    MMA,
    M,
    N,
    block_logs,
    blocks_of,
    exp2,
    fetch,
    least_in_thread,
    over_queries,
    product,
    real_keys,
    ring,
    scan_groups,
    whole,
)


@gluon.jit
def weights_kernel(
    q_tiles, k_tiles,  # by descriptor
    lse_ptr,  # (B H, pitch), in units of log2: EMPTY_LSE beyond the last query
    lengths_ptr, lengths_b, lengths_h,
    received_ptr,  # (walks, B H, S)
    cells_ptr,  # (B H, rows, columns) int64: the weights of each cell
    rows_ptr,  # (B H, pitch, 2) int64: sum of w log2 w; the largest log2 w, and the group that holds it
    words_ptr,  # the same as 32-bit words
    H, group, T, S, pitch, scale2, low, high, n_rows, n_columns,
    n_walks, walk,  # programs that share the queries of their keys, and how many tiles of them each takes
    RECEIVED: gl.constexpr, CELLS: gl.constexpr, ENTROPY: gl.constexpr, PEAK: gl.constexpr,
    HAS_LENGTHS: gl.constexpr, HAS_LOW: gl.constexpr, HAS_HIGH: gl.constexpr,
    D: gl.constexpr, LOG2_STAGES: gl.constexpr,  # tiles on their way or at work
    FINE: gl.constexpr,  # whether cells may be smaller than a tile
    ALIGNED: gl.constexpr,  # whether no row of cells ends inside a tile; if FINE, inside 16 queries
    ALIGNED_KEYS: gl.constexpr,  # whether no column of cells ends inside 64 keys; if FINE, inside 16
):  # fmt: skip
    """Add up the weights of N keys."""
    STAGES: gl.constexpr = 1 << LOG2_STAGES
    BETWEEN: gl.constexpr = CELLS and not FINE and not ALIGNED  # whether a row of cells may end inside a tile
    head = gl.program_id(0)
    b, h = head // H, head % H
    n_blocks = gl.num_programs(1) // n_walks
    first_key = gl.program_id(1) % n_blocks * N
    limit = real_keys(lengths_ptr + b * lengths_b + h * lengths_h, S, HAS_LENGTHS)
    start, end = 0, T
    if HAS_HIGH:
        start = (gl.maximum(0, first_key - high) // M) * M
    if HAS_LOW:
        end = gl.minimum(T, first_key + N - low)
    if first_key >= limit:
        end = 0
    start = gl.minimum(start + gl.program_id(1) // n_blocks * walk * M, pitch)
    end = gl.minimum(end, start + walk * M)
    n_tiles = gl.maximum(0, (end - start + M - 1) // M)
    inner, outer = 0, n_tiles  # tiles that see all
    if HAS_HIGH:
        inner = (gl.maximum(start, first_key + N - 1 - high) - start + M - 1) // M
    if HAS_LOW:
        outer = gl.minimum(outer, gl.maximum(first_key + 1 - low - start, 0) // M)
    if (first_key + N > limit) | (outer <= inner):
        inner, outer = n_tiles, n_tiles

    k_mem, k_bar = ring(k_tiles, 1, 1, N, D)
    q_mem, q_bars = ring(q_tiles, STAGES, STAGES, M, D)
    fetch(k_tiles, b, h // group, first_key, k_mem, k_bar, 0, True, 1, N, D)
    for i in gl.static_range(STAGES):
        fetch(q_tiles, b, h, start + i * M, q_mem, q_bars, i, i < n_tiles, 1, M, D)
    wide = head.to(gl.int64)
    lse_ptr += wide * pitch + start
    rows_ptr += (wide * pitch + start) * 2
    words_ptr += (wide * pitch + start) * 4 + 3  # the upper half of what is known of the peak
    cells_ptr += wide * n_rows * n_columns
    row = cell_of(first_key * 0 + start, n_rows, T)  # of the map
    kept_from = row  # the first whose sums are still to be added up
    places = places_for(BETWEEN)
    WAITING: gl.constexpr = PLACES // (2 if ALIGNED_KEYS else 4)  # rows of cells at the most
    bound = start_of(row + 1, n_rows, T)
    height, rest = T // n_rows, T % n_rows
    over = ((row + 1).to(gl.int64) * rest % n_rows).to(gl.int32)  # a row is taller when this comes to n_rows
    columns = (cell_of(first_key, n_columns, S), cell_of(first_key + 64, n_columns, S))  # of each 64 keys
    edges = (start_of(columns[0] + 1, n_columns, S), start_of(columns[1] + 1, n_columns, S))

    ready = gl.zeros([M, N], gl.float32, MMA)
    zeros = blocks_of(ready)
    LAYOUT: gl.constexpr = zeros[0].type.layout
    OF_QUERIES: gl.constexpr = gl.SliceLayout(1, LAYOUT)
    in_tile = gl.arange(0, M, OF_QUERIES)
    sums = zeros[:0]
    for i in gl.static_range(16):
        sums += (over_queries(zeros[i]),)
    totals = gl.zeros([N], gl.float32, OWN_KEY)
    to_edge = to_edges(sums[0], first_key, edges)
    mass = zero_shares(sums[0], ALIGNED_KEYS)  # for the map, of all queries before the end of a row of cells
    # What is in the map already. Not the same tuple by another name: Gluon would carry one through the loop.
    mass_in_map = zero_shares(sums[0], ALIGNED_KEYS)
    mbarrier.wait(k_bar.index(0), 0)
    lse_next = gl.load(lse_ptr + in_tile)
    known_next = gl.zeros([M], gl.int32, OF_QUERIES)
    if PEAK:
        known_next = gl.load(words_ptr + 4 * in_tile)
    for part in gl.static_range(3):  # tiles that a limit cuts, those it does not, those that one cuts again
        if part == 0:
            begin, stop = 0, inner
        elif part == 1:
            begin, stop = inner, outer
        else:
            begin, stop = outer, n_tiles
        if part < 2 or HAS_LOW:
            for tile in range(begin, stop):
                slot = tile & (STAGES - 1)
                mbarrier.wait(q_bars.index(slot), (tile >> LOG2_STAGES) & 1)
                ready = product(q_mem.index(slot), k_mem.index(0), ready, D)
                first_query = start + tile * M
                if CELLS and not FINE and first_query >= bound:  # a row of cells has ended
                    if not BETWEEN:
                        mass = shares(sums, to_edge, ALIGNED_KEYS)
                        add_shares(cells_ptr, row, mass, mass_in_map, columns, n_columns, ALIGNED_KEYS)
                    else:
                        keep_shares(places, row - kept_from, mass, mass_in_map)
                    mass_in_map = mass
                    row += 1
                    bound += height
                    if BETWEEN:
                        if row - kept_from == WAITING:
                            add_kept(cells_ptr, places, kept_from, WAITING, columns, n_columns, ALIGNED_KEYS)
                            kept_from = row
                        over += rest
                        taller = (over >= n_rows).to(gl.int32)
                        over -= taller * n_rows
                        bound += taller
                queries = first_query + in_tile
                lse = gl.expand_dims(lse_next, 1)
                known = known_next
                lse_ptr += M
                words_ptr += 4 * M
                lse_next = gl.load(lse_ptr + in_tile)
                if PEAK:
                    known_next = gl.load(words_ptr + 4 * in_tile, cache_modifier=".cg")
                ready = warpgroup_mma_wait(0, deps=[ready])
                coming = tile + STAGES
                fetch(q_tiles, b, h, start + coming * M, q_mem, q_bars, slot, coming < n_tiles, 1, M, D)
                scores = blocks_of(ready)
                w = scores[:0]
                added = sums[:0]
                spread = gl.zeros([M, 8], gl.float32, LAYOUT)
                early = (queries < bound).to(gl.float32)  # not of the next row of cells
                if BETWEEN:
                    mass = zero_shares(sums[0], ALIGNED_KEYS)
                best = least_in_thread(scores[0])  # of a group, as bits: no log w is above zero
                least = best
                at = gl.zeros_like(least, dtype=gl.int32)
                for n in gl.static_range(16):
                    x = block_logs(
                        scores[n], lse, gl.expand_dims(queries, 1), first_key + 8 * n, scale2,
                        limit, low, high, part != 1, HAS_LOW, HAS_HIGH,
                    )  # fmt: skip
                    w += (exp2(x),)
                    added += (sums[n] + over_queries(w[n]),)
                    if BETWEEN:
                        if part == 1:  # taken off the new sums, so that the old ones need not be kept
                            before = add_weighted(added[n], w[n], early - 1.0)
                        else:  # exactly: a cell that nobody may look at stays zero
                            before = add_weighted(sums[n], w[n], early)
                        mass = add_share(mass, n, before, to_edge, ALIGNED_KEYS)
                    if ENTROPY:
                        spread = w[n] * x + spread
                    if PEAK:
                        best, least, at = scan_groups(x, n, best, least, at)
                if ENTROPY:
                    add_entropies(rows_ptr, spread)
                if PEAK:
                    offer_peaks(rows_ptr + 1, least, at, in_tile, known, first_key // 16)
                rows_ptr += 2 * M
                if CELLS and FINE:
                    totals += add_fine_cells(
                        cells_ptr, w, first_query, first_key, T, S, n_rows, n_columns,
                        ALIGNED, ALIGNED_KEYS,
                    )  # fmt: skip
                elif RECEIVED or CELLS:
                    sums = added
    if BETWEEN and (start + n_tiles * M >= bound) & (bound <= T):
        keep_shares(places, row - kept_from, mass, mass_in_map)
        mass_in_map = mass
        row += 1
    if BETWEEN:
        add_kept(cells_ptr, places, kept_from, row - kept_from, columns, n_columns, ALIGNED_KEYS)
    if CELLS and not FINE and row < n_rows:  # the walk may have ended inside a row of cells
        now = shares(sums, to_edge, ALIGNED_KEYS)
        add_shares(cells_ptr, row, now, mass_in_map, columns, n_columns, ALIGNED_KEYS)
    if RECEIVED:
        total = totals if CELLS and FINE else gl.sum(gl.sum(whole(sums), axis=0), axis=0)
        keys = first_key + gl.arange(0, N, total.type.layout)
        received_ptr += (gl.program_id(1) // n_blocks * gl.num_programs(0) + wide) * S
        gl.store(received_ptr + keys, gl.where(keys < limit, total, 0.0), mask=keys < S)


@gluon.jit
def add_entropies(rows_ptr, spread):
    """Add up what the four threads of a query have, and add it to the query's sum.

    They have two queries: the first two of the threads take one, the others the other.
    """
    each = gl.sum(gl.reshape(spread, (4, 2, 8, 4, 2)), axis=4)
    one, other = gl.split(gl.permute(each, (0, 2, 3, 1)))  # (4, 8, 4): a warp, a pair of queries, a thread
    LAYOUT: gl.constexpr = one.type.layout
    warp = gl.arange(0, 4, gl.SliceLayout(1, gl.SliceLayout(2, LAYOUT)))
    pair = gl.arange(0, 8, gl.SliceLayout(0, gl.SliceLayout(2, LAYOUT)))
    thread = gl.arange(0, 4, gl.SliceLayout(0, gl.SliceLayout(0, LAYOUT)))
    warp = gl.expand_dims(gl.expand_dims(warp, 1), 2)
    pair = gl.expand_dims(gl.expand_dims(pair, 0), 2)
    thread = gl.expand_dims(gl.expand_dims(thread, 0), 0)
    total = gl.where(thread < 2, one, other) + of_partner(gl.where(thread < 2, other, one), 2)
    total += of_partner(total, 1)
    query = warp * 16 + pair + thread // 2 * 8
    fixed = (total * FIXED).to(gl.int64)
    once = (thread % 2 == 0) & (query >= 0)  # the latter always: so it has the shape of all
    gl.atomic_add(rows_ptr + 2 * query, fixed, mask=once, sem="relaxed")


@gluon.jit
def of_partner(x, distance: gl.constexpr):
    """What the thread has whose number differs by that, one bit of it."""
    asm: gl.constexpr = "shfl.sync.bfly.b32 $0, $1, $2, 0x1f, 0xffffffff;"
    at = gl.full_like(x, distance, dtype=gl.int32)
    return gl.inline_asm_elementwise(asm, "=f,f,r", [x, at], dtype=gl.float32, is_pure=False, pack=1)


@gluon.jit
def offer_peaks(peak_ptr, least, at, in_tile, known, first_group):
    """Offer the best group of each thread to its query, unless a better one is known already.

    What is known may be out of date: then a group is offered in vain, and never is one held back.
    """
    least = gl.maximum(least, 0x80000000)  # rounding may leave a log w above zero
    queries = gl.expand_dims(gl.convert_layout(in_tile, gl.SliceLayout(1, least.type.layout)), 1) + 0 * at
    known = gl.expand_dims(gl.convert_layout(known, gl.SliceLayout(1, least.type.layout)), 1)
    value = (0xFFFFFFFF - least).to(gl.int32, bitcast=True)  # not below zero: the larger the better
    lane = gl.expand_dims(gl.arange(0, 4, gl.SliceLayout(0, least.type.layout)), 0)
    which = (0x7FFFFFFF - first_group * 4) - (at * 4 + lane)
    packed = (value.to(gl.int64) << 32) | which.to(gl.int64)
    gl.atomic_max(peak_ptr + 2 * queries, packed, mask=value >= known, sem="relaxed")
