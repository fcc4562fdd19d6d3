"""What belongs to a query, in one pass that needs no log-sum-exp: the softmax is computed on the way.

A program owns BM queries and walks over their keys, with m the largest score so far, l the sum of
2^(x - m) and g that of 2^(x - m) (x - m). A larger m rescales both, and at the end

    lse = m + log2 l          entropy = log2 l - g / l          peak = 1 / l
"""

import triton
import triton.language as tl

from sightline.look.kernels.tiles import (
    EMPTY_LSE,
    apply_limits,
    group_maxima,
    key_of,
    keys_for,
    real_keys,
    start_of,
    tile_scores,
    unpacked,
)

LN2 = tl.constexpr(0.6931471805599453)
FIXED = tl.constexpr(float(1 << 40))


@triton.jit
def rows_kernel(
    q_ptr, q_b, q_h, q_t, q_d,
    k_ptr, k_b, k_h, k_s, k_d,
    lengths_ptr, lengths_b, lengths_h,
    allowed_ptr, allowed_b, allowed_h, allowed_t, allowed_s,
    added_ptr, added_b, added_h, added_t, added_s,
    lse_ptr,  # (B H, T), natural
    largest_ptr, rest_ptr,  # (B H, T): lse in two parts, in units of log2
    entropy_ptr,  # (B H, T), in nats
    group_ptr,  # (B H, T) int32: the group of keys that holds the peak, -1 for a query that looks at nothing
    H, group, T, S, D,
    scale2, low, high,
    ENTROPY: tl.constexpr, PEAK: tl.constexpr,
    HAS_LENGTHS: tl.constexpr, HAS_ALLOWED: tl.constexpr, HAS_ADDED: tl.constexpr,
    HAS_LOW: tl.constexpr, HAS_HIGH: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Walk over the keys of BM queries."""
    first_query = (tl.num_programs(0) - 1 - tl.program_id(0)) * BM  # with causal masks the longest first
    head = tl.program_id(1).to(tl.int64)
    b, h = head // H, head % H
    q_ptr += b * q_b + h * q_h
    k_ptr += b * k_b + (h // group) * k_h
    allowed_ptr += b * allowed_b + h * allowed_h
    added_ptr += b * added_b + h * added_h

    queries = first_query + tl.arange(0, BM)
    width = tl.arange(0, BD)
    there = queries < T
    fits = width[None, :] < D
    q = tl.load(q_ptr + queries[:, None].to(tl.int64) * q_t + width[None, :] * q_d,
                mask=there[:, None] & fits, other=0.0)  # fmt: skip
    limit = real_keys(lengths_ptr, lengths_b, lengths_h, b, h, S, HAS_LENGTHS)
    start, inner, outer, end = keys_for(first_query, limit, low, high, T, HAS_LOW, HAS_HIGH, BM, BN)

    m = tl.full((BM,), float("-inf"), tl.float32)
    l = tl.zeros((BM,), tl.float32)
    g = tl.zeros((BM,), tl.float32)
    where = tl.full((BM,), -1, tl.int32)
    for part in tl.static_range(3):  # tiles that a limit cuts, those it does not, those that one cuts again
        if part == 0:
            begin, stop = start, inner
        elif part == 1:
            begin, stop = inner, outer
        else:
            begin, stop = outer, end
        for first_key in tl.range(begin, stop, BN, num_stages=STAGES):
            keys = first_key + tl.arange(0, BN)
            k = tl.load(k_ptr + keys[:, None].to(tl.int64) * k_s + width[None, :] * k_d,
                        mask=(keys < S)[:, None] & fits, other=0.0)  # fmt: skip
            x = tile_scores(
                q, k, queries, keys, scale2, added_ptr, added_t, added_s, T, S, HAS_ADDED, PRECISION
            )
            x = apply_limits(
                x, queries, keys, limit, low, high, allowed_ptr, allowed_t, allowed_s, T, S, float("-inf"),
                part != 1, HAS_LOW, HAS_HIGH, HAS_ALLOWED,
            )  # fmt: skip
            if PEAK:
                best, at = tl.max(group_maxima(x, BM, BN), axis=1, return_indices=True)
                where = tl.where(best > m, (first_key // BN) * 32 + at, where)
            else:
                best = tl.max(x, axis=1)
            larger = tl.maximum(m, best)
            shift = tl.where(larger == float("-inf"), 0.0, larger)
            x = x - shift[:, None]
            w = tl.exp2(x)
            old = tl.exp2(m - shift)
            if ENTROPY:
                moved = tl.where(l > 0, l * (m - shift), 0.0)
                g = (g + moved) * old + tl.sum(tl.where(w > 0, w * x, 0.0), 1)
            l = l * old + tl.sum(w, 1)
            m = larger

    empty = m == float("-inf")
    rest = tl.log2(tl.where(empty, 1.0, l))
    at = head * T + queries
    tl.store(lse_ptr + at, (m + rest) * LN2, mask=there)
    tl.store(largest_ptr + at, tl.where(empty, EMPTY_LSE, m), mask=there)
    tl.store(rest_ptr + at, rest, mask=there)
    if ENTROPY:
        spread = tl.where(empty, 0.0, rest - g / tl.where(empty, 1.0, l)) * LN2
        tl.store(entropy_ptr + at, tl.maximum(spread, 0.0), mask=there)
    if PEAK:
        tl.store(group_ptr + at, tl.where(empty, -1, where), mask=there)


@triton.jit
def finish_kernel(
    q_ptr, q_b, q_h, q_t, q_d,
    k_ptr, k_b, k_h, k_s, k_d,
    lengths_ptr, lengths_b, lengths_h,
    allowed_ptr, allowed_b, allowed_h, allowed_t, allowed_s,
    added_ptr, added_b, added_h, added_t, added_s,
    sums_ptr, packed_ptr, masses_ptr,  # what the pass over weights has gathered, int64
    parts_ptr,  # (parts, B H, S): what keys received, where several programs have added it up
    group_ptr, rest_ptr,  # or what the pass over rows has found
    entropy_ptr, peak_ptr, peak_at_ptr,
    cells_ptr,  # (B H, rows, columns)
    received_ptr,  # (B H, S)
    H, group, T, S, D,
    scale2, low, high, n_rows, n_columns,
    n_blocks, n_cells,  # of queries, of cells; the programs beyond both finish what keys received
    n_parts,
    pitch,  # from the sums of a head to the next one's
    GATHERED: tl.constexpr,
    ENTROPY: tl.constexpr, PEAK: tl.constexpr, CELLS: tl.constexpr, RECEIVED: tl.constexpr,
    STEP: tl.constexpr,  # from a sum to the next
    HAS_LENGTHS: tl.constexpr, HAS_ALLOWED: tl.constexpr, HAS_ADDED: tl.constexpr,
    HAS_LOW: tl.constexpr, HAS_HIGH: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, N: tl.constexpr, BD: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """From integers to numbers; of the few keys in the best group, which one it is."""
    head = tl.program_id(1).to(tl.int64)
    block = tl.program_id(0)
    if block >= n_blocks + n_cells:
        if RECEIVED:
            keys = (block - n_blocks - n_cells) * BC + tl.arange(0, BC)
            received = tl.zeros((BC,), tl.float32)
            for i in range(n_parts):
                part = i * tl.num_programs(1) + head
                received += tl.load(parts_ptr + part * S + keys, mask=keys < S, other=0.0)
            tl.store(received_ptr + head * S + keys, received, mask=keys < S)
    elif block >= n_blocks:
        if CELLS:
            finish_cells(masses_ptr, cells_ptr, block - n_blocks, head, T, S, n_rows, n_columns, BC)
    else:
        b, h = head // H, head % H
        queries = block * BM + tl.arange(0, BM)
        there = queries < T
        row = head * T + queries
        gathered = (head * pitch + queries) * STEP
        if ENTROPY and GATHERED:
            bits = tl.load(sums_ptr + gathered, mask=there, other=0)
            spread = -bits.to(tl.float64) * (0.6931471805599453 / FIXED)
            tl.store(entropy_ptr + row, tl.maximum(spread, 0.0).to(tl.float32), mask=there)
        if PEAK:
            if GATHERED:
                best, which = unpacked(tl.load(packed_ptr + gathered, mask=there, other=0))
                seen = best > -5e3
            else:
                which = tl.load(group_ptr + row, mask=there, other=-1)
                best = -tl.load(rest_ptr + row, mask=there, other=0.0)
                seen = which >= 0
            which = tl.where(seen, which, 0)
            limit = real_keys(lengths_ptr, lengths_b, lengths_h, b, h, S, HAS_LENGTHS)
            at = best_key(
                q_ptr + b * q_b + h * q_h, q_t, q_d, k_ptr + b * k_b + (h // group) * k_h, k_s, k_d,
                allowed_ptr + b * allowed_b + h * allowed_h, allowed_t, allowed_s,
                added_ptr + b * added_b + h * added_h, added_t, added_s,
                queries, which, limit, scale2, low, high, T, D,
                HAS_ALLOWED, HAS_ADDED, HAS_LOW, HAS_HIGH, BM, BN, N, BD,
            )  # fmt: skip
            tl.store(peak_ptr + row, tl.where(seen, tl.minimum(tl.exp2(best), 1.0), 0.0), mask=there)
            tl.store(peak_at_ptr + row, tl.where(seen, at, -1).to(tl.int64), mask=there)


@triton.jit
def finish_cells(masses_ptr, cells_ptr, block, head, T, S, n_rows, n_columns, BC: tl.constexpr):
    """The mean weight of BC cells."""
    cell = block * BC + tl.arange(0, BC)
    inside = cell < n_rows * n_columns
    row, column = cell // n_columns, cell % n_columns
    height = start_of(row + 1, n_rows, T) - start_of(row, n_rows, T)
    width = start_of(column + 1, n_columns, S) - start_of(column, n_columns, S)
    at = head * n_rows * n_columns + cell
    mass = tl.load(masses_ptr + at, mask=inside, other=0).to(tl.float64) * (1 / FIXED)
    mass = tl.maximum(mass, 0.0)  # differences of sums may round to less
    tl.store(cells_ptr + at, mass.to(tl.float32) / (height.to(tl.float32) * width), mask=inside)


@triton.jit
def best_key(
    q_ptr, q_t, q_d, k_ptr, k_s, k_d,
    allowed_ptr, allowed_t, allowed_s, added_ptr, added_t, added_s,
    queries,
    which,  # each query's group
    limit, scale2, low, high, T, D,
    HAS_ALLOWED: tl.constexpr, HAS_ADDED: tl.constexpr, HAS_LOW: tl.constexpr, HAS_HIGH: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, N: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """Which of the keys in a group has the largest score."""
    there = queries < T
    width = tl.arange(0, BD)
    fits = (width < D)[None, :]
    q = tl.load(q_ptr + queries[:, None].to(tl.int64) * q_t + width[None, :] * q_d,
                mask=there[:, None] & fits, other=0.0).to(tl.float32)  # fmt: skip
    largest = tl.full((BM,), float("-inf"), tl.float32)
    at = tl.full((BM,), -1, tl.int32)
    for i in tl.static_range(N * BN // 32 if N > 0 else 4):
        key = key_of(which, i, BN, N)
        ok = there & (key < limit)
        if HAS_HIGH:
            ok = ok & (key - queries <= high)
        if HAS_LOW:
            ok = ok & (key - queries >= low)
        k = tl.load(k_ptr + key[:, None].to(tl.int64) * k_s + width[None, :] * k_d,
                    mask=ok[:, None] & fits, other=0.0).to(tl.float32)  # fmt: skip
        x = tl.sum(q * k, 1) * scale2
        place = queries.to(tl.int64)
        if HAS_ADDED:
            added = tl.load(added_ptr + place * added_t + key * added_s, mask=ok, other=0.0)
            x += added.to(tl.float32) * 1.4426950408889634
        if HAS_ALLOWED:
            ok = ok & (tl.load(allowed_ptr + place * allowed_t + key * allowed_s, mask=ok, other=0) != 0)
        x = tl.where(ok, x, float("-inf"))
        at = tl.where(x > largest, key, at)
        largest = tl.maximum(x, largest)
    return at
