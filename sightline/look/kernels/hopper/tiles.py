"""Tiles of 64 queries and 128 keys on Hopper: how they come in, and what is made of them.

Of a tile a thread has 2 queries and, of every 8 keys, 2. Sums and maxima are taken first over what lies in
one thread, and over threads only when they must be.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma, warpgroup_mma

M = gl.constexpr(64)  # queries of a tile
N = gl.constexpr(128)  # keys of a tile
LOG2E = gl.constexpr(1.4426950408889634)
LOG2_ZERO = gl.constexpr(-1e4)  # log w of a pair that may not look, as in the plain kernels
EMPTY_LSE = gl.constexpr(3e4)  # lse of a query that looks at nothing
BYTES = gl.constexpr(2)  # of a number
MMA = gl.constexpr(gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 128, 16]))
OF_QUERIES = gl.constexpr(gl.SliceLayout(1, MMA.value))
OF_KEYS = gl.constexpr(gl.SliceLayout(0, MMA.value))


@gluon.jit
def ring(tiles, n: gl.constexpr, rows: gl.constexpr, D: gl.constexpr):
    """Shared memory for n tiles, and a barrier for each."""
    memory = gl.allocate_shared_memory(tiles.dtype, [n, 1, 1, rows, D], tiles.layout)
    barriers = gl.allocate_shared_memory(gl.int64, [n, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(n):
        mbarrier.init(barriers.index(i), count=1)
    fence_async_shared()
    return memory, barriers


@gluon.jit
def fetch(tiles, b, h, first, memory, barriers, slot, wanted, rows: gl.constexpr, D: gl.constexpr):
    """Have the copy engine bring a tile into its slot, if it is wanted; zeros beyond the end."""
    mbarrier.expect(barriers.index(slot), rows * D * BYTES, pred=wanted)
    tma.async_copy_global_to_shared(
        tiles, [b, h, first, 0], barriers.index(slot), memory.index(slot), pred=wanted
    )


@gluon.jit
def product(q, k, into, D: gl.constexpr):
    """Issue the scores of a tile; ``into`` lends its registers."""
    k = k.reshape([N, D]).permute((1, 0))
    return warpgroup_mma(q.reshape([M, D]), k, into, use_acc=False, is_async=True)


@gluon.jit
def log2_of(lse):
    """Turn lse into units of log2, EMPTY_LSE where it is not finite."""
    return gl.where(gl.abs(lse) < 1e30, lse * LOG2E, EMPTY_LSE)


@gluon.jit
def tile_logs(
    scores, lse, queries, first_key, scale2, limit, low, high,
    CUT: gl.constexpr, HAS_LOW: gl.constexpr, HAS_HIGH: gl.constexpr,
):  # fmt: skip
    """The logarithms of a block's weights; one that is not CUT lies inside length and band."""
    x = scores * scale2 - gl.expand_dims(lse, 1)
    if CUT:
        keys = gl.expand_dims(first_key + gl.arange(0, N, OF_KEYS), 0)
        ahead = keys - gl.expand_dims(queries, 1)
        ok = keys < limit
        if HAS_HIGH:
            ok = ok & (ahead <= high)
        if HAS_LOW:
            ok = ok & (ahead >= low)
        x = gl.where(ok, x, LOG2_ZERO)
    return x


@gluon.jit
def exp2(x):
    """2^x, and 0 where that is denormal."""
    asm: gl.constexpr = "ex2.approx.ftz.f32 $0, $1;"
    return gl.inline_asm_elementwise(asm, "=f,f", [x], dtype=gl.float32, is_pure=True, pack=1)


@gluon.jit
def over_queries(w):
    """Sums over the two queries of each thread, (4, 8, N)."""
    return gl.sum(gl.reshape(w, (4, 2, 8, N)), axis=1)


@gluon.jit
def over_keys(x):
    """Sums over keys of each thread, (M, 8)."""
    return gl.sum(gl.reshape(x, (M, N // 8, 8)), axis=1)


@gluon.jit
def group_maxima(x):
    """The largest of each group of 8 keys, (M, 16): key 64 j + 8 i + c is in group 8 j + c."""
    return gl.reshape(gl.max(gl.reshape(x, (M, 2, 8, 8)), axis=2), (M, 16))


@gluon.jit
def largest(maxima):
    """The largest of each query's maxima, and its group."""
    top = gl.max(maxima, axis=1)
    groups = gl.expand_dims(gl.arange(0, 16, gl.SliceLayout(0, maxima.type.layout)), 0)
    at = gl.min(gl.where(maxima == gl.expand_dims(top, 1), groups, 16), axis=1)
    return top, at


@gluon.jit
def real_keys(lengths_ptr, S, HAS_LENGTHS: gl.constexpr):
    """How many keys are real."""
    limit = S
    if HAS_LENGTHS:
        limit = gl.minimum(S, gl.load(lengths_ptr)).to(gl.int32)
    return limit
