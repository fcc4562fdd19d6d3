"""``offsets`` by kernels: tiles at the same distance are added up as they are, diagonals only at the end.

A tile of BM queries from t and BN keys from ``first + t - j BN`` has the same distances as any other with
that j, wherever it stands. So a program owns j, walks along the band and adds tiles element by element; a
second kernel then adds each tile's diagonals. Nothing is added in an order that could change.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from sightline.look.inputs import ScoreInputs
from sightline.look.kernels.args import KeptArgs
from sightline.look.kernels.shapes import Tile, blocks_of
from sightline.look.kernels.tiles import load_lse, load_tile, real_keys, tile_logs
from sightline.shapes import Float

_PROGRAMS = 1024  # enough to fill a GPU: with fewer distances and heads a band is walked in pieces
_BLOCK = 64  # distances of a program that adds up diagonals


def offsets(inputs: ScoreInputs, lse: Float[Tensor, "B H T"], n: int, first: int) -> Float[Tensor, "B H n"]:
    """The weight at distances 0 ... n-1; query t stands at ``first + t`` among the keys."""
    args = KeptArgs(inputs, lse)
    tile = tile_of(args.width, args.q.dtype)
    least = -((tile.queries - 1) // tile.keys)  # the first j whose tiles reach distance 0
    n_bands = (n - 2) // tile.keys + 2 - least
    heads = args.b * args.h
    pieces = max(1, min(_PROGRAMS // (n_bands * heads), blocks_of(args.t, 16 * tile.queries)))
    parts = args.empty(pieces, n_bands, tile.queries, tile.keys)
    band_kernel[(n_bands, heads, pieces)](
        *args.tensors, args.lse, *args.mask, parts, *args.sizes, *args.scale_and_band, first, least,
        **args.has, PRECISION=args.precision, BM=tile.queries, BN=tile.keys, BD=args.width,
        STAGES=tile.stages, num_warps=tile.warps, num_stages=tile.stages, maxnreg=tile.registers,
    )  # fmt: skip
    sums = args.empty(n)
    diagonals_kernel[(blocks_of(n, _BLOCK), heads)](
        parts, sums, n, least, n_bands, pieces, BM=tile.queries, BN=tile.keys, BLOCK=_BLOCK, num_warps=4
    )
    return sums


def tile_of(width: int, dtype: torch.dtype) -> Tile:
    """The tile that was fastest on an H200."""
    if dtype == torch.float32:
        return Tile(16, 16, 4, 2) if width > 128 else Tile(32, 32, 4, 2)
    return Tile(64, 64, 4, 2) if width > 128 else Tile(128, 64, 4, 2)


@triton.jit(do_not_specialize=["first", "least"])
def band_kernel(
    q_ptr, q_b, q_h, q_t, q_d,
    k_ptr, k_b, k_h, k_s, k_d,
    lse_ptr,  # (B H, T), natural
    lengths_ptr, lengths_b, lengths_h,
    allowed_ptr, allowed_b, allowed_h, allowed_t, allowed_s,
    added_ptr, added_b, added_h, added_t, added_s,
    parts_ptr,  # (B H, pieces, bands, BM, BN)
    H, group, T, S, D,
    scale2, low, high,
    first,  # where the first query stands among the keys
    least,  # the first j
    HAS_LENGTHS: tl.constexpr, HAS_ALLOWED: tl.constexpr, HAS_ADDED: tl.constexpr,
    HAS_LOW: tl.constexpr, HAS_HIGH: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Add up the tiles at one distance, or one piece of them."""
    ahead = first - (tl.program_id(0) + least) * BN  # of a tile's first key before its first query
    head = tl.program_id(1).to(tl.int64)
    b, h = head // H, head % H
    q_ptr += b * q_b + h * q_h
    k_ptr += b * k_b + (h // group) * k_h
    lse_ptr += head * T
    allowed_ptr += b * allowed_b + h * allowed_h
    added_ptr += b * added_b + h * added_h
    width = tl.arange(0, BD)
    limit = real_keys(lengths_ptr, lengths_b, lengths_h, b, h, S, HAS_LENGTHS)
    start = tl.cdiv(tl.maximum(1 - ahead - BN, 0), BM) * BM
    end = tl.minimum(T, limit - ahead)
    inner = tl.cdiv(tl.maximum(-ahead, 0), BM) * BM  # [inner, outer) have all their queries and keys
    outer = (tl.maximum(tl.minimum(T, limit - ahead - BN + BM), 0) // BM) * BM
    if HAS_HIGH:
        end = tl.where(ahead - BM + 1 > high, start, end)
        outer = tl.where(ahead + BN - 1 > high, inner, outer)
    if HAS_LOW:
        end = tl.where(ahead + BN - 1 < low, start, end)
        outer = tl.where(ahead - BM + 1 < low, inner, outer)
    if outer <= inner:
        inner, outer = end, end
    each = tl.cdiv(tl.cdiv(tl.maximum(end - start, 0), BM), tl.num_programs(2)) * BM
    piece = start + tl.program_id(2) * each
    past = tl.minimum(end, piece + each)

    sums = tl.zeros((BM, BN), tl.float32)
    for part in tl.static_range(3):  # tiles at an edge, those inside, those at an edge again
        if part == 0:
            begin, stop = piece, tl.minimum(past, inner)
        elif part == 1:
            begin, stop = tl.maximum(piece, inner), tl.minimum(past, outer)
        else:
            begin, stop = tl.maximum(piece, outer), past
        for first_query in tl.range(begin, stop, BM, num_stages=STAGES):
            queries = first_query + tl.arange(0, BM)
            keys = first_query + ahead + tl.arange(0, BN)
            q = load_tile(q_ptr, queries, q_t, T, width, q_d, D)
            k = load_tile(k_ptr, keys, k_s, S, width, k_d, D)
            lse = load_lse(lse_ptr, queries, queries < T)
            # Keys before the first are none: they count as beyond the last.
            places = tl.where(keys < 0, S, keys) if part != 1 else keys
            x = tile_logs(
                q, k, lse, lse, queries, places, scale2, limit, low, high,
                allowed_ptr, allowed_t, allowed_s, added_ptr, added_t, added_s, T, S,
                part != 1, False, HAS_ADDED, HAS_LOW, HAS_HIGH, HAS_ALLOWED, PRECISION,
            )  # fmt: skip
            sums += tl.exp2(x)
    block = (head * tl.num_programs(2) + tl.program_id(2)) * tl.num_programs(0) + tl.program_id(0)
    place = tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :]
    tl.store(parts_ptr + block * (BM * BN) + place, sums)


@triton.jit
def diagonals_kernel(
    parts_ptr,  # (B H, pieces, bands, BM, BN)
    sums_ptr,  # (B H, n)
    n, least, n_bands, pieces,
    BM: tl.constexpr, BN: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Add up the diagonals of the tiles that reach BLOCK distances."""
    head = tl.program_id(1).to(tl.int64)
    first = tl.program_id(0) * BLOCK
    distances = first + tl.arange(0, BLOCK)
    rows = tl.arange(0, BM)
    band = tl.maximum(first - BM + 1 - least * BN, 0) // BN
    total = tl.zeros((BM, BLOCK), tl.float32)
    for piece in range(pieces):
        for _ in tl.static_range((BM + BN + BLOCK) // BN + 1):
            offset = (band + least) * BN
            columns = rows[:, None] - distances[None, :] + offset
            ok = (columns >= 0) & (columns < tl.where(band < n_bands, BN, 0))
            block = ((head * pieces + piece) * n_bands + band) * (BM * BN)
            total += tl.load(parts_ptr + block + rows[:, None] * BN + columns, mask=ok, other=0.0)
            band += 1
        band -= (BM + BN + BLOCK) // BN + 1
    tl.store(sums_ptr + head * n + distances, tl.sum(total, 0), mask=distances < n)
