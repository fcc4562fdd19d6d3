"""How the kernel is run: q and k as the copy engine reads them, and places for what is added up."""

import functools
from typing import NamedTuple

import torch
from torch import Tensor
from triton.experimental.gluon.language import NVMMASharedLayout, bfloat16, float16
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from sightline.look.kernels import prepared
from sightline.look.kernels.args import KernelArgs
from sightline.look.kernels.hopper import BLOCK, MAX_PROGRAMS, WARPS
from sightline.look.kernels.hopper.rows import rows_kernel
from sightline.look.kernels.hopper.top import top_kernel
from sightline.look.kernels.hopper.weights import weights_kernel
from sightline.look.kernels.request import Cells, StatsRequest
from sightline.look.kernels.shapes import blocks_of

_LOG2_STAGES = 1
_THREE_FIT, _FOUR_FIT = 168, 128  # registers of a thread, so that as many programs fit on a multiprocessor
_ENDS = 8  # tiles that could be worked on while a program begins and ends
_LONE = 0.6  # what a program takes that has a multiprocessor to itself, of the time beside others
_MAX_WALKS = 8


class WeightsPlan(NamedTuple):
    """How the kernel for all weights goes over them."""

    n_walks: int  # programs that share the queries of their keys
    fine: bool  # whether cells may be smaller than a tile
    aligned: bool  # whether no row of cells ends inside a tile; if fine, inside 16 queries
    aligned_keys: bool  # whether no column of cells ends inside 64 keys; if fine, inside 16
    registers: int


def plan_weights(args: KernelArgs, cells: Cells | None) -> WeightsPlan:
    """How to go over the weights, for what is to be measured."""
    t, s, d = args.sizes[2:]
    rows, columns = (1, 1) if cells is None else (cells.rows, cells.columns)
    fine = cells is not None and min(t // rows, s // columns) < BLOCK
    step = 16 if fine else BLOCK
    aligned, aligned_keys = t % (rows * step) == 0, s % (columns * step) == 0
    resident = 4 if d == BLOCK and cells is None else 3
    n_programs = args.b * args.h * blocks_of(s, 2 * BLOCK)
    n_slots = resident * _multiprocessors(args.q.device.index)
    # Walks of a band are of all lengths, and end one after the other as it is.
    is_band = args.has["HAS_LOW"] or args.has["HAS_HIGH"]
    n_walks = 1 if is_band and n_programs >= n_slots else walks_of(n_programs, blocks_of(t, BLOCK), n_slots)
    n_walks = min(n_walks, MAX_PROGRAMS // blocks_of(s, 2 * BLOCK))
    return WeightsPlan(n_walks, fine, aligned, aligned_keys, _FOUR_FIT if resident == 4 else _THREE_FIT)


def launch(
    args: KernelArgs,
    plan: WeightsPlan,
    lse: Tensor,
    pitch: int,
    cells: Cells | None,
    received: Tensor | None,
    masses: Tensor | None,
    rows: Tensor,
    request: StatsRequest,
) -> None:
    """Run the kernel, into what is there to be filled.

    Args:
        args: What every kernel is given.
        plan: How it goes over the weights.
        lse: Of each head, padded, in units of log2.
        pitch: How long a head is with its padding.
        cells: The map.
        received: What keys receive, from each program of a walk.
        masses: The weights of cells, as integers.
        rows: Two integers for each query: the sum for its entropy, and its peak.
        request: Which of them are wanted.
    """
    h, group, t, s, d = args.sizes
    lengths, has = args.limits.lengths, args.has
    n_rows, n_columns = (1, 1) if cells is None else (cells.rows, cells.columns)
    prepared.launch(
        weights_kernel, (args.b * h, blocks_of(s, 2 * BLOCK) * plan.n_walks),
        as_tiles(args.q, BLOCK), as_tiles(args.k, 2 * BLOCK), lse,
        lse if lengths is None else lengths, *((0, 0) if lengths is None else lengths.stride()),
        *(lse if x is None else x for x in (received, masses)), rows, rows.view(torch.int32),
        h, group, t, s, pitch, *args.scale_and_band, n_rows, n_columns,
        plan.n_walks, blocks_of(blocks_of(t, BLOCK), plan.n_walks),
        RECEIVED=request.received, CELLS=cells is not None, ENTROPY=request.entropy, PEAK=request.peak,
        HAS_LENGTHS=has["HAS_LENGTHS"], HAS_LOW=has["HAS_LOW"], HAS_HIGH=has["HAS_HIGH"],
        D=d, LOG2_STAGES=_LOG2_STAGES, FINE=plan.fine,
        ALIGNED=plan.aligned, ALIGNED_KEYS=plan.aligned_keys,
        num_warps=WARPS, maxnreg=plan.registers,
    )  # fmt: skip


@functools.lru_cache(maxsize=1024)
def walks_of(n_programs: int, n_tiles: int, n_slots: int) -> int:
    """By how many programs a walk is best shared, so that few multiprocessors wait for the last ones.

    Args:
        n_programs: How many walks there are.
        n_tiles: How long each is.
        n_slots: How many programs run at a time.
    """

    def duration(n_walks: int) -> float:
        rounds, rest = divmod(n_programs * n_walks, n_slots)
        last_round = _LONE + (1 - _LONE) * rest / n_slots if rest else 0.0
        return (rounds + last_round) * (blocks_of(n_tiles, n_walks) + _ENDS)

    return min(range(1, 1 + min(_MAX_WALKS, n_tiles)), key=duration)


@functools.cache
def _multiprocessors(device: int) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


def launch_rows(args: KernelArgs, lse: Tensor, entropy: Tensor | None, packed: Tensor | None) -> None:
    """Run the kernel for what belongs to queries alone."""
    h, group, t, s, d = args.sizes
    lengths, has = args.limits.lengths, args.has
    prepared.launch(
        rows_kernel, (args.b * h, blocks_of(t, BLOCK)),
        as_tiles(args.q, BLOCK), as_tiles(args.k, 2 * BLOCK), lse,
        lse if lengths is None else lengths, *((0, 0) if lengths is None else lengths.stride()),
        *(lse if x is None else x for x in (entropy, packed)), h, group, t, s, *args.scale_and_band,
        ENTROPY=entropy is not None, PEAK=packed is not None,
        HAS_LENGTHS=has["HAS_LENGTHS"], HAS_LOW=has["HAS_LOW"], HAS_HIGH=has["HAS_HIGH"],
        D=d, LOG2_STAGES=0, num_warps=WARPS, maxnreg=_FOUR_FIT,
    )  # fmt: skip


def launch_top(args: KernelArgs, groups: Tensor) -> None:
    """Find the best groups of keys of each query, (B, H, T, K)."""
    h, group, t, s, d = args.sizes
    lengths, has = args.limits.lengths, args.has
    prepared.launch(
        top_kernel, (args.b * h, blocks_of(t, BLOCK)),
        as_tiles(args.q, BLOCK), as_tiles(args.k, 2 * BLOCK),
        groups if lengths is None else lengths, *((0, 0) if lengths is None else lengths.stride()),
        groups, h, group, t, s, *args.scale_and_band[1:],
        HAS_LENGTHS=has["HAS_LENGTHS"], HAS_LOW=has["HAS_LOW"], HAS_HIGH=has["HAS_HIGH"],
        K=groups.size(3), D=d, LOG2_STAGES=0, num_warps=WARPS, maxnreg=_FOUR_FIT,
    )  # fmt: skip


def as_tiles(x: Tensor, rows: int) -> TensorDescriptor:
    """A tensor as the copy engine reads it, in tiles."""
    shape = [1, 1, rows, x.size(3)]
    return TensorDescriptor(x, list(x.shape), list(x.stride()), shape, _layout(rows, x.size(3), x.dtype))


@functools.cache
def _layout(rows: int, width: int, dtype: torch.dtype) -> NVMMASharedLayout:
    """How a tile lies in shared memory."""
    return NVMMASharedLayout.get_default_for(
        [1, 1, rows, width], float16 if dtype == torch.float16 else bfloat16
    )
