"""Tiles of the backward pass: which of them rows walk over, what belongs to them, what is made of them."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import warpgroup_mma

from sightline.look.kernels.hopper.tiles import EMPTY_LSE, halves


@gluon.jit
def values_of(
    pointers, first, inside, n, axis: gl.constexpr,
    GRADIENT: gl.constexpr, BY_KEY: gl.constexpr, RECEIVED: gl.constexpr, ENTROPY: gl.constexpr,
):  # fmt: skip
    """What belongs to rows (axis 1) or columns (0): g_received of keys; lse, slope, g_entropy of queries."""
    lse_ptr, slope_ptr, g_entropy_ptr, g_received_ptr, _ = pointers
    values = pointers[:0]
    if BY_KEY:
        if RECEIVED:
            values += (load(g_received_ptr, first, inside, n, 0.0, axis),)
    else:
        values += (load(lse_ptr, first, inside, n, -EMPTY_LSE, axis),)
        if GRADIENT:
            values += (load(slope_ptr, first, inside, n, 0.0, axis),)
            if ENTROPY:
                values += (load(g_entropy_ptr, first, inside, n, 0.0, axis),)
    return values


@gluon.jit
def load(ptr, first, inside, n, other: gl.constexpr, axis: gl.constexpr):
    """Numbers of rows, of which there are n, or of columns, which are padded."""
    if axis == 1:
        x = gl.load(ptr + first + inside, mask=first + inside < n, other=other)
    else:
        x = gl.load(ptr + first + inside)
    return gl.expand_dims(x, axis)


@gluon.jit
def store(
    out_ptr, gradient, first, n_rows, n_keys, BY_KEY: gl.constexpr, R: gl.constexpr, D: gl.constexpr
):  # fmt: skip
    """Write the gradient of R rows; a key beyond its length has none."""
    LAYOUT: gl.constexpr = gradient.type.layout
    rows = gl.expand_dims(first + gl.arange(0, R, gl.SliceLayout(1, LAYOUT)), 1)
    width = gl.expand_dims(gl.arange(0, D, gl.SliceLayout(0, LAYOUT)), 0)
    if BY_KEY:
        gradient = gl.where(rows < n_keys, gradient, 0.0)
    gl.store(out_ptr + rows * D + width, gradient.to(out_ptr.dtype.element_ty), mask=rows < n_rows)


@gluon.jit
def columns_for(
    first, n_rows, limit, low, high, HAS_LOW: gl.constexpr, HAS_HIGH: gl.constexpr, LIMITED: gl.constexpr,
    R: gl.constexpr, N: gl.constexpr,
):  # fmt: skip
    """Where R rows start to walk over columns, and over how many tiles; all see [inner, outer).

    If it is not LIMITED, what lies beyond the limit does no harm.
    """
    start, end = 0, limit
    if HAS_LOW:
        start = (gl.maximum(0, first + low) // N) * N
    if HAS_HIGH:
        end = gl.minimum(limit, gl.minimum(n_rows, first + R) + high)
    n_tiles = gl.maximum(0, (end - start + N - 1) // N)
    inner, outer = 0, n_tiles
    if LIMITED:
        outer = gl.minimum(outer, gl.maximum(0, limit - start) // N)
    if HAS_LOW:
        inner = gl.maximum(0, (first + R - 1 + low - start + N - 1) // N)
    if HAS_HIGH:
        outer = gl.minimum(outer, gl.maximum(0, first + high + 1 - start) // N)
    if outer <= inner:  # none: those that a limit cuts are walked over before if HAS_LOW, else after
        inner, outer = (n_tiles, n_tiles) if HAS_LOW else (0, 0)
    if n_tiles == 0:
        start = 0
    return start, inner, outer, n_tiles


@gluon.jit
def may_meet(
    rows, columns, limit, low, high, HAS_LOW: gl.constexpr, HAS_HIGH: gl.constexpr, LIMITED: gl.constexpr
):  # fmt: skip
    """Which row meets which column, by at most two comparisons for each pair."""
    columns = gl.expand_dims(columns, 0)
    rows = gl.expand_dims(rows, 1)
    if HAS_LOW:
        ok = columns >= rows + low
        if HAS_HIGH:
            ok = ok & (columns < gl.minimum(limit, rows + (high + 1)))
        elif LIMITED:
            ok = ok & (columns < limit)
    elif HAS_HIGH:
        ok = columns < gl.minimum(limit, rows + (high + 1))
    else:
        ok = columns < limit + 0 * rows
    return ok


@gluon.jit
def place_of(tile, STAGES: gl.constexpr):
    """Where a tile lies in the ring, and the phase of its barrier."""
    tile = tile.to(gl.uint32)  # which divides in fewer steps
    return (tile % STAGES).to(gl.int32), ((tile // STAGES) & 1).to(gl.int32)


@gluon.jit
def products(own, other, into, R: gl.constexpr, N: gl.constexpr, D: gl.constexpr):
    """Issue the scores of a tile; ``into`` lends its registers."""
    other = other.reshape([N, D]).permute((1, 0))
    return warpgroup_mma(own.reshape([R, D]), other, into, use_acc=False, is_async=True)


@gluon.jit
def parts_of(scores, n: gl.constexpr):
    """A tile of scores, or its two halves."""
    return halves(scores) if n == 2 else (scores,)


@gluon.jit
def by_eights(x, R: gl.constexpr, N: gl.constexpr):
    """Sums over every eighth column, (R, 8): over what lies in one thread."""
    return gl.sum(gl.reshape(x, (R, N // 8, 8)), axis=1)
