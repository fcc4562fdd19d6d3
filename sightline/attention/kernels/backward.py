"""The gradients, by tiles computed again: a call owns one side, queries or keys, and walks over the other.

With g the gradient of a score and σ as in pairs.py, a query and a key of hidden unit r get

    4 w[r] Σ g σ (1 - σ)        and w[r] itself        Σ g (1 - 2 σ)

A thread owns one query (or key) and has BI keys (or queries) in its registers, so the sums over those need no
other thread. They are added to the program's own slab of memory, unit by unit; nobody else writes there, no
order is left to chance, and the same inputs give the same gradients.
"""

import triton
import triton.language as tl

from sightline.attention.kernels.pairs import inverse, limited, summed_sigmoids, two_grown


@triton.jit(do_not_specialize=["one"])
def backward_kernel(
    inner_ptr, owner_ptr, w_ptr,  # (B H, R, padded length) twice, (R)
    far_ptr,  # (B H)
    inner_rows_ptr, inner_b, inner_h, inner_t, inner_d,  # values by key, gradients of the output by query
    owner_rows_ptr, owner_b, owner_h, owner_t, owner_d,
    lse_ptr, delta_ptr,  # (B H, T)
    lengths_ptr, lengths_b, lengths_h,
    allowed_ptr, allowed_b, allowed_h, allowed_t, allowed_s,
    added_ptr, added_b, added_h, added_t, added_s,
    slab_ptr,  # (parts, B H, R, padded owners), zeros
    w_slab_ptr,  # likewise; BY_QUERY
    values_slab_ptr,  # (parts, B H, S, DV), zeros; not BY_QUERY
    tile_ptr,  # (parts, B H, blocks, BI, BO)
    H, T, S, R, inner_length, owner_length, DV,
    scale, scale2, low, high,
    one,  # 1, but the compiler must not know
    BY_QUERY: tl.constexpr,
    HAS_LENGTHS: tl.constexpr, HAS_ALLOWED: tl.constexpr, HAS_ADDED: tl.constexpr,
    HAS_LOW: tl.constexpr, HAS_HIGH: tl.constexpr,
    PRECISION: tl.constexpr, PTX: tl.constexpr,
    BI: tl.constexpr, BO: tl.constexpr, BD: tl.constexpr, PAIRS: tl.constexpr,
):  # fmt: skip
    """Walk over a part of the keys of BO queries, or of the queries of BO keys."""
    block, part = tl.program_id(0), tl.program_id(2)
    head = tl.program_id(1).to(tl.int64)
    place = part * tl.num_programs(1) + head  # among slabs
    b, h = head // H, head % H
    first = block * BO
    owners = first + tl.arange(0, BO)
    inner_ptr += head * R * inner_length
    owner_ptr += head * R * owner_length + first
    inner_rows_ptr += b * inner_b + h * inner_h
    owner_rows_ptr += b * owner_b + h * owner_h + (head * 0 + first) * owner_t
    lse_ptr += head * T
    delta_ptr += head * T
    allowed_ptr += b * allowed_b + h * allowed_h
    added_ptr += b * added_b + h * added_h
    slab_ptr += place * R * owner_length + first
    w_slab_ptr += place * R * owner_length + first
    values_slab_ptr += (place * S + first) * DV
    far = tl.load(far_ptr + head)
    limit = S
    if HAS_LENGTHS:
        limit = tl.minimum(S, tl.load(lengths_ptr + b * lengths_b + h * lengths_h)).to(tl.int32)

    if BY_QUERY:
        n_owners, n_inner = T, S
        start, end = 0, limit
        if HAS_LOW:
            start = tl.maximum(0, first + low)
        if HAS_HIGH:
            end = tl.minimum(limit, tl.minimum(T, first + BO) + high)
        queries = owners[None, :]
        lse = tl.load(lse_ptr + owners, mask=owners < T, other=0.0)[None, :]
        delta = tl.load(delta_ptr + owners, mask=owners < T, other=0.0)[None, :]
    else:
        n_owners, n_inner = S, T
        start, end = 0, T
        if HAS_HIGH:
            start = tl.maximum(0, first - high)
        if HAS_LOW:
            end = tl.minimum(T, first + BO - low)
        if first >= limit:
            end = 0
        keys = owners[None, :]
    start = (start // BI) * BI
    span = tl.cdiv(tl.maximum(end - start, 0), tl.num_programs(2) * BI) * BI
    begin = start + part * span
    end = tl.minimum(end, begin + span)

    width = tl.arange(0, BD)
    tile_ptr += (place * tl.num_programs(0) + block) * BI * BO
    tile_at = tl.arange(0, BI)[:, None] * BO + tl.arange(0, BO)[None, :]
    for first_inner in range(begin, end, BI):
        inner = first_inner + tl.arange(0, BI)
        if BY_QUERY:
            keys = inner[:, None]
        else:
            queries = inner[:, None]
            lse = tl.load(lse_ptr + inner, mask=inner < T, other=0.0)[:, None]
            delta = tl.load(delta_ptr + inner, mask=inner < T, other=0.0)[:, None]
        at = inner_ptr + first_inner
        rows_at = inner_rows_ptr + (head * 0 + first_inner) * inner_t  # in 64 bits
        if far == 0:
            x = summed_sigmoids(
                at, owner_ptr, w_ptr, R, inner_length, owner_length, False, PTX, BI, BO, PAIRS
            )
        else:
            x = summed_sigmoids(at, owner_ptr, w_ptr, R, inner_length, owner_length, True, PTX, BI, BO, 1)
        x = limited(
            x * (-2 * scale2), queries, keys, limit, low, high,
            allowed_ptr, allowed_t, allowed_s, added_ptr, added_t, added_s, T,
            HAS_LOW, HAS_HIGH, HAS_ALLOWED, HAS_ADDED,
        )  # fmt: skip
        p = tl.exp2(x - lse)
        if not BY_QUERY:
            for d in range(0, DV, BD):
                fits = (d + width < DV)[None, :]
                inner_rows = tl.load(
                    rows_at + tl.arange(0, BI)[:, None] * inner_t + (d + width)[None, :] * inner_d,
                    mask=(inner < n_inner)[:, None] & fits, other=0.0,
                )  # fmt: skip
                values_at = values_slab_ptr + tl.arange(0, BO)[:, None] * DV + (d + width)[None, :]
                theirs = tl.load(values_at, mask=(owners < S)[:, None] & fits, other=0.0)
                theirs = tl.dot(
                    tl.trans(p.to(inner_rows.dtype)), inner_rows, theirs, input_precision=PRECISION
                )
                tl.store(values_at, theirs, mask=(owners < S)[:, None] & fits)
        g = tl.zeros((BI, BO), tl.float32)
        for d in range(0, DV, BD):
            fits = (d + width < DV)[None, :]
            inner_rows = tl.load(
                rows_at + tl.arange(0, BI)[:, None] * inner_t + (d + width)[None, :] * inner_d,
                mask=(inner < n_inner)[:, None] & fits, other=0.0,
            )  # fmt: skip
            owner_rows = tl.load(
                owner_rows_ptr + tl.arange(0, BO)[:, None] * owner_t + (d + width)[None, :] * owner_d,
                mask=(owners < n_owners)[:, None] & fits, other=0.0,
            )  # fmt: skip
            g = tl.dot(inner_rows, tl.trans(owner_rows), g, input_precision=PRECISION)
        # Through memory, from the tensor cores' order of threads to that of the loops below, read one by one.
        tl.store(tile_ptr + tile_at, g)
        tl.debug_barrier()
        g = tl.trans(tl.load(tile_ptr + one * tl.arange(0, BO)[:, None] + BO * tl.arange(0, BI)[None, :]))
        g = p * (g - delta) * scale
        if far == 0:
            add_gradients(at, owner_ptr, slab_ptr, w_slab_ptr, g, R, inner_length, owner_length,
                          BY_QUERY, False, PTX, BI, BO, PAIRS)  # fmt: skip
        else:
            add_gradients(at, owner_ptr, slab_ptr, w_slab_ptr, g, R, inner_length, owner_length,
                          BY_QUERY, True, PTX, BI, BO, 1)  # fmt: skip
        tl.debug_barrier()  # the next tile may read what other threads have written


@triton.jit
def add_gradients(
    inner_ptr, owner_ptr, slab_ptr, w_slab_ptr,
    g,  # (BI, BO): the gradient of the scores
    R, inner_length, owner_length,
    WEIGH: tl.constexpr,  # whether w gets its gradient here
    FAR: tl.constexpr, PTX: tl.constexpr, BI: tl.constexpr, BO: tl.constexpr, PAIRS: tl.constexpr,
):  # fmt: skip
    """Add a tile's Σ g σ (1 - σ) for each owner and hidden unit, and its Σ g (σ - 1/2)."""
    inner_at = inner_ptr + tl.arange(0, BI)
    owner_at = owner_ptr + tl.arange(0, BO)
    slab_at = slab_ptr + tl.arange(0, BO)
    w_slab_at = w_slab_ptr + tl.arange(0, BO)
    half = tl.sum(g, axis=0) * 0.5  # a query's adds up to 0, but in half precision only nearly
    for r in range(0, R, 2 * PAIRS):
        for j in tl.static_range(PAIRS):
            x0, x1 = two_grown(inner_at, owner_at, r + 2 * j, inner_length, owner_length, FAR)
            both = inverse(x0 * x1, PTX)
            for k in tl.static_range(2):
                unit = r + 2 * j + k
                y = both * x1 if k == 0 else both * x0
                at = slab_at + unit * owner_length
                tl.store(at, tl.load(at) + tl.sum(g * (y - y * y), axis=0))
                if WEIGH:
                    at = w_slab_at + unit * owner_length
                    tl.store(at, tl.load(at) + (tl.sum(g * y, axis=0) - half))
