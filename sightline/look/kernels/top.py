"""The k largest weights of each query: they lie in the k groups of keys with the largest maxima.

The first kernel walks over the keys and keeps, for each query, the k best groups of a few keys each. The
second computes the scores of those few keys again and puts the best k in order.
"""

import triton
import triton.language as tl

from sightline.look.kernels.tiles import (
    EMPTY_LSE,
    LOG2_CUTOFF,
    LOG2_ZERO,
    LOG2E,
    apply_limits,
    group_maxima,
    key_of,
    keys_for,
    real_keys,
    tile_scores,
)


@triton.jit
def groups_kernel(
    q_ptr, q_b, q_h, q_t, q_d,
    k_ptr, k_b, k_h, k_s, k_d,
    lengths_ptr, lengths_b, lengths_h,
    allowed_ptr, allowed_b, allowed_h, allowed_t, allowed_s,
    added_ptr, added_b, added_h, added_t, added_s,
    groups_ptr,  # (B H, T, K) int32, -1 where there are fewer
    H, group, T, S, D,
    scale2, low, high,
    HAS_LENGTHS: tl.constexpr, HAS_ALLOWED: tl.constexpr, HAS_ADDED: tl.constexpr,
    HAS_LOW: tl.constexpr, HAS_HIGH: tl.constexpr, PRECISION: tl.constexpr,
    K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Keep the K best groups of keys of BM queries."""
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

    slots = tl.arange(0, K)[None, :]
    kept = tl.full((BM, K), float("-inf"), tl.float32)
    which = tl.full((BM, K), -1, tl.int32)
    least = tl.full((BM,), float("-inf"), tl.float32)  # of those kept, and its slot
    slot = tl.zeros((BM,), tl.int32)
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
            maxima = group_maxima(x, BM, BN)
            best, at = tl.max(maxima, axis=1, return_indices=True)
            while tl.max((best > least).to(tl.int32)) > 0:
                change = (best > least)[:, None] & (slots == slot[:, None])
                kept = tl.where(change, best[:, None], kept)
                which = tl.where(change, ((first_key // BN) * 32 + at)[:, None], which)
                maxima = tl.where(tl.arange(0, 32)[None, :] == at[:, None], float("-inf"), maxima)
                best, at = tl.max(maxima, axis=1, return_indices=True)
                least, slot = tl.min(kept, axis=1, return_indices=True)

    place = (head * T + queries)[:, None] * K + slots
    tl.store(groups_ptr + place, which, mask=there[:, None])


@triton.jit
def choose_kernel(
    q_ptr, q_b, q_h, q_t, q_d,
    k_ptr, k_b, k_h, k_s, k_d,
    lse_ptr, rest_ptr,
    lengths_ptr, lengths_b, lengths_h,
    allowed_ptr, allowed_b, allowed_h, allowed_t, allowed_s,
    added_ptr, added_b, added_h, added_t, added_s,
    groups_ptr,
    top_ptr, top_at_ptr,  # (B H, T, n)
    H, group, T, S, D,
    scale2, low, high, n,
    HAS_LENGTHS: tl.constexpr, HAS_ALLOWED: tl.constexpr, HAS_ADDED: tl.constexpr,
    HAS_LOW: tl.constexpr, HAS_HIGH: tl.constexpr, TWO_PARTS: tl.constexpr,
    K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, N: tl.constexpr,  # as in key_of
):  # fmt: skip
    """Of the keys in the K best groups, the n best, largest first."""
    head = tl.program_id(1).to(tl.int64)
    b, h = head // H, head % H
    q_ptr += b * q_b + h * q_h
    k_ptr += b * k_b + (h // group) * k_h
    allowed_ptr += b * allowed_b + h * allowed_h
    added_ptr += b * added_b + h * added_h
    queries = tl.program_id(0) * BM + tl.arange(0, BM)
    there = queries < T
    row = head * T + queries
    limit = real_keys(lengths_ptr, lengths_b, lengths_h, b, h, S, HAS_LENGTHS)
    lse = tl.load(lse_ptr + row, mask=there, other=0.0)
    rest = tl.zeros((BM,), tl.float32)
    if TWO_PARTS:
        rest = tl.load(rest_ptr + row, mask=there, other=0.0)
    else:
        lse = tl.where(tl.abs(lse) < 1e30, lse * LOG2E, EMPTY_LSE)

    PER: tl.constexpr = BN // 32
    candidate = tl.arange(0, K * PER)
    which = tl.load(
        groups_ptr + row[:, None] * K + (candidate // PER)[None, :], mask=there[:, None], other=-1
    )
    key = key_of(tl.maximum(which, 0), (candidate % PER)[None, :], BN, N)
    ok = there[:, None] & (which >= 0) & (key < limit)
    if HAS_HIGH:
        ok = ok & (key - queries[:, None] <= high)
    if HAS_LOW:
        ok = ok & (key - queries[:, None] >= low)
    x = tl.zeros((BM, K * PER), tl.float32)
    for d in range(0, D, 16):
        width = d + tl.arange(0, 16)
        fits = width < D
        q = tl.load(q_ptr + queries[:, None].to(tl.int64) * q_t + width[None, :] * q_d,
                    mask=there[:, None] & fits[None, :], other=0.0).to(tl.float32)  # fmt: skip
        k = tl.load(k_ptr + key[:, :, None].to(tl.int64) * k_s + width[None, None, :] * k_d,
                    mask=ok[:, :, None] & fits[None, None, :], other=0.0).to(tl.float32)  # fmt: skip
        x += tl.sum(q[:, None, :] * k, axis=2)
    x = x * scale2
    place = queries[:, None].to(tl.int64)
    if HAS_ADDED:
        x += tl.load(added_ptr + place * added_t + key * added_s, mask=ok, other=0.0).to(tl.float32) * LOG2E
    if HAS_ALLOWED:
        ok = ok & (tl.load(allowed_ptr + place * allowed_t + key * allowed_s, mask=ok, other=0) != 0)
    x = tl.where(ok, (x - lse[:, None]) - rest[:, None], LOG2_ZERO)
    for i in range(n):
        best, at = tl.max(x, axis=1, return_indices=True)
        chosen = candidate[None, :] == at[:, None]
        found = tl.sum(tl.where(chosen, key, 0), axis=1)
        some = best > LOG2_CUTOFF
        tl.store(top_ptr + row * n + i, tl.where(some, tl.minimum(tl.exp2(best), 1.0), 0.0), mask=there)
        tl.store(top_at_ptr + row * n + i, tl.where(some, found, -1).to(tl.int64), mask=there)
        x = tl.where(chosen, LOG2_ZERO, x)
