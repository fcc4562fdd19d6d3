"""The second pass: every weight computed once more from q, k and lse, and added up where it belongs.

A program owns 2 BN keys and walks over the queries that may look at them. Sums over queries stay in its
registers: ``received`` is written once, and a row of the map gets its share when the walk leaves it. What
belongs to a query or to a cell is gathered from many programs, so it is added as an integer (fixed point,
2^-40) and compared as one: integers add up the same in any order, and the result does not depend on who
came first.
"""

import triton
import triton.language as tl

from sightline.look.kernels.tiles import (
    EMPTY_LSE,
    LOG2E,
    cell_of,
    group_maxima,
    packed,
    queries_for,
    real_keys,
    start_of,
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
    cells_ptr,  # (B H, rows, columns) int64: the weights of each cell
    entropy_ptr,  # (B H, T) int64: sum of w log2 w
    peak_ptr,  # (B H, T) int64: the largest log2 w, and the group of keys that holds it
    H, group, T, S, D,
    scale2, low, high,
    n_rows, n_columns,
    RECEIVED: tl.constexpr, CELLS: tl.constexpr, ENTROPY: tl.constexpr, PEAK: tl.constexpr,
    HAS_LENGTHS: tl.constexpr, HAS_ALLOWED: tl.constexpr, HAS_ADDED: tl.constexpr,
    HAS_LOW: tl.constexpr, HAS_HIGH: tl.constexpr, TWO_PARTS: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr,
    NC: tl.constexpr,  # columns of the map that BN keys may touch, 0 for many
    ENDS: tl.constexpr,  # rows of the map that may end in a tile, 0 for many
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
    cells_ptr += head * n_rows * n_columns
    column0 = cell_of(keys, n_columns, S)
    column1 = cell_of(keys + BN, n_columns, S)
    row = cell_of(head * 0 + start, n_rows, T)  # of the map

    sums0 = tl.zeros((BM // 16, 8, BN), tl.float32)  # with a map: of the row of cells that the walk is in
    sums1 = tl.zeros((BM // 16, 8, BN), tl.float32)
    total0 = tl.zeros((BN,), tl.float32)
    total1 = tl.zeros((BN,), tl.float32)
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
                if RECEIVED and not CELLS:
                    sums0 += over_queries(w0, BM, BN)
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
                    found = packed(best, at + tl.program_id(0) * 32)
                    tl.atomic_max(peak_ptr + queries, found, mask=there, sem="relaxed")
                if RECEIVED and not CELLS:
                    sums1 += over_queries(w1, BM, BN)
                if CELLS:
                    last = cell_of(tl.minimum(first_query + BM, T) - 1, n_rows, T)
                    if ENDS > 0:
                        for _ in tl.static_range(ENDS):
                            if row < last:  # this row of cells ends before the tile does
                                got0 = in_row(sums0, w0, queries, row, n_rows, T, BM, BN)
                                got1 = in_row(sums1, w1, queries, row, n_rows, T, BM, BN)
                                add_to_cells(cells_ptr, row, got0, column0, keys, S, n_columns, NC)
                                add_to_cells(cells_ptr, row, got1, column1, keys + BN, S, n_columns, NC)
                                total0 += got0
                                total1 += got1
                                sums0 = tl.zeros_like(sums0)
                                sums1 = tl.zeros_like(sums1)
                                row += 1
                    else:
                        for i in range(row, last):
                            ended = head * 0 + i
                            got0 = in_row(sums0, w0, queries, ended, n_rows, T, BM, BN)
                            got1 = in_row(sums1, w1, queries, ended, n_rows, T, BM, BN)
                            add_to_cells(cells_ptr, ended, got0, column0, keys, S, n_columns, NC)
                            add_to_cells(cells_ptr, ended, got1, column1, keys + BN, S, n_columns, NC)
                            total0 += got0
                            total1 += got1
                            sums0 = tl.zeros_like(sums0)
                            sums1 = tl.zeros_like(sums1)
                        row = last
                    begins = start_of(row, n_rows, T)
                    if begins > first_query:
                        w0 = tl.where((queries >= begins)[:, None], w0, 0.0)
                        w1 = tl.where((queries >= begins)[:, None], w1, 0.0)
                    sums0 += over_queries(w0, BM, BN)
                    sums1 += over_queries(w1, BM, BN)
    got0 = tl.sum(tl.sum(sums0, axis=0), axis=0)
    got1 = tl.sum(tl.sum(sums1, axis=0), axis=0)
    if CELLS and start < end:  # the walk has ended inside a row of the map
        add_to_cells(cells_ptr, row, got0, column0, keys, S, n_columns, NC)
        add_to_cells(cells_ptr, row, got1, column1, keys + BN, S, n_columns, NC)
    total0 += got0
    total1 += got1
    if RECEIVED:
        received_ptr += head * S
        tl.store(received_ptr + keys, tl.where(keys < limit, total0, 0.0), mask=keys < S)
        keys += BN
        tl.store(received_ptr + keys, tl.where(keys < limit, total1, 0.0), mask=keys < S)


@triton.jit
def over_queries(w, BM: tl.constexpr, BN: tl.constexpr):
    """Sums over a thread's queries, (BM // 16, 8, BN)."""
    return tl.sum(tl.reshape(w, (BM // 16, 2, 8, BN)), axis=1)


@triton.jit
def in_row(sums, w, queries, row, n_rows, T, BM: tl.constexpr, BN: tl.constexpr):
    """What keys got from a row of cells: before this tile, and from its queries in the row."""
    inside = (queries >= start_of(row, n_rows, T)) & (queries < start_of(row + 1, n_rows, T))
    sums += over_queries(tl.where(inside[:, None], w, 0.0), BM, BN)
    return tl.sum(tl.sum(sums, axis=0), axis=0)


@triton.jit
def add_to_cells(cells_ptr, row, got, column, keys, S, n_columns, NC: tl.constexpr):
    """Add what keys got to their cells of one row."""
    cells_ptr += row.to(tl.int64) * n_columns
    got = tl.where(keys < S, got, 0.0)
    if NC > 0:
        first = tl.min(column)
        for c in tl.static_range(NC):
            fixed = (tl.sum(tl.where(column == first + c, got, 0.0)) * FIXED).to(tl.int64)
            tl.atomic_add(cells_ptr + first + c, fixed, mask=first + c < n_columns, sem="relaxed")
    else:
        tl.atomic_add(cells_ptr + column, (got * FIXED).to(tl.int64), mask=keys < S, sem="relaxed")
