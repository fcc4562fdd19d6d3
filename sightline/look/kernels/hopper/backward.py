"""Gradients of what was seen, on Hopper: the sums and the tiles of the plain backward.py.

A program owns rows, which are queries, or keys for the gradient of k, and walks over the columns that they
meet. So nothing is transposed: a tile of scores lies in registers, what is made of it stays there, and is
multiplied with the same columns that gave the scores. Where there are three groups of four warps, each owns
rows and all share the columns, which a warp of its own has copied: a barrier for each place in shared memory
says that it is full, another that every group is done with it.

What belongs to a column comes padded to a multiple of a tile, and lse negative in units of log2: so it is
loaded without a mask, and is ready to be added. The weights of a query beyond the end are zero by its lse.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from sightline.look.kernels.hopper.backward_tiles import (
    by_eights,
    columns_for,
    may_meet,
    parts_of,
    place_of,
    products,
    store,
    values_of,
)
from sightline.look.kernels.hopper.tiles import LOG2_ZERO, exp2, fetch, real_keys, ring

LN2 = gl.constexpr(0.6931471805599453)
COPYING = gl.constexpr(24)  # registers of a thread of the warp that copies


@gluon.jit(do_not_specialize=["lengths_b", "lengths_h", "H", "group", "T", "S", "low", "high"])
def backward_kernel(
    own_tiles, other_tiles,  # by descriptor: q and k, or k and q if BY_KEY
    lse_ptr, slope_ptr, g_entropy_ptr,  # (B H, padded T); lse is negative, in units of log2
    g_received_ptr,  # (B H, padded S)
    lengths_ptr, lengths_b, lengths_h,
    out_ptr,  # (B H, T): Σ_s w g_received[s]; or (B H, T, D): the gradient of q; or (B H, S, D): that of k
    H, group, T, S, padded_t, padded_s, scale2,
    low, high,  # the least and the largest distance from a row to a column
    GRADIENT: gl.constexpr,  # else the sum
    BY_KEY: gl.constexpr, RECEIVED: gl.constexpr, ENTROPY: gl.constexpr,
    HAS_LENGTHS: gl.constexpr, HAS_LOW: gl.constexpr, HAS_HIGH: gl.constexpr, D: gl.constexpr,
    R: gl.constexpr, N: gl.constexpr,  # rows of a group, columns of a tile
    STAGES: gl.constexpr,  # tiles on their way or at work
    PARTS: gl.constexpr,  # of a tile, each multiplied while the next one's gradients are made
    OVERLAP: gl.constexpr,  # whether a gradient's product and the next scores are waited for together
    GROUPS: gl.constexpr,  # that share the columns, three; or one, and no warp copies
    REGISTERS: gl.constexpr,  # of a thread of a group, if there are several
):  # fmt: skip
    """Walk over the columns of GROUPS times R rows."""
    head = gl.program_id(0)
    b, h = head // H, head % H
    wide = head.to(gl.int64)
    first = gl.program_id(1) * (GROUPS * R)
    n_keys = real_keys(lengths_ptr + b * lengths_b + h * lengths_h, S, HAS_LENGTHS)
    n_rows, limit, own_h, other_h = T, n_keys, h, h // group
    if BY_KEY:
        n_rows, limit, own_h, other_h = S, gl.where(first < n_keys, T, 0), h // group, h
    else:
        first = (gl.num_programs(1) - 1) * (GROUPS * R) - first  # with causal masks the longest first
    start, inner, outer, n_tiles = columns_for(
        first, n_rows, limit, low, high, HAS_LOW, HAS_HIGH, not BY_KEY, GROUPS * R, N
    )
    own_mem, own_bar = ring(own_tiles, GROUPS, 1, R, D)
    mem, full = ring(other_tiles, STAGES, STAGES, N, D)
    fetch(own_tiles, b, own_h, first, own_mem, own_bar, 0, True, GROUPS, R, D)
    pointers = (
        lse_ptr + wide * padded_t, slope_ptr + wide * padded_t, g_entropy_ptr + wide * padded_t,
        g_received_ptr + wide * padded_s, out_ptr + wide * n_rows * (D if GRADIENT else 1),
    )  # fmt: skip
    walk = (start, inner, outer, n_tiles)
    limits = (first, n_rows, n_keys, limit, low, high, scale2)
    if GROUPS == 1:
        for i in gl.static_range(STAGES):
            fetch(other_tiles, b, other_h, start + i * N, mem, full, i, i < n_tiles, 1, N, D)
        task = (own_mem, own_bar, mem, full, full, other_tiles, b, other_h, pointers, walk, limits)
        add_up(
            task, GRADIENT, BY_KEY, RECEIVED, ENTROPY, HAS_LOW, HAS_HIGH, D, R, N, STAGES, PARTS,
            OVERLAP, False, 0,
        )  # fmt: skip
    else:
        empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
        for i in gl.static_range(STAGES):
            mbarrier.init(empty.index(i), count=GROUPS)
        fence_async_shared()
        task = (own_mem, own_bar, mem, full, empty, full, b, other_h, pointers, walk, limits)
        gl.warp_specialize(
            [
                (add_up, (
                    task, GRADIENT, BY_KEY, RECEIVED, ENTROPY, HAS_LOW, HAS_HIGH, D, R, N, STAGES, PARTS,
                    OVERLAP, True, 0,
                )),
                (add_up, (
                    task, GRADIENT, BY_KEY, RECEIVED, ENTROPY, HAS_LOW, HAS_HIGH, D, R, N, STAGES, PARTS,
                    OVERLAP, True, 1,
                )),
                (add_up, (
                    task, GRADIENT, BY_KEY, RECEIVED, ENTROPY, HAS_LOW, HAS_HIGH, D, R, N, STAGES, PARTS,
                    OVERLAP, True, 2,
                )),
                (bring, (other_tiles, b, other_h, mem, full, empty, start, n_tiles, D, N, STAGES)),
            ],
            [4, 4, 1],
            [REGISTERS, REGISTERS, COPYING],
        )  # fmt: skip


@gluon.jit
def bring(
    tiles, b, h, mem, full, empty, start, n_tiles, D: gl.constexpr, N: gl.constexpr, STAGES: gl.constexpr
):  # fmt: skip
    """Have the copy engine bring each tile of a walk as soon as all groups are done with what was there."""
    for tile in range(n_tiles):
        slot, phase = place_of(tile, STAGES)
        mbarrier.wait(empty.index(slot), phase ^ 1)  # in the first round it is empty
        fetch(tiles, b, h, start + tile * N, mem, full, slot, True, 1, N, D)


@gluon.jit
def add_up(
    task, GRADIENT: gl.constexpr, BY_KEY: gl.constexpr, RECEIVED: gl.constexpr, ENTROPY: gl.constexpr,
    HAS_LOW: gl.constexpr, HAS_HIGH: gl.constexpr,
    D: gl.constexpr, R: gl.constexpr, N: gl.constexpr, STAGES: gl.constexpr,
    PARTS: gl.constexpr, OVERLAP: gl.constexpr,
    SHARED: gl.constexpr,  # whether the columns are, with other groups
    i: gl.constexpr,  # which group
):  # fmt: skip
    """Walk over the columns of R rows, tile by tile."""
    WARPS: gl.constexpr = R // 64 * 4
    WIDTH: gl.constexpr = N // PARTS
    EARLY: gl.constexpr = PARTS == 1 and not OVERLAP
    MMA: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[WARPS, 1], instr_shape=[16, N, 16]
    )
    SUMS: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[WARPS, 1], instr_shape=[16, D, 16]
    )
    own_mem, own_bar, mem, full, empty, tiles, b, h, pointers, walk, limits = task
    start, inner, outer, n_tiles = walk
    first, n_rows, n_keys, limit, low, high, scale2 = limits
    first += i * R
    own = own_mem.index(i)
    scores = gl.zeros([R, N], gl.float32, MMA)
    gradient = gl.zeros([R, D], gl.float32, SUMS)
    total = by_eights(scores, R, N)
    LAYOUT: gl.constexpr = parts_of(scores, PARTS)[0].type.layout
    in_rows = gl.arange(0, R, gl.SliceLayout(1, LAYOUT))
    in_part = gl.arange(0, WIDTH, gl.SliceLayout(0, LAYOUT))
    rows = first + in_rows
    of_rows = values_of(pointers, first, in_rows, n_rows, 1, GRADIENT, BY_KEY, RECEIVED, ENTROPY)
    mbarrier.wait(own_bar.index(0), 0)
    if OVERLAP:
        of_columns = values_of(pointers, start, in_part, limit, 0, GRADIENT, not BY_KEY, RECEIVED, ENTROPY)
        mbarrier.wait(full.index(0), 0, pred=n_tiles > 0)
        scores = warpgroup_mma_wait(0, deps=[products(own, mem.index(0), scores, R, N, D)])
    for part in gl.static_range(3):  # tiles that a limit cuts, those it does not, those that one cuts again
        if part == 0:
            begin, stop = 0, inner
        elif part == 1:
            begin, stop = inner, outer
        else:
            begin, stop = outer, n_tiles
        if part == 1 or (part == 0 and HAS_LOW) or (part == 2 and (HAS_HIGH or not BY_KEY)):
            for tile in range(begin, stop):
                slot, phase = place_of(tile, STAGES)
                if EARLY:  # on their way while the scores are
                    of_columns = values_of(
                        pointers, start + tile * N, in_part, limit, 0, GRADIENT, not BY_KEY, RECEIVED, ENTROPY
                    )
                if not OVERLAP:
                    mbarrier.wait(full.index(slot), phase)
                    flight = products(own, mem.index(slot), scores, R, N, D)
                    scores = warpgroup_mma_wait(0, deps=[flight])
                parts = parts_of(scores, PARTS)
                flight = gradient
                for n in gl.static_range(PARTS):
                    at = start + tile * N + n * WIDTH
                    if not OVERLAP and not EARLY:
                        of_columns = values_of(
                            pointers, at, in_part, limit, 0, GRADIENT, not BY_KEY, RECEIVED, ENTROPY
                        )
                    of_queries = of_columns if BY_KEY else of_rows
                    of_keys = of_rows if BY_KEY else of_columns
                    x = parts[n] * scale2 + of_queries[0]
                    if part != 1:
                        ok = may_meet(
                            rows - at, in_part, limit - at, low, high, HAS_LOW, HAS_HIGH, not BY_KEY
                        )
                        x = gl.where(ok, x, LOG2_ZERO)
                    if GRADIENT:
                        slope = of_queries[1]
                        if RECEIVED:
                            slope = slope + of_keys[0]
                        if ENTROPY:
                            slope = slope - of_queries[2] * x
                        d_scores = (exp2(x) * slope).to(mem.dtype)
                        d_scores = gl.convert_layout(d_scores, gl.DotOperandLayout(0, SUMS, 2))
                        other = mem.index(slot).reshape([N, D]).slice(n * WIDTH, WIDTH)
                        flight = warpgroup_mma(d_scores, other, flight, is_async=True)
                    else:
                        total += by_eights(exp2(x) * of_keys[0], R, N)
                if OVERLAP:
                    after = tile + 1  # beyond the last one: numbers that nobody reads
                    next_slot, phase = place_of(after, STAGES)
                    mbarrier.wait(full.index(next_slot), phase, pred=after < n_tiles)
                    ready = products(own, mem.index(next_slot), scores, R, N, D)
                    at = start + gl.minimum(after, n_tiles - 1) * N
                    of_columns = values_of(
                        pointers, at, in_part, limit, 0, GRADIENT, not BY_KEY, RECEIVED, ENTROPY
                    )
                    gradient, scores = warpgroup_mma_wait(0, deps=[flight, ready])
                elif GRADIENT:
                    gradient = warpgroup_mma_wait(0, deps=[flight])
                if SHARED:
                    mbarrier.arrive(empty.index(slot))
                else:
                    coming = tile + STAGES
                    fetch(tiles, b, h, start + coming * N, mem, full, slot, coming < n_tiles, 1, N, D)
    if GRADIENT:
        gradient = gradient * (scale2 * LN2)
        store(pointers[4], gradient, first, n_rows, n_keys, BY_KEY, R, D)
    else:
        sums = gl.convert_layout(gl.sum(total, axis=1), rows.type.layout)
        gl.store(pointers[4] + rows, sums, mask=rows < n_rows)
