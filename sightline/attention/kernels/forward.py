"""Attention by additive scores: a program owns BM queries and walks over their keys, softmax on the way.

A thread owns a key of the tile and has BM queries in its registers. The mixed values are kept in memory, in
float32, and taken up a chunk of their width at a time: any width fits. That is done once a tile, whose scores
take much longer.
"""

import triton
import triton.language as tl

from sightline.attention.kernels.pairs import limited, summed_sigmoids

NOBODY = tl.constexpr(3e38)  # lse of a query that looks at nothing: every weight is then 0


@triton.jit
def forward_kernel(
    a_ptr, b_ptr, w_ptr,  # (B H, R, padded T), (B H, R, padded S), (R)
    far_ptr,  # (B H)
    values_ptr, values_b, values_h, values_s, values_d,
    lengths_ptr, lengths_b, lengths_h,
    allowed_ptr, allowed_b, allowed_h, allowed_t, allowed_s,
    added_ptr, added_b, added_h, added_t, added_s,
    mixed_ptr,  # (B H, T, DV), float32, zeros
    output_ptr,  # (B H, T, DV)
    lse_ptr,  # (B H, T), in units of log2
    H, T, S, R, padded_T, padded_S, DV,
    scale2, low, high,
    HAS_LENGTHS: tl.constexpr, HAS_ALLOWED: tl.constexpr, HAS_ADDED: tl.constexpr,
    HAS_LOW: tl.constexpr, HAS_HIGH: tl.constexpr,
    PRECISION: tl.constexpr, PTX: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, PAIRS: tl.constexpr,
):  # fmt: skip
    """Walk over the keys of BM queries."""
    first_query = (tl.num_programs(0) - 1 - tl.program_id(0)) * BM  # with causal masks the longest first
    head = tl.program_id(1).to(tl.int64)
    b, h = head // H, head % H
    a_ptr += head * R * padded_T + first_query
    b_ptr += head * R * padded_S
    values_ptr += b * values_b + h * values_h
    allowed_ptr += b * allowed_b + h * allowed_h
    added_ptr += b * added_b + h * added_h
    mixed_ptr += (head * T + first_query) * DV
    output_ptr += (head * T + first_query) * DV
    far = tl.load(far_ptr + head)

    queries = first_query + tl.arange(0, BM)
    width = tl.arange(0, BD)
    there = queries < T
    limit = S
    if HAS_LENGTHS:
        limit = tl.minimum(S, tl.load(lengths_ptr + b * lengths_b + h * lengths_h)).to(tl.int32)
    start, end = 0, limit
    if HAS_LOW:
        start = tl.maximum(0, first_query + low)
    if HAS_HIGH:
        end = tl.minimum(limit, tl.minimum(T, first_query + BM) + high)
    start = (start // BN) * BN

    row_at = tl.arange(0, BM)[:, None] * DV + width[None, :]
    m = tl.full((BM,), float("-inf"), tl.float32)
    l = tl.zeros((BM,), tl.float32)
    for first_key in range(start, end, BN):
        keys = first_key + tl.arange(0, BN)
        values_at = values_ptr + (head * 0 + first_key) * values_s  # in 64 bits
        if far == 0:
            x = summed_sigmoids(
                a_ptr, b_ptr + first_key, w_ptr, R, padded_T, padded_S, False, PTX, BM, BN, PAIRS
            )
        else:
            x = summed_sigmoids(a_ptr, b_ptr + first_key, w_ptr, R, padded_T, padded_S, True, PTX, BM, BN, 1)
        x = limited(
            x * (-2 * scale2), queries[:, None], keys[None, :], limit, low, high,
            allowed_ptr, allowed_t, allowed_s, added_ptr, added_t, added_s, T,
            HAS_LOW, HAS_HIGH, HAS_ALLOWED, HAS_ADDED,
        )  # fmt: skip
        larger = tl.maximum(m, tl.max(x, axis=1))
        shift = tl.where(larger == float("-inf"), 0.0, larger)
        p = tl.exp2(x - shift[:, None])
        old = tl.exp2(m - shift)
        l = l * old + tl.sum(p, axis=1)
        m = larger
        p = p.to(values_ptr.dtype.element_ty)
        for d in range(0, DV, BD):
            fits = there[:, None] & (d + width < DV)[None, :]
            values = tl.load(
                values_at + tl.arange(0, BN)[:, None] * values_s + (d + width)[None, :] * values_d,
                mask=(keys < S)[:, None] & (d + width < DV)[None, :], other=0.0,
            )  # fmt: skip
            mixed = tl.load(mixed_ptr + row_at + d, mask=fits, other=0.0) * old[:, None]
            mixed = tl.dot(p, values, mixed, input_precision=PRECISION)
            tl.store(mixed_ptr + row_at + d, mixed, mask=fits)
        tl.debug_barrier()  # the next tile may read what other threads have written

    empty = m == float("-inf")
    l = tl.where(empty, 1.0, l)
    tl.store(lse_ptr + head * T + queries, tl.where(empty, NOBODY, m + tl.log2(l)), mask=there)
    for d in range(0, DV, BD):
        fits = there[:, None] & (d + width < DV)[None, :]
        mixed = tl.load(mixed_ptr + row_at + d, mask=fits, other=0.0) / l[:, None]
        tl.store(output_ptr + row_at + d, mixed.to(output_ptr.dtype.element_ty), mask=fits)
