"""Gradients of what was seen, with respect to q and k, in O(T + S) memory: tiles of weights once more.

With w the weight of a pair, and gradients for a query's lse, entropy and peak and a key's received,

    d score[t, s] = w (a[t] + g_received[s] - g_entropy[t] log w)
    a[t] = g_lse - g_entropy entropy - g_peak peak - Σ_s w g_received[s]

to which a query's peak adds g_peak peak at the one pair that has it.
"""

import triton
import triton.language as tl

from sightline.look.kernels.tiles import (
    EMPTY_LSE,
    LOG2_ZERO,
    LOG2E,
    apply_limits,
    keys_for,
    queries_for,
    real_keys,
    tile_logs,
    tile_scores,
)

LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def by_query_kernel(
    q_ptr, q_b, q_h, q_t, q_d,
    k_ptr, k_b, k_h, k_s, k_d,
    lse_ptr,
    lengths_ptr, lengths_b, lengths_h,
    allowed_ptr, allowed_b, allowed_h, allowed_t, allowed_s,
    added_ptr, added_b, added_h, added_t, added_s,
    a_ptr, g_entropy_ptr,  # (B H, T)
    g_received_ptr,  # (B H, S)
    out_ptr,  # (B H, T): Σ_s w g_received[s]; or (B H, T, D): the gradient of q
    H, group, T, S, D,
    scale2, low, high,
    GRADIENT: tl.constexpr,  # of q; else the sum
    RECEIVED: tl.constexpr, ENTROPY: tl.constexpr,
    HAS_LENGTHS: tl.constexpr, HAS_ALLOWED: tl.constexpr, HAS_ADDED: tl.constexpr,
    HAS_LOW: tl.constexpr, HAS_HIGH: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Walk over the keys of BM queries."""
    first_query = (tl.num_programs(0) - 1 - tl.program_id(0)) * BM
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
    row = head * T + queries
    lse = tl.load(lse_ptr + row, mask=there, other=float("inf"))
    lse = tl.where(tl.abs(lse) < 1e30, lse * LOG2E, EMPTY_LSE)
    a = tl.load(a_ptr + row, mask=there, other=0.0)
    g_entropy = tl.load(g_entropy_ptr + row, mask=there, other=0.0) if ENTROPY else a

    total = tl.zeros((BM,), tl.float32)
    gradient = tl.zeros((BM, BD), tl.float32)
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
            x = tile_logs(
                q, k, lse, lse, queries, keys, scale2, limit, low, high,
                allowed_ptr, allowed_t, allowed_s, added_ptr, added_t, added_s, T, S,
                part != 1, False, HAS_ADDED, HAS_LOW, HAS_HIGH, HAS_ALLOWED, PRECISION,
            )  # fmt: skip
            w = tl.exp2(x)
            if GRADIENT:
                slope = a[:, None]
                if RECEIVED:
                    g_received = tl.load(g_received_ptr + head * S + keys, mask=keys < S, other=0.0)
                    slope = slope + g_received[None, :]
                if ENTROPY:
                    slope = slope - g_entropy[:, None] * (x * LN2)
                gradient = tl.dot((w * slope).to(k.dtype), k, gradient, input_precision=PRECISION)
            else:
                g_received = tl.load(g_received_ptr + head * S + keys, mask=keys < S, other=0.0)
                total += tl.sum(w * g_received[None, :], 1)
    if GRADIENT:
        gradient = (gradient * (scale2 * LN2)).to(out_ptr.dtype.element_ty)
        tl.store(out_ptr + row[:, None] * D + width[None, :], gradient, mask=there[:, None] & fits)
    else:
        tl.store(out_ptr + row, total, mask=there)


@triton.jit
def by_key_kernel(
    q_ptr, q_b, q_h, q_t, q_d,
    k_ptr, k_b, k_h, k_s, k_d,
    lse_ptr,
    lengths_ptr, lengths_b, lengths_h,
    allowed_ptr, allowed_b, allowed_h, allowed_t, allowed_s,
    added_ptr, added_b, added_h, added_t, added_s,
    a_ptr, g_entropy_ptr,  # (B H, T)
    g_received_ptr,  # (B H, S)
    out_ptr,  # (B H, S, D): the gradient of k, for each head of q
    H, group, T, S, D,
    scale2, low, high,
    RECEIVED: tl.constexpr, ENTROPY: tl.constexpr,
    HAS_LENGTHS: tl.constexpr, HAS_ALLOWED: tl.constexpr, HAS_ADDED: tl.constexpr,
    HAS_LOW: tl.constexpr, HAS_HIGH: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Walk over the queries of BN keys."""
    first_key = tl.program_id(0) * BN
    head = tl.program_id(1).to(tl.int64)
    b, h = head // H, head % H
    q_ptr += b * q_b + h * q_h
    k_ptr += b * k_b + (h // group) * k_h
    allowed_ptr += b * allowed_b + h * allowed_h
    added_ptr += b * added_b + h * added_h
    keys = first_key + tl.arange(0, BN)
    width = tl.arange(0, BD)
    fits = width[None, :] < D
    k = tl.load(k_ptr + keys[:, None].to(tl.int64) * k_s + width[None, :] * k_d,
                mask=(keys < S)[:, None] & fits, other=0.0)  # fmt: skip
    limit = real_keys(lengths_ptr, lengths_b, lengths_h, b, h, S, HAS_LENGTHS)
    start, inner, outer, end = queries_for(first_key, limit, low, high, T, HAS_LOW, HAS_HIGH, BM, BN)
    g_received = tl.zeros((BN,), tl.float32)
    if RECEIVED:
        g_received = tl.load(g_received_ptr + head * S + keys, mask=keys < S, other=0.0)

    gradient = tl.zeros((BN, BD), tl.float32)
    for part in tl.static_range(3):
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
                row = head * T + queries
                q = tl.load(q_ptr + queries[:, None].to(tl.int64) * q_t + width[None, :] * q_d,
                            mask=there[:, None] & fits, other=0.0)  # fmt: skip
                lse = tl.load(lse_ptr + row, mask=there, other=float("inf"))
                lse = tl.where(tl.abs(lse) < 1e30, lse * LOG2E, EMPTY_LSE)
                # Keys by queries, so that nothing has to be transposed: distances change their sign.
                x = tile_scores(
                    k, q, keys, queries, scale2, added_ptr, added_s, added_t, S, T, HAS_ADDED, PRECISION
                )
                x = apply_limits(
                    x - lse[None, :], keys, queries, T, -high, -low, allowed_ptr, allowed_s, allowed_t,
                    limit, T, LOG2_ZERO, part != 1, HAS_HIGH, HAS_LOW, HAS_ALLOWED,
                )  # fmt: skip
                slope = tl.load(a_ptr + row, mask=there, other=0.0)[None, :] + g_received[:, None]
                if ENTROPY:
                    g_entropy = tl.load(g_entropy_ptr + row, mask=there, other=0.0)
                    slope = slope - g_entropy[None, :] * (x * LN2)
                d_scores = (tl.exp2(x) * slope).to(q.dtype)
                gradient = tl.dot(d_scores, q, gradient, input_precision=PRECISION)
    at = (head * S + keys)[:, None] * D + width[None, :]
    gradient = (gradient * (scale2 * LN2)).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + at, gradient, mask=(keys < S)[:, None] & fits)
