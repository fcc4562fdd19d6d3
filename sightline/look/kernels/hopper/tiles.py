"""Tiles of 64 queries and 128 keys on Hopper: how they come in, and what is made of them.

Of a tile a thread has 2 queries and, of every 8 keys, 2. A tile is worked on in blocks of 8 keys, one after
the other, so that few numbers are alive at a time. Sums and maxima are taken first over what lies in one
thread, and over threads only when they must be.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma, warpgroup_mma

M = gl.constexpr(64)  # queries of a tile
N = gl.constexpr(128)  # keys of a tile
FIXED = gl.constexpr(float(1 << 40))  # what is added up as an integer is counted in units of its inverse
LOG2E = gl.constexpr(1.4426950408889634)
LOG2_ZERO = gl.constexpr(-1e4)  # log w of a pair that may not look, as in the plain kernels
EMPTY_LSE = gl.constexpr(3e4)  # lse of a query that looks at nothing
BYTES = gl.constexpr(2)  # of a number
MMA = gl.constexpr(gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 128, 16]))


@gluon.jit
def ring(tiles, n: gl.constexpr, n_slots: gl.constexpr, rows: gl.constexpr, D: gl.constexpr):
    """Shared memory for n tiles, and a barrier for each slot of them."""
    memory = gl.allocate_shared_memory(tiles.dtype, [n, 1, 1, rows, D], tiles.layout)
    barriers = gl.allocate_shared_memory(gl.int64, [n_slots, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(n_slots):
        mbarrier.init(barriers.index(i), count=1)
    fence_async_shared()
    return memory, barriers


@gluon.jit
def fetch(
    tiles, b, h, first, memory, barriers, slot, wanted, n: gl.constexpr, rows: gl.constexpr, D: gl.constexpr
):  # fmt: skip
    """Have the copy engine bring n tiles into a slot, if they are wanted; zeros beyond the end."""
    mbarrier.expect(barriers.index(slot), n * rows * D * BYTES, pred=wanted)
    for i in gl.static_range(n):
        tma.async_copy_global_to_shared(
            tiles, [b, h, first + i * rows, 0], barriers.index(slot), memory.index(n * slot + i), pred=wanted
        )


@gluon.jit
def product(q, k, into, D: gl.constexpr):
    """Issue the scores of a tile; ``into`` lends its registers."""
    k = k.reshape([N, D]).permute((1, 0))
    return warpgroup_mma(q.reshape([M, D]), k, into, use_acc=False, is_async=True)


@gluon.jit
def halves(x):
    """The first and the second half of a tile's keys; nothing is moved."""
    m: gl.constexpr = x.shape[0]
    n: gl.constexpr = x.shape[1]
    return gl.split(gl.permute(gl.reshape(x, (m, 2, n // 2)), (0, 2, 1)))


@gluon.jit
def blocks_of(x):
    """A tile as 16 blocks of 8 keys, (M, 8) each."""
    blocks = halves(x)
    for _ in gl.static_range(3):
        finer = blocks[:0]
        for i in gl.static_range(len(blocks)):
            finer += halves(blocks[i])
        blocks = finer
    return blocks


@gluon.jit
def whole(blocks):
    """Blocks of (4, 8, 8) put together again, (4, 8, N)."""
    for _ in gl.static_range(4):
        coarser = blocks[:0]
        for i in gl.static_range(len(blocks) // 2):
            both = gl.permute(gl.join(blocks[2 * i], blocks[2 * i + 1]), (0, 1, 3, 2))
            coarser += (gl.reshape(both, (4, 8, 2 * blocks[0].shape[2])),)
        blocks = coarser
    return blocks[0]


@gluon.jit
def log2_of(lse):
    """Turn lse into units of log2, EMPTY_LSE where it is not finite."""
    return gl.where(gl.abs(lse) < 1e30, lse * LOG2E, EMPTY_LSE)


@gluon.jit
def block_logs(
    scores, lse, queries, first_key, scale2, limit, low, high,
    CUT: gl.constexpr, HAS_LOW: gl.constexpr, HAS_HIGH: gl.constexpr,
):  # fmt: skip
    """The logarithms of a block's weights; one that is not CUT lies inside length and band."""
    x = scores * scale2 - lse
    if CUT:
        keys = gl.expand_dims(first_key + gl.arange(0, 8, gl.SliceLayout(0, scores.type.layout)), 0)
        ok = keys < limit
        if HAS_HIGH:
            ok = ok & (keys - queries <= high)
        if HAS_LOW:
            ok = ok & (keys - queries >= low)
        x = gl.where(ok, x, LOG2_ZERO)
    return x


@gluon.jit
def exp2(x):
    """2^x, and 0 where that is denormal."""
    asm: gl.constexpr = "ex2.approx.ftz.f32 $0, $1;"
    return gl.inline_asm_elementwise(asm, "=f,f", [x], dtype=gl.float32, is_pure=True, pack=1)


@gluon.jit
def over_queries(w):
    """Sums over the two queries of each thread, (4, 8, keys)."""
    return gl.sum(gl.reshape(w, (4, 2, 8, w.shape[1])), axis=1)


@gluon.jit
def least_in_thread(x):
    """The least over the two neighbouring keys of each thread, as bits, (M, 4)."""
    return gl.min(gl.reshape(x.to(gl.uint32, bitcast=True), (M, 4, 2)), axis=2)


@gluon.jit
def scan_groups(x, n: gl.constexpr, here, least, which):
    """Go on to the n-th 8 keys: the least of the group at hand, of all groups of a tile, and which it was.

    A group is the four keys of a thread among 16, so that it ends with every second 8.
    """
    bits = least_in_thread(x)
    here = bits if n % 2 == 0 else gl.minimum(here, bits)
    if n == 1:
        least = here
    elif n % 2 == 1:
        which = gl.where(here < least, n // 2, which)
        least = gl.minimum(least, here)
    return here, least, which


@gluon.jit
def real_keys(lengths_ptr, S, HAS_LENGTHS: gl.constexpr):
    """How many keys are real."""
    limit = S
    if HAS_LENGTHS:
        limit = gl.minimum(S, gl.load(lengths_ptr)).to(gl.int32)
    return limit


@gluon.jit
def walk_of(first_query, n_queries, limit, low, high, T, HAS_LOW: gl.constexpr, HAS_HIGH: gl.constexpr):
    """Where some queries start to walk over keys, and how far; all see [inner, outer)."""
    start, end = 0, limit
    if HAS_LOW:
        start = (gl.maximum(0, first_query + low) // N) * N
    if HAS_HIGH:
        end = gl.minimum(limit, gl.minimum(T, first_query + n_queries) + high)
    n_tiles = gl.maximum(0, (end - start + N - 1) // N)
    inner, outer = 0, gl.maximum(0, (limit - start) // N)
    if HAS_LOW:
        inner = gl.maximum(0, (first_query + n_queries - 1 + low - start + N - 1) // N)
    if HAS_HIGH:
        outer = gl.minimum(outer, gl.maximum(0, first_query + high + 1 - start) // N)
    if outer <= inner:
        inner, outer = n_tiles, n_tiles
    return start, inner, outer, n_tiles
