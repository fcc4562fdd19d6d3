"""The map on Hopper: weights added up in cells of any height and width, as integers in units of 2^-40.

Cells no smaller than a tile are read off the sums of the keys when the walk leaves a row of them, so no
weight is added twice. Finer ones are added up tile by tile: each thread then owns one key.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from sightline.look.kernels.hopper.tiles import FIXED, M, N, over_queries, whole

# Threads in the order of keys: each adds up what its key got from four warps, eight pairs of queries each.
BY_KEY = gl.constexpr(gl.BlockedLayout([4, 8, 1], [1, 1, 32], [1, 1, 4], [2, 1, 0]))
OF_WARPS = gl.constexpr(gl.SliceLayout(1, BY_KEY.value))
OWN_KEY = gl.constexpr(gl.SliceLayout(0, OF_WARPS.value))
THREADS = gl.constexpr(128)
PLAIN = gl.constexpr(gl.SwizzledSharedLayout(1, 1, 1, order=[1, 0]))
PLACES = gl.constexpr(16)  # sums that wait to be added up over threads, all at once


@gluon.jit
def start_of(cell, n_cells, length):
    """Where a row or a column of cells begins."""
    return (cell.to(gl.int64) * length // n_cells).to(gl.int32)


@gluon.jit
def cell_of(position, n_cells, length):
    """The row or the column of cells that a position falls into."""
    return (((position.to(gl.int64) + 1) * n_cells - 1) // length).to(gl.int32)


@gluon.jit
def zero_shares(like, ONE: gl.constexpr):
    """Nothing yet, for :func:`add_share`."""
    zeros = gl.zeros_like(like)
    return (zeros, zeros) if ONE else (zeros, zeros, zeros, zeros)


@gluon.jit
def to_edges(like, first_key, edges):
    """How far the edge of each 64 keys is from the first, second, ... of 8 keys."""
    keys = first_key + gl.arange(0, 8, gl.SliceLayout(0, gl.SliceLayout(0, like.type.layout)))
    return (edges[0] - keys).to(gl.float32), (edges[1] - keys).to(gl.float32)


@gluon.jit
def is_before(edge, distance: gl.constexpr):
    """One where the edge is farther than that, else zero; computed anew each time, not kept in registers."""
    x = gl.full_like(edge, -distance)
    asm: gl.constexpr = "add.sat.f32 $0, $1, $2;"
    return gl.inline_asm_elementwise(asm, "=f,f,f", [edge, x], dtype=gl.float32, is_pure=False, pack=1)


@gluon.jit
def add_share(mass, n: gl.constexpr, part, to_edge, ONE: gl.constexpr):
    """Add what the n-th 8 keys have, (4, 8, 8), to what their 64 give and, behind it, to the first column.

    A second column, if there is one, begins at the edge of its 64 keys.
    """
    half: gl.constexpr = n // 8
    mass = mass[:half] + (mass[half] + part,) + mass[half + 1 :]  # noqa: RUF005 (Gluon has no stars)
    if not ONE:
        early = gl.expand_dims(gl.expand_dims(is_before(to_edge[half], 8 * n), 0), 0)
        early = mass[half + 2] + early * part
        mass = mass[: half + 2] + (early,) + mass[half + 3 :]  # noqa: RUF005
    return mass


@gluon.jit
def shares(sums, to_edge, ONE: gl.constexpr):
    """What the sums of the keys give to the columns of the map."""
    mass = zero_shares(sums[0], ONE)
    for n in gl.static_range(16):
        mass = add_share(mass, n, sums[n], to_edge, ONE)
    return mass


@gluon.jit
def add_shares(cells_ptr, row, mass, mass_in_map, columns, n_columns, ONE: gl.constexpr):
    """Add to a row of cells what has come since the last one."""
    masses = mass[:0]
    for i in gl.static_range(len(mass)):  # all first: each waits for its threads, together they wait once
        masses += (of_warps(mass[i] - mass_in_map[i]),)
    for half in gl.static_range(2):
        late = masses[half]
        if not ONE:
            early = masses[half + 2]
            late -= early
            add_to_cell(cells_ptr, row, columns[half], early, n_columns)
        add_to_cell(cells_ptr, row, columns[half] + (0 if ONE else 1), late, n_columns)


@gluon.jit
def of_warps(x):
    """The sum that each warp holds, (4,)."""
    return gl.sum(gl.sum(x, axis=2), axis=1)


@gluon.jit
def add_to_cell(cells_ptr, row, column, mass, n_columns):
    """Add each warp's share to a cell."""
    at = row.to(gl.int64) * n_columns + column + gl.zeros_like(mass, dtype=gl.int32)
    inside = (column < n_columns) & (mass != 0)
    gl.atomic_add(cells_ptr + at, (mass * FIXED).to(gl.int64), mask=inside, sem="relaxed")


@gluon.jit
def places_for(WAITS: gl.constexpr):
    """Shared memory where what threads have to add to rows of cells waits, if it does."""
    return gl.allocate_shared_memory(gl.float32, [PLACES if WAITS else 1, 1, THREADS], PLAIN)


@gluon.jit
def keep_shares(places, i, mass, mass_in_map):
    """Put what has come since the last row of cells into the i-th place."""
    n: gl.constexpr = len(mass)
    for part in gl.static_range(n):
        new = gl.sum(gl.reshape(mass[part] - mass_in_map[part], (4, 8, 4, 2)), axis=3)
        places.index(i * n + part).store(gl.reshape(new, (1, THREADS)))


@gluon.jit
def add_kept(cells_ptr, places, row, n_rows_done, columns, n_columns, ONE: gl.constexpr):
    """Add to the rows of cells what waits for them."""
    n: gl.constexpr = 2 if ONE else 4
    BY_PLACE: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
    places = places._reinterpret(gl.float32, [PLACES, THREADS], PLAIN)  # noqa: SLF001 (it has no other name)
    mass = gl.sum(places.load(BY_PLACE), axis=1)
    place = gl.arange(0, PLACES, mass.type.layout)
    half, early = place % 2, place % n // 2
    column = gl.where(half == 0, columns[0], columns[1])
    at = (row + place // n).to(gl.int64) * n_columns + column
    fixed = (mass * FIXED).to(gl.int64)
    wanted = (place // n < n_rows_done) & (mass != 0)
    if ONE:
        gl.atomic_add(cells_ptr + at, fixed, mask=wanted & (column < n_columns), sem="relaxed")
    else:  # what is not early is in the next column
        more = wanted & (column + 1 < n_columns)
        gl.atomic_add(cells_ptr + at + 1, gl.where(early == 0, fixed, -fixed), mask=more, sem="relaxed")
        wanted &= (early == 1) & (column < n_columns)
        gl.atomic_add(cells_ptr + at, fixed, mask=wanted, sem="relaxed")


@gluon.jit
def add_weighted(sums, w, factors):
    """The sums of 8 keys, (4, 8, 8), and the weights of each query times its factor, (M,)."""
    factors = gl.expand_dims(factors, 1) + gl.zeros_like(w)
    one, other = of_each_query(w, sums)
    first, second = of_each_query(factors, sums)
    return one * first + (other * second + sums)


@gluon.jit
def of_each_query(x, sums):
    """What the first and the second query of each thread have, each as sums lie; nothing is moved."""
    LAYOUT: gl.constexpr = sums.type.layout
    one, other = gl.split(gl.permute(gl.reshape(x, (4, 2, 8, 8)), (0, 2, 3, 1)))
    return gl.convert_layout(one, LAYOUT), gl.convert_layout(other, LAYOUT)


@gluon.jit
def add_fine_cells(
    cells_ptr, w, first_query, first_key, T, S, n_rows, n_columns,
    ALIGNED: gl.constexpr, ALIGNED_KEYS: gl.constexpr,
):  # fmt: skip
    """Add a tile, given in blocks, to the cells it touches, and give the sums of its keys."""
    if ALIGNED:  # each warp's 16 queries lie in one row of cells
        part = by_key(w)  # (4, N)
        rows = (gl.arange(0, 4, gl.SliceLayout(1, OF_WARPS)) * 16 + first_query) // (T // n_rows)
        add_by_key(cells_ptr, part, gl.expand_dims(rows, 1), first_key, S, n_rows, n_columns, ALIGNED_KEYS)
        total = gl.sum(part, axis=0)
    else:
        total = gl.zeros([N], gl.float32, OWN_KEY)
        queries = first_query + gl.arange(0, M, gl.SliceLayout(1, w[0].type.layout))
        last = cell_of(gl.minimum(first_query + M, T) - 1, n_rows, T)
        for row in range(cell_of(first_query, n_rows, T), last + 1):
            inside = (queries >= start_of(row, n_rows, T)) & (queries < start_of(row + 1, n_rows, T))
            inside = gl.expand_dims(inside, 1)
            masked = w[:0]
            for i in gl.static_range(16):
                masked += (gl.where(inside, w[i], 0.0),)
            part = gl.expand_dims(gl.sum(by_key(masked), axis=0), 0)
            rows = gl.zeros([1, 1], gl.int32, OF_WARPS) + row
            add_by_key(cells_ptr, part, rows, first_key, S, n_rows, n_columns, ALIGNED_KEYS)
            total += gl.sum(part, axis=0)
    return total


@gluon.jit
def by_key(w):
    """What each key got from each warp's queries, (4, N)."""
    sums = w[:0]
    for i in gl.static_range(16):
        sums += (over_queries(w[i]),)
    return gl.sum(gl.convert_layout(whole(sums), BY_KEY), axis=1)


@gluon.jit
def add_by_key(cells_ptr, part, rows, first_key, S, n_rows, n_columns, ALIGNED_KEYS: gl.constexpr):
    """Add what the keys got, (n, N), to their cells in some rows, (n, 1)."""
    n: gl.constexpr = part.shape[0]
    if ALIGNED_KEYS:  # 16 keys after each other lie in one column of cells
        part = gl.sum(gl.reshape(part, (n, N // 16, 16)), axis=2)
        rows = gl.convert_layout(rows, part.type.layout)
        keys = first_key + 16 * gl.arange(0, N // 16, gl.SliceLayout(0, part.type.layout))
    else:
        keys = first_key + gl.arange(0, N, gl.SliceLayout(0, part.type.layout))
    at = rows.to(gl.int64) * n_columns + gl.expand_dims(cell_of(keys, n_columns, S), 0)
    inside = gl.expand_dims(keys < S, 0) & (rows < n_rows) & (part != 0)
    gl.atomic_add(cells_ptr + at, (part * FIXED).to(gl.int64), mask=inside, sem="relaxed")
