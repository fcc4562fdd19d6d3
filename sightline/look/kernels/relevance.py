"""``relevance`` by a kernel: tiles of weights and of their gradients side by side.

    relevance[t, s] = max(0, w[t, s] · dw[t, s])    dw = dO vᵀ

A program owns BN keys and walks over the queries. What belongs to a query is gathered from many programs, so
it is added as an integer: in units of 2^-40 of the most that it can be, |dO[t]| · max |v[s]|.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from sightline.look.inputs import ScoreInputs
from sightline.look.kernels.args import KeptArgs, tiles_of_rows
from sightline.look.kernels.shapes import Tile, blocks_of, power_of_two
from sightline.look.kernels.tiles import load_lse, load_tile, queries_between, real_keys, tile_logs
from sightline.shapes import Float

FIXED = tl.constexpr(float(1 << 40))
TINY = tl.constexpr(1.1754943508222875e-38)  # no unit is zero


class RelevanceSums(NamedTuple):
    """Sums over queries, (B, H, S), and over keys, (B, H, T)."""

    keys: Tensor
    queries: Tensor | None


def relevance(
    inputs: ScoreInputs,
    lse: Float[Tensor, "B H T"],
    v: Float[Tensor, "B Hkv S Dv"],
    gradient: Float[Tensor, "B H T Dv"],
    *,
    factors: Float[Tensor, "B T"] | None = None,
) -> RelevanceSums:
    """Σ_t factors[t] · relevance[t, s]; without factors also the sums over the keys.

    Args:
        inputs: What the weights are made of: a dot product of q and k.
        lse: Each query's log-sum-exp.
        v: The values.
        gradient: That of the output.
        factors: One number per query and item.
    """
    args = KeptArgs(inputs, lse)
    keys = args.empty(args.s)
    if factors is None:
        others, gathered = _units(args, v, gradient), args.rows_like(torch.int64).zero_()
    else:
        others, gathered = factors.float().contiguous(), args.lse
    _launch(args, v, gradient, others, keys, gathered, by_query=factors is None)
    return RelevanceSums(keys, (gathered.double() / others).float() if factors is None else None)


def _launch(
    args: KeptArgs,
    v: Tensor,
    gradient: Tensor,
    others: Tensor,
    keys: Tensor,
    gathered: Tensor,
    *,
    by_query: bool,
) -> None:
    """Run the kernel."""
    width = max(16, power_of_two(v.size(3)))
    tile = tile_of(max(width, args.width), args.q.dtype)
    by_tiles = (
        tiles_of_rows(args.q, tile.queries, args.width),
        tiles_of_rows(gradient, tile.queries, width),
    )
    engine = all(x is not None for x in by_tiles)
    relevance_kernel[args.blocks(args.s, tile.keys)](
        *(by_tiles if engine else (args.q, gradient)),
        *args.tensors, v, *v.stride(), gradient, *gradient.stride(), args.lse, *args.mask,
        others, keys, gathered, *args.sizes, v.size(3), *args.scale_and_band,
        BY_QUERY=by_query, **args.has, PRECISION=args.precision,
        BM=tile.queries, BN=tile.keys, BD=args.width, BV=width,
        STAGES=tile.stages, BY_TILES=engine,
        num_warps=tile.warps, num_stages=tile.stages, maxnreg=tile.registers,
    )  # fmt: skip


def _units(args: KeptArgs, v: Tensor, gradient: Tensor) -> Float[Tensor, "B H T"]:
    """How many units make one: 2^40 are what a query's sum can't exceed, since its weights sum to one."""
    longest = torch.zeros(args.b, v.size(1), dtype=torch.float32, device=v.device)
    units = args.rows_like(torch.float64)
    width = power_of_two(v.size(3))
    rows = max(16, min(64, 1 << 13 >> (width.bit_length() - 1)))
    longest_kernel[args.b * v.size(1), blocks_of(args.s, rows)](
        v, *v.stride(), longest, v.size(1), args.s, v.size(3), ROWS=rows, BV=width, num_warps=4
    )
    units_kernel[args.b * args.h, blocks_of(args.t, rows)](
        gradient, *gradient.stride(), longest, units, *args.sizes[:3], v.size(3), ROWS=rows, BV=width,
        num_warps=4,
    )  # fmt: skip
    return units


def tile_of(width: int, dtype: torch.dtype) -> Tile:
    """The tile that was fastest on an H200."""
    if dtype == torch.float32:
        return Tile(16, 16, 4, 1) if width > 128 else Tile(32, 32, 4, 1)
    return Tile(64, 64, 4, 1) if width > 128 else Tile(128, 128, 8, 2)


@triton.jit
def longest_kernel(
    v_ptr, v_b, v_h, v_s, v_d, longest_ptr, H, S, D, ROWS: tl.constexpr, BV: tl.constexpr
):  # fmt: skip
    """The length of each head's longest value."""
    head = tl.program_id(0).to(tl.int64)
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    v = load_tile(v_ptr + (head // H) * v_b + (head % H) * v_h, rows, v_s, S, tl.arange(0, BV), v_d, D)
    v = v.to(tl.float32)
    longest = tl.max(tl.sqrt(tl.sum(v * v, 1)), 0)
    tl.atomic_max(longest_ptr + head, longest, sem="relaxed")


@triton.jit
def units_kernel(
    g_ptr, g_b, g_h, g_t, g_d, longest_ptr, units_ptr, H, group, T, D,
    ROWS: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    """Units of each query's sum."""
    head = tl.program_id(0).to(tl.int64)
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    g = load_tile(g_ptr + (head // H) * g_b + (head % H) * g_h, rows, g_t, T, tl.arange(0, BV), g_d, D)
    g = g.to(tl.float32)
    most = tl.sqrt(tl.sum(g * g, 1)) * tl.load(longest_ptr + head // group)
    units = FIXED / tl.maximum(most, TINY).to(tl.float64)
    tl.store(units_ptr + head * T + rows, units, mask=rows < T)


@triton.jit
def relevance_kernel(
    q_tiles, g_tiles,  # by descriptor, for the copy engine, where BY_TILES
    q_ptr, q_b, q_h, q_t, q_d,
    k_ptr, k_b, k_h, k_s, k_d,
    v_ptr, v_b, v_h, v_s, v_d,
    g_ptr, g_b, g_h, g_t, g_d,  # the gradient of the output
    lse_ptr,  # (B H, T), natural
    lengths_ptr, lengths_b, lengths_h,
    allowed_ptr, allowed_b, allowed_h, allowed_t, allowed_s,
    added_ptr, added_b, added_h, added_t, added_s,
    others_ptr,  # where BY_QUERY (B H, T) float64: how many units make one; else (B, T): the factors
    keys_ptr,  # (B H, S)
    queries_ptr,  # (B H, T) int64
    H, group, T, S, D, DV,
    scale2, low, high,
    BY_QUERY: tl.constexpr,
    HAS_LENGTHS: tl.constexpr, HAS_ALLOWED: tl.constexpr, HAS_ADDED: tl.constexpr,
    HAS_LOW: tl.constexpr, HAS_HIGH: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, BV: tl.constexpr, STAGES: tl.constexpr,
    BY_TILES: tl.constexpr,
):  # fmt: skip
    """Add up the relevance of BN keys."""
    first_key = tl.program_id(0) * BN
    head = tl.program_id(1).to(tl.int64)
    b, h = head // H, head % H
    q_ptr += b * q_b + h * q_h
    g_ptr += b * g_b + h * g_h
    lse_ptr += head * T
    queries_ptr += head * T
    others_ptr += (head if BY_QUERY else b) * T
    allowed_ptr += b * allowed_b + h * allowed_h
    added_ptr += b * added_b + h * added_h
    keys = first_key + tl.arange(0, BN)
    width = tl.arange(0, BD)
    v_width = tl.arange(0, BV)
    k = load_tile(k_ptr + b * k_b + (h // group) * k_h, keys, k_s, S, width, k_d, D)
    v = load_tile(v_ptr + b * v_b + (h // group) * v_h, keys, v_s, S, v_width, v_d, DV)
    limit = real_keys(lengths_ptr, lengths_b, lengths_h, b, h, S, HAS_LENGTHS)
    start, inner, outer, end = queries_between(0, T, first_key, limit, low, high, HAS_LOW, HAS_HIGH, BM, BN)

    sums = tl.zeros((BM // 16, 8, BN), tl.float32)  # of the two queries of a thread
    for part in tl.static_range(3):  # tiles that a limit cuts, those it does not, those that one cuts again
        if part == 0:
            begin, stop = start, inner
        elif part == 1:
            begin, stop = inner, outer
        else:
            begin, stop = outer, end
        for first_query in tl.range(begin, stop, BM, num_stages=STAGES):
            queries = first_query + tl.arange(0, BM)
            there = queries < T
            if BY_TILES:
                q = q_tiles.load([b.to(tl.int32), h.to(tl.int32), first_query, 0]).reshape(BM, BD)
                g = g_tiles.load([b.to(tl.int32), h.to(tl.int32), first_query, 0]).reshape(BM, BV)
            else:
                q = load_tile(q_ptr, queries, q_t, T, width, q_d, D)
                g = load_tile(g_ptr, queries, g_t, T, v_width, g_d, DV)
            lse = load_lse(lse_ptr, queries, there)
            others = tl.load(others_ptr + queries, mask=there, other=0.0)
            x = tile_logs(
                q, k, lse, lse, queries, keys, scale2, limit, low, high,
                allowed_ptr, allowed_t, allowed_s, added_ptr, added_t, added_s, T, S,
                part != 1, False, HAS_ADDED, HAS_LOW, HAS_HIGH, HAS_ALLOWED, PRECISION,
            )  # fmt: skip
            slopes = tl.dot(g, tl.trans(v), input_precision=PRECISION)
            relevant = tl.exp2(x) * tl.maximum(slopes, 0.0)
            if BY_QUERY:
                fixed = (tl.sum(relevant, 1).to(tl.float64) * others).to(tl.int64)
                tl.atomic_add(queries_ptr + queries, fixed, mask=there, sem="relaxed")
            else:
                relevant *= others[:, None]
            sums += tl.sum(tl.reshape(relevant, (BM // 16, 2, 8, BN)), axis=1)
    tl.store(keys_ptr + head * S + keys, tl.sum(tl.sum(sums, 0), 0), mask=keys < S)
