"""``mass`` by a kernel: keys in the order of their groups, so that one product is enough.

A program owns BM queries and walks over the tiles of one set of groups (see ``mass_plan``). Pairs of
neighbouring keys belong to one group; their weights are added up in registers, in float32.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from sightline.look.inputs import ScoreInputs
from sightline.look.kernels.args import KeptArgs, tiles_of_rows
from sightline.look.kernels.shapes import Tile, blocks_of, power_of_two
from sightline.look.kernels.tiles import load_lse, load_tile, real_keys, tile_logs
from sightline.look.mass_plan import TILE, MassPlan
from sightline.shapes import Float

_COUNTED = 1024  # tiles whose bounds are read at a time


def mass(
    inputs: ScoreInputs, lse: Float[Tensor, "B H T"], plan: MassPlan, n_groups: int
) -> Float[Tensor, "B H T G"]:
    """The weight that each query gives to each group.

    Args:
        inputs: What the weights are made of: a dot product of q and k.
        lse: Each query's log-sum-exp.
        plan: How the keys of the groups are laid out.
        n_groups: How many groups there are.
    """
    args = KeptArgs(inputs, lse)
    shape = (args.b, args.h, args.t, n_groups)
    several = len(plan.owners) > plan.n_walks  # then no program goes to all of the sets
    make = torch.zeros if plan.has_empty or several else torch.empty
    sums = make(shape, dtype=torch.float32, device=args.q.device)
    if plan.n_walks == 0:
        return sums
    k = _in_order(args.k, plan)
    tile = tile_of(args.width, args.q.dtype)._replace(keys=plan.tile)
    k_tiles = tiles_of_rows(k, plan.tile, args.width)
    mass_kernel[(blocks_of(args.t, tile.queries) * plan.n_walks, args.b * args.h)](
        args.q, *args.q.stride(), k if k_tiles is None else k_tiles, k, *k.stride()[:3], args.lse, *args.mask,
        *_plan_args(plan), sums, plan.n_walks, n_groups, *_plan_strides(plan),
        *args.sizes, *args.scale_and_band, DIRECT=plan.is_direct, SETS=several, **args.has,
        PRECISION=args.precision, BM=tile.queries, BN=tile.keys, BD=args.width, COUNTED=_COUNTED,
        STAGES=tile.stages, BY_TILES=k_tiles is not None,
        num_warps=tile.warps, num_stages=tile.stages, maxnreg=tile.registers,
    )  # fmt: skip
    return sums


def keys_of_tile(_inputs: ScoreInputs) -> int:
    """Return how many keys a tile of the plan has."""
    return TILE


def _plan_args(plan: MassPlan) -> tuple[Tensor, ...]:
    """A plan as a kernel takes it."""
    return plan.keys, plan.lowest, plan.highest, plan.walks, plan.sets, plan.owners


def _plan_strides(plan: MassPlan) -> tuple[int, int]:
    """How far the places and the tiles of the next item are, 0 where all items have the same plan."""
    return (plan.keys.size(1), plan.lowest.size(1)) if plan.keys.size(0) > 1 else (0, 0)


def _in_order(k: Float[Tensor, "B Hkv S D"], plan: MassPlan) -> Float[Tensor, "B Hkv n D"]:
    """The keys as they are laid out; zeros in an empty place."""
    b, h, s, d = k.shape
    n = plan.keys.size(1)
    laid = k.new_empty(b, h, n, d)
    rows = max(1, min(plan.tile, 1 << 13 >> (d - 1).bit_length()))
    lay_kernel[(n // rows, b * h)](
        k, *k.stride(), laid, plan.keys, n if plan.keys.size(0) > 1 else 0, h, n, s, d,
        ROWS=rows, BD=power_of_two(d), num_warps=4,
    )  # fmt: skip
    return laid


def tile_of(width: int, dtype: torch.dtype) -> Tile:
    """The tile that was fastest on an H200; how many keys it has is up to the plan."""
    if dtype == torch.float32:
        return Tile(16, 64, 4, 1)
    return Tile(64, 64, 4, 2) if width > 128 else Tile(128, 64, 4, 3)


@triton.jit
def mass_kernel(
    q_ptr, q_b, q_h, q_t, q_d,
    k_tiles,  # k by descriptor, for the copy engine, where BY_TILES
    k_ptr, k_b, k_h, k_s,  # in the order of the plan, without gaps
    lse_ptr,  # (B H, T), natural
    lengths_ptr, lengths_b, lengths_h,
    allowed_ptr, allowed_b, allowed_h, allowed_t, allowed_s,
    added_ptr, added_b, added_h, added_t, added_s,
    keys_ptr, lowest_ptr, highest_ptr, walks_ptr, sets_ptr, owners_ptr,  # the plan
    sums_ptr,  # (B H, T, G)
    n_walks, G,
    keys_b, tiles_b,  # how far the plan of the next item is, 0 where all have the same
    H, group, T, S, D,
    scale2, low, high,
    DIRECT: tl.constexpr,  # whether each column is a group
    SETS: tl.constexpr,  # whether a walk has several sets
    HAS_LENGTHS: tl.constexpr, HAS_ALLOWED: tl.constexpr, HAS_ADDED: tl.constexpr,
    HAS_LOW: tl.constexpr, HAS_HIGH: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, COUNTED: tl.constexpr, STAGES: tl.constexpr,
    BY_TILES: tl.constexpr,
):  # fmt: skip
    """Go through the tiles of a walk with BM queries."""
    walk = tl.program_id(0) % n_walks
    first_query = (tl.num_programs(0) // n_walks - 1 - tl.program_id(0) // n_walks) * BM  # the longest first
    head = tl.program_id(1).to(tl.int64)
    b, h = head // H, head % H
    k_ptr += b * k_b + (h // group) * k_h
    keys_ptr += b * keys_b
    lowest_ptr += b * tiles_b
    highest_ptr += b * tiles_b
    allowed_ptr += b * allowed_b + h * allowed_h
    added_ptr += b * added_b + h * added_h
    queries = first_query + tl.arange(0, BM)
    width = tl.arange(0, BD)
    in_tile = tl.arange(0, BN)
    there = queries < T
    q = load_tile(q_ptr + b * q_b + h * q_h, queries, q_t, T, width, q_d, D)
    lse = load_lse(lse_ptr + head * T, queries, there)
    limit = real_keys(lengths_ptr, lengths_b, lengths_h, b, h, S, HAS_LENGTHS)
    start = tl.load(walks_ptr + walk)
    end = tl.load(walks_ptr + walk + 1)
    reach, seen_by_all = limit, limit  # keys before these are for some query, and for all of them
    if HAS_HIGH:
        reach = tl.minimum(limit, tl.minimum(T, first_query + BM) + high)
        seen_by_all = tl.minimum(limit, first_query + high + 1)
    inner = start + count_below(highest_ptr, start, end, seen_by_all, COUNTED)
    begin = start
    if HAS_LOW:
        begin = start + count_below(highest_ptr, start, end, first_query + low, COUNTED)
    if HAS_LOW or SETS:  # a set may end in empty places
        inner = begin
    end = start + count_below(lowest_ptr, start, end, reach, COUNTED)

    sums = tl.zeros((BM, BN // 2), tl.float32)
    rows = (head * T + queries) * G
    of_set = tl.load(sets_ptr + begin)
    for part in tl.static_range(2):  # tiles that no limit cuts, and those that one does
        if part == 0:
            at, stop = begin, tl.minimum(inner, end)
        else:
            at, stop = tl.maximum(begin, tl.minimum(inner, end)), end
        for tile in tl.range(at, stop, num_stages=STAGES):
            places = tile * BN + in_tile
            if BY_TILES:
                k = k_tiles.load([b.to(tl.int32), (h // group).to(tl.int32), tile * BN, 0]).reshape(BN, BD)
            else:
                k = tl.load(k_ptr + places[:, None].to(tl.int64) * k_s + width[None, :],
                            mask=(width < D)[None, :], other=0.0)  # fmt: skip
            keys = tl.load(keys_ptr + places) if part == 1 or HAS_ALLOWED or HAS_ADDED else places
            x = tile_logs(
                q, k, lse, lse, queries, keys, scale2, limit, low, high,
                allowed_ptr, allowed_t, allowed_s, added_ptr, added_t, added_s, T, S,
                part == 1, False, HAS_ADDED, HAS_LOW, HAS_HIGH, HAS_ALLOWED, PRECISION,
            )  # fmt: skip
            sums += tl.sum(tl.reshape(tl.exp2(x), (BM, BN // 2, 2)), axis=2)
            if SETS:
                next_set = tl.load(sets_ptr + tile + 1)
                if (next_set != of_set) & (tile + 1 < end):
                    store_sums(sums, owners_ptr + of_set * (BN // 2), sums_ptr, rows, there, DIRECT, BN)
                    sums = tl.zeros_like(sums)
                    of_set = next_set
    store_sums(sums, owners_ptr + of_set * (BN // 2), sums_ptr, rows, there, DIRECT, BN)


@triton.jit
def store_sums(sums, owners_ptr, sums_ptr, rows, there, DIRECT: tl.constexpr, BN: tl.constexpr):
    """Write what the groups of a set have got."""
    owners = tl.load(owners_ptr + tl.arange(0, BN // 2))
    if DIRECT:
        at = rows[:, None] + owners[None, :]
        tl.store(sums_ptr + at, sums, mask=there[:, None] & (owners >= 0)[None, :])
    else:
        owner = tl.load(owners_ptr)
        column = 0
        while owner >= 0:
            whole = tl.sum(tl.where((owners == owner)[None, :], sums, 0.0), 1)
            tl.store(sums_ptr + rows + owner, whole, mask=there)
            column += tl.sum((owners == owner).to(tl.int32), 0)
            owner = tl.load(owners_ptr + column, mask=column < BN // 2, other=-1)


@triton.jit
def lay_kernel(
    k_ptr, k_b, k_h, k_s, k_d,
    laid_ptr,  # (B Hkv, n, D)
    keys_ptr, keys_b, H, n, S, D,
    ROWS: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """Put keys in the order of a plan."""
    places = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    head = tl.program_id(1).to(tl.int64)
    width = tl.arange(0, BD)
    keys = tl.load(keys_ptr + (head // H) * keys_b + places)
    rows = load_tile(k_ptr + (head // H) * k_b + (head % H) * k_h, keys, k_s, S, width, k_d, D)
    at = (head * n + places)[:, None] * D + width[None, :]
    tl.store(laid_ptr + at, rows, mask=(width < D)[None, :])


@triton.jit
def count_below(ptr, start, end, bound, COUNTED: tl.constexpr):
    """How many of the ascending numbers in [start, end) are below a bound."""
    n = 0
    for first in range(start, end, COUNTED):
        places = first + tl.arange(0, COUNTED)
        n += tl.sum((tl.load(ptr + places, mask=places < end, other=1 << 30) < bound).to(tl.int32), 0)
    return n
