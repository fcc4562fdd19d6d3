"""The second pass: every weight computed once more from q, k and lse, and added up where it belongs.

A program owns BN keys and walks over the queries that may look at them. Sums over queries stay in its
registers: ``received`` is written once, a row of the map when the walk leaves it. What belongs to a query
is gathered from many programs, so it is added as an integer (fixed point, 2^-40) and compared as one:
integers add up the same in any order, and the result does not depend on who came first.
"""

import triton
import triton.language as tl

from sightline.look.kernels.tiles import (
    EMPTY_LSE,
    LOG2E,
    group_maxima,
    ordered,
    queries_for,
    real_keys,
    tile_logs,
)

FIXED = tl.constexpr(float(1 << 40))


@triton.jit
def weights_kernel(
    q_tiles,  # q by descriptor, for the copy engine, where BY_TILES
    q_ptr, q_b, q_h, q_t, q_d,
    k_ptr, k_b, k_h, k_s, k_d,
    lse_ptr,  # (B H, T), natural
    rest_ptr,  # (B H, T): where lse is given in two parts, largest score and log2 of the sum
    lengths_ptr, lengths_b, lengths_h,
    allowed_ptr, allowed_b, allowed_h, allowed_t, allowed_s,
    added_ptr, added_b, added_h, added_t, added_s,
    received_ptr,  # (B H, S)
    cells_ptr,  # (B H, rows, n_blocks, NC): what each block of keys adds to the cells it touches
    entropy_ptr,  # (B H, T) int64: sum of w log2 w
    peak_ptr,  # (B H, T) int64: the largest log2 w, and the group of keys that holds it
    H, group, T, S, D,
    scale2, low, high,
    n_rows, n_columns,
    RECEIVED: tl.constexpr, CELLS: tl.constexpr, ENTROPY: tl.constexpr, PEAK: tl.constexpr,
    HAS_LENGTHS: tl.constexpr, HAS_ALLOWED: tl.constexpr, HAS_ADDED: tl.constexpr,
    HAS_LOW: tl.constexpr, HAS_HIGH: tl.constexpr, TWO_PARTS: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr,
    NC: tl.constexpr,  # columns of the map that BN keys may touch
    STAGES: tl.constexpr,
    BY_TILES: tl.constexpr,
):  # fmt: skip
    """Add up the weights of twice BN keys."""
    block = tl.program_id(0) * 2
    head = tl.program_id(1).to(tl.int64)
    b, h = head // H, head % H
    q_ptr += b * q_b + h * q_h
    k_ptr += b * k_b + (h // group) * k_h
    lse_ptr += head * T
    rest_ptr += head * T
    entropy_ptr += head * T
    peak_ptr += head * T
    allowed_ptr += b * allowed_b + h * allowed_h
    added_ptr += b * added_b + h * added_h

    first_key = block * BN
    keys = first_key + tl.arange(0, BN)
    width = tl.arange(0, BD)
    limit = real_keys(lengths_ptr, lengths_b, lengths_h, b, h, S, HAS_LENGTHS)
    start, inner, outer, end = queries_for(first_key, limit, low, high, T, HAS_LOW, HAS_HIGH, BM, 2 * BN)

    k_at = k_ptr + keys[:, None].to(tl.int64) * k_s + width[None, :] * k_d
    k0 = tl.load(k_at, mask=(keys < S)[:, None] & (width[None, :] < D), other=0.0)
    k1 = tl.load(k_at + BN * k_s, mask=(keys + BN < S)[:, None] & (width[None, :] < D), other=0.0)
    n_cells = head * 0 + n_rows  # in 64 bits
    row = ((start + 1) * n_cells - 1) // T  # of the map
    bound = ((row + 1) * T) // n_cells  # where the next one begins
    n_blocks = 2 * tl.num_programs(0)
    cells_ptr += (head * n_rows * n_blocks + block) * NC
    column0 = column_of(keys, head * 0 + first_key, n_columns, S)
    column1 = column_of(keys + BN, head * 0 + first_key + BN, n_columns, S)
    mass0 = tl.zeros((NC, BM, 8), tl.float32)  # of the row of the map that the walk is in
    mass1 = tl.zeros((NC, BM, 8), tl.float32)

    sums0 = tl.zeros((BM // 16, 8, BN), tl.float32)
    sums1 = tl.zeros((BM // 16, 8, BN), tl.float32)
    for part in tl.static_range(3):  # tiles that a limit cuts, those it does not, those that one cuts again
        if part == 0:
            begin, stop = start, inner
        elif part == 1:
            begin, stop = inner, outer
        else:
            begin, stop = outer, end
        if part < 2 or HAS_LOW:
            for first_query in tl.range(begin, stop, BM, num_stages=STAGES):
                queries = first_query + tl.arange(0, BM)
                there = queries < T
                if BY_TILES:
                    q = q_tiles.load([b.to(tl.int32), h.to(tl.int32), first_query, 0]).reshape(BM, BD)
                else:
                    q = tl.load(q_ptr + queries[:, None].to(tl.int64) * q_t + width[None, :] * q_d,
                                mask=there[:, None] & (width[None, :] < D), other=0.0)  # fmt: skip
                if TWO_PARTS:
                    lse = tl.load(lse_ptr + queries, mask=there, other=EMPTY_LSE)
                    rest = tl.load(rest_ptr + queries, mask=there, other=0.0)
                else:
                    lse = tl.load(lse_ptr + queries, mask=there, other=float("inf"))
                    lse = tl.where(tl.abs(lse) < 1e30, lse * LOG2E, EMPTY_LSE)
                    rest = lse
                x0 = tile_logs(
                    q, k0, lse, rest, queries, keys, scale2, limit, low, high,
                    allowed_ptr, allowed_t, allowed_s, added_ptr, added_t, added_s, T, S,
                    part != 1, TWO_PARTS, HAS_ADDED, HAS_LOW, HAS_HIGH, HAS_ALLOWED, PRECISION,
                )  # fmt: skip
                w0 = tl.exp2(x0)
                if ENTROPY:
                    spread = tl.sum(tl.reshape(w0 * x0, (BM, BN // 8, 8)), axis=1)
                if PEAK:
                    maxima = group_maxima(x0, BM, BN)
                if RECEIVED:
                    sums0 += tl.sum(tl.reshape(w0, (BM // 16, 2, 8, BN)), axis=1)
                if CELLS:
                    tile0 = tile_mass(w0, column0, BM, BN, NC)
                x1 = tile_logs(
                    q, k1, lse, rest, queries, keys + BN, scale2, limit, low, high,
                    allowed_ptr, allowed_t, allowed_s, added_ptr, added_t, added_s, T, S,
                    part != 1, TWO_PARTS, HAS_ADDED, HAS_LOW, HAS_HIGH, HAS_ALLOWED, PRECISION,
                )  # fmt: skip
                w1 = tl.exp2(x1)
                if ENTROPY:
                    spread += tl.sum(tl.reshape(w1 * x1, (BM, BN // 8, 8)), axis=1)
                    fixed = (tl.sum(spread, 1) * FIXED).to(tl.int64)
                    tl.atomic_add(entropy_ptr + queries, fixed, mask=there, sem="relaxed")
                if PEAK:
                    maxima = tl.maximum(maxima, group_maxima(x1, BM, BN))
                    best, at = tl.max(maxima, axis=1, return_indices=True)
                    at += tl.program_id(0) * 32
                    found = (ordered(best).to(tl.int64) << 32) | (0x7FFFFFFF - at).to(tl.int64)
                    tl.atomic_max(peak_ptr + queries, found, mask=there, sem="relaxed")
                if RECEIVED:
                    sums1 += tl.sum(tl.reshape(w1, (BM // 16, 2, 8, BN)), axis=1)
                if CELLS:
                    tile1 = tile_mass(w1, column1, BM, BN, NC)
                    if first_query + BM >= bound:  # a row of the map ends with this tile, or inside it
                        before = (queries < bound)[None, :, None]
                        at_row = cells_ptr + row * n_blocks * NC
                        store_cells(at_row, mass0 + tl.where(before, tile0, 0.0), NC)
                        store_cells(at_row + NC, mass1 + tl.where(before, tile1, 0.0), NC)
                        mass0 = tl.where(before, 0.0, tile0)
                        mass1 = tl.where(before, 0.0, tile1)
                        row += 1
                        bound = ((row + 1) * T) // n_cells
                    else:
                        mass0 += tile0
                        mass1 += tile1
    if CELLS and row < n_rows:  # the walk may have ended inside a row of the map
        at_row = cells_ptr + row * n_blocks * NC
        store_cells(at_row, mass0, NC)
        store_cells(at_row + NC, mass1, NC)
    if RECEIVED:
        received_ptr += head * S
        got = tl.sum(tl.sum(sums0, axis=0), axis=0)
        tl.store(received_ptr + keys, tl.where(keys < limit, got, 0.0), mask=keys < S)
        got = tl.sum(tl.sum(sums1, axis=0), axis=0)
        keys += BN
        tl.store(received_ptr + keys, tl.where(keys < limit, got, 0.0), mask=keys < S)


@triton.jit
def column_of(keys, first_key, n_columns, S):
    """Into which column of the map each key falls, counted from the first key's."""
    first = ((first_key + 1) * n_columns - 1) // S
    return (((keys.to(tl.int64) + 1) * n_columns - 1) // S - first).to(tl.int32)


@triton.jit
def tile_mass(w, column, BM: tl.constexpr, BN: tl.constexpr, NC: tl.constexpr):
    """What queries give to each column of the map that the tile touches: (NC, BM, 8), the 8 to be added."""
    if NC == 1:
        mass = tl.sum(tl.reshape(w, (BM, BN // 8, 8)), axis=1)[None, :, :]
    else:
        mass = tl.zeros((NC, BM, 8), tl.float32)
        for c in tl.static_range(NC):
            part = tl.sum(tl.reshape(tl.where((column == c)[None, :], w, 0.0), (BM, BN // 8, 8)), axis=1)
            mass += tl.where((tl.arange(0, NC) == c)[:, None, None], part[None, :, :], 0.0)
    return mass


@triton.jit
def store_cells(cells_ptr, mass, NC: tl.constexpr):
    """Write what a block of keys adds to each cell it touches."""
    tl.store(cells_ptr + tl.arange(0, NC), tl.sum(tl.sum(mass, axis=2), axis=1))


@triton.jit
def join_kernel(
    parts_ptr,  # (B H, rows, n_blocks, NC, WARPS)
    cells_ptr,  # (B H, rows, columns)
    T, S, n_rows, n_columns, n_blocks,
    n_touching,  # how many blocks may touch a column, at most
    BN: tl.constexpr, NC: tl.constexpr, WARPS: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Add up what the blocks of keys gave to each cell, in their order, and take the mean."""
    row = tl.program_id(0)
    head = tl.program_id(1).to(tl.int64)
    wide = head * 0 + 1
    column = (tl.program_id(2) * BC + tl.arange(0, BC)) * wide
    inside = column < n_columns
    first = column * S // n_columns
    last = (column + 1) * S // n_columns
    parts_ptr += (head * n_rows + row) * n_blocks * (NC * WARPS)
    total = tl.zeros((BC,), tl.float32)
    for i in range(n_touching):
        block = first // BN + i
        begins_in = ((block * BN + 1) * n_columns - 1) // S
        touches = inside & (block * BN < last)
        at = (block * NC + column - begins_in) * WARPS
        for warp in tl.static_range(WARPS):
            total += tl.load(parts_ptr + at + warp, mask=touches, other=0.0)
    height = (row + 1) * wide * T // n_rows - row * wide * T // n_rows
    mean = total / (height * (last - first)).to(tl.float32)
    tl.store(cells_ptr + (head * n_rows + row) * n_columns + column, mean, mask=inside)
