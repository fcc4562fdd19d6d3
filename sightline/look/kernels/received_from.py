"""``received_from`` by a kernel: a program owns BN keys and walks over the queries of a window."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from sightline.look.inputs import ScoreInputs
from sightline.look.kernels.args import KeptArgs
from sightline.look.kernels.shapes import Tile
from sightline.look.kernels.tiles import load_lse, load_tile, queries_between, real_keys, tile_logs
from sightline.shapes import Float


def received_from(
    inputs: ScoreInputs,
    lse: Float[Tensor, "B H T"],
    queries: tuple[int, int],
    *,
    largest: bool = False,
    factors: Float[Tensor, "B T"] | None = None,
) -> Float[Tensor, "B H S"]:
    """Σ_t factors[t] · w[t, s] over a window of queries, or the largest weight.

    Args:
        inputs: What the weights are made of: a dot product of q and k.
        lse: Each query's log-sum-exp.
        queries: The window, ``(first, past_the_last)``.
        largest: The maximum over the queries instead of the sum.
        factors: One number per query and item; 1 by default.
    """
    args = KeptArgs(inputs, lse)
    received = args.empty(args.s)
    tile = tile_of(args.width, args.q.dtype)
    factors = None if factors is None else factors.float().contiguous()
    received_from_kernel[args.blocks(args.s, tile.keys)](
        *args.tensors, args.lse, *args.mask, args.lse if factors is None else factors, received,
        *args.sizes, *args.scale_and_band, *queries, MAX=largest, WEIGHTED=factors is not None, **args.has,
        PRECISION=args.precision, BM=tile.queries, BN=tile.keys, BD=args.width,
        STAGES=tile.stages, num_warps=tile.warps, num_stages=tile.stages, maxnreg=tile.registers,
    )  # fmt: skip
    return received


def tile_of(width: int, dtype: torch.dtype) -> Tile:
    """The tile that was fastest on an H200."""
    if dtype == torch.float32:
        return Tile(16, 32, 4, 2) if width > 128 else Tile(32, 32, 4, 2)
    return Tile(64, 64, 4, 2) if width > 128 else Tile(64, 128, 4, 2)


@triton.jit(do_not_specialize=["first", "last"])
def received_from_kernel(
    q_ptr, q_b, q_h, q_t, q_d,
    k_ptr, k_b, k_h, k_s, k_d,
    lse_ptr,  # (B H, T), natural
    lengths_ptr, lengths_b, lengths_h,
    allowed_ptr, allowed_b, allowed_h, allowed_t, allowed_s,
    added_ptr, added_b, added_h, added_t, added_s,
    factors_ptr,  # (B, T)
    received_ptr,  # (B H, S)
    H, group, T, S, D,
    scale2, low, high,
    first, last,  # the window of queries
    MAX: tl.constexpr, WEIGHTED: tl.constexpr,
    HAS_LENGTHS: tl.constexpr, HAS_ALLOWED: tl.constexpr, HAS_ADDED: tl.constexpr,
    HAS_LOW: tl.constexpr, HAS_HIGH: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Add up the weights of BN keys."""
    first_key = tl.program_id(0) * BN
    head = tl.program_id(1).to(tl.int64)
    b, h = head // H, head % H
    q_ptr += b * q_b + h * q_h
    lse_ptr += head * T
    factors_ptr += b * T
    allowed_ptr += b * allowed_b + h * allowed_h
    added_ptr += b * added_b + h * added_h
    keys = first_key + tl.arange(0, BN)
    width = tl.arange(0, BD)
    k = load_tile(k_ptr + b * k_b + (h // group) * k_h, keys, k_s, S, width, k_d, D)
    limit = real_keys(lengths_ptr, lengths_b, lengths_h, b, h, S, HAS_LENGTHS)
    start, inner, outer, end = queries_between(
        first, last, first_key, limit, low, high, HAS_LOW, HAS_HIGH, BM, BN
    )

    sums = tl.zeros((BM, BN), tl.float32)  # added up over the queries at the end
    for part in tl.static_range(3):  # tiles that a limit cuts, those it does not, those that one cuts again
        if part == 0:
            begin, stop = start, inner
        elif part == 1:
            begin, stop = inner, outer
        else:
            begin, stop = outer, end
        for first_query in tl.range(begin, stop, BM, num_stages=STAGES):
            queries = first_query + tl.arange(0, BM)
            there = queries < last
            q = load_tile(q_ptr, queries, q_t, last, width, q_d, D)
            lse = load_lse(lse_ptr, queries, there)
            x = tile_logs(
                q, k, lse, lse, queries, keys, scale2, limit, low, high,
                allowed_ptr, allowed_t, allowed_s, added_ptr, added_t, added_s, last, S,
                part != 1, False, HAS_ADDED, HAS_LOW, HAS_HIGH, HAS_ALLOWED, PRECISION,
            )  # fmt: skip
            w = tl.exp2(x)
            if WEIGHTED:
                w *= tl.load(factors_ptr + queries, mask=there, other=0.0)[:, None]
            sums = tl.maximum(sums, w) if MAX else sums + w
    received = tl.max(sums, 0) if MAX else tl.sum(sums, 0)
    tl.store(received_ptr + head * S + keys, received, mask=keys < S)
