"""``measure``, by the Triton kernels: which of them run, with what, into what."""

from typing import NamedTuple

import torch
from torch import Tensor

from sightline.look.inputs import ScoreInputs
from sightline.look.kernels import hopper, prepared
from sightline.look.kernels.args import KernelArgs
from sightline.look.kernels.begin import begin_kernel
from sightline.look.kernels.prepared import allocate
from sightline.look.kernels.request import Cells, Stats, StatsRequest
from sightline.look.kernels.rows import finish_kernel, rows_kernel
from sightline.look.kernels.shapes import blocks_of, power_of_two
from sightline.look.kernels.tiles import EMPTY_LSE
from sightline.look.kernels.top import choose_kernel, groups_kernel
from sightline.look.kernels.weights import weights_kernel
from sightline.shapes import Float

_MAX_UNROLLED = 2  # rows or columns of the map in a tile
_CELLS_AT_ONCE = 512  # and keys
_CLEARED_AT_ONCE = 1024


def measure(inputs: ScoreInputs, request: StatsRequest, lse: Float[Tensor, "B H T"] | None = None) -> Stats:
    """Pass over all weights and reduce them to what was asked, without gradients.

    Args:
        inputs: What the weights are made of: a dot product of q and k.
        request: What to measure.
        lse: Each query's log-sum-exp, where a kernel has given it. With a bias it is computed here, in two
            parts: a model that forbids with a huge negative number leaves too few digits in one.
    """
    args = KernelArgs(inputs)
    by_key = request.received or request.cells is not None
    if args.limits.added is not None or lse is None:
        lse, shift, rest, entropy, groups = _rows(args, request)
        if inputs.padding is not None:
            _empty_rows(inputs.padding, lse, shift, rest, entropy, groups)
        found = _PassResult(entropy=entropy)
        if by_key:
            by_keys = StatsRequest(request.received, cells=request.cells)
            found = _weights(args, by_keys, shift, rest)._replace(entropy=entropy)
        found = _finish(args, found._replace(groups=groups), request.cells, rest)
    else:
        lse = lse.float().contiguous()
        if inputs.padding is not None:
            lse = lse.masked_fill(inputs.padding, torch.inf)
        rest, found = None, _PassResult()
        if not by_key and (request.entropy or request.peak) and hopper.supports(args):
            found = _finish(args, _rows_on_hopper(args, request, lse), None, None)
        elif by_key or request.entropy or request.peak:
            found = _finish(args, _weights(args, request, lse, None), request.cells, None)
        if inputs.may_have_empty_rows():
            lse = torch.where(lse.abs() < 1e30, lse, -torch.inf)
        shift = lse
    top = top_at = None
    if request.top:
        top, top_at = _top(args, request.top, shift, rest)
    return Stats(lse, found.received, found.entropy, found.peak, found.peak_at, found.cells, top, top_at)


class _PassResult(NamedTuple):
    """What has been found so far: as integers first, then as it is handed out."""

    received: Tensor | None = None
    received_parts: Tensor | None = None
    sums: Tensor | None = None
    packed: Tensor | None = None
    masses: Tensor | None = None
    groups: Tensor | None = None
    by_hopper: bool = False
    pitch: int | None = None  # from the sums of a head to the next one's, if not T
    step: int = 1  # from a sum to the next
    entropy: Tensor | None = None
    peak: Tensor | None = None
    peak_at: Tensor | None = None
    cells: Tensor | None = None


def _weights(args: KernelArgs, request: StatsRequest, lse: Tensor, rest: Tensor | None) -> _PassResult:
    """received, and what is gathered for entropies, peaks and the map."""
    if rest is None and hopper.supports(args):
        return _weights_on_hopper(args, request, lse)
    cells = request.cells
    rows = args.b * args.h * args.t
    sizes = (rows if request.entropy else 0, rows if request.peak else 0, _n_cells(args, cells))
    parts = allocate(torch.zeros, (sum(sizes),), torch.int64, args.q).split(sizes)
    sums, packed, masses = (part if n else None for part, n in zip(parts, sizes, strict=True))
    received = args.per_head((args.s,), torch.float32) if request.received else None
    if args.t and args.s:
        unused, tile = args.q, args.tiles.weights
        q_tiles = args.q_tiles(tile.queries)
        prepared.launch(
            weights_kernel, args.blocks(args.s, 2 * tile.keys),
            unused if q_tiles is None else q_tiles, *args.tensors,
            lse, unused if rest is None else rest, *args.mask,
            *(unused if x is None else x for x in (received, masses, sums, packed)),
            *args.sizes, *args.scale_and_band,
            cells.rows if cells else 1, cells.columns if cells else 1,
            RECEIVED=request.received, CELLS=cells is not None, ENTROPY=request.entropy, PEAK=request.peak,
            **args.has, TWO_PARTS=rest is not None, PRECISION=args.precision,
            BM=tile.queries, BN=tile.keys, BD=args.width,
            NC=_cells_touched(args.s, cells.columns, tile.keys) if cells else 0,
            ENDS=_cells_touched(args.t, cells.rows, tile.queries) if cells else 0,
            STAGES=tile.stages, BY_TILES=q_tiles is not None,
            num_warps=tile.warps, num_stages=tile.stages, maxnreg=tile.registers,
        )  # fmt: skip
    return _PassResult(received=received, sums=sums, packed=packed, masses=masses)


def _n_cells(args: KernelArgs, cells: Cells | None) -> int:
    return 0 if cells is None else args.b * args.h * cells.rows * cells.columns


def _weights_on_hopper(args: KernelArgs, request: StatsRequest, lse: Tensor) -> _PassResult:
    """The same; what belongs to a query lies side by side, and is padded to whole tiles."""
    from sightline.look.kernels.hopper.launch import launch, plan_weights  # noqa: PLC0415 (Gluon)

    cells, heads = request.cells, args.b * args.h
    plan = plan_weights(args, cells)
    pitch = blocks_of(args.t, hopper.BLOCK) * hopper.BLOCK
    n_rows = heads * pitch + hopper.BLOCK  # a tile is read beyond the last one
    n_sums = 2 * n_rows if request.entropy or request.peak else 0
    n_cells = _n_cells(args, cells)
    padded = allocate(torch.empty, (n_rows,), torch.float32, args.q)
    integers = allocate(torch.empty, (max(1, n_sums + n_cells),), torch.int64, args.q)
    prepared.launch(
        begin_kernel, (blocks_of(max(n_rows, integers.numel()), _CLEARED_AT_ONCE), 1),
        lse, padded, integers, heads * args.t, args.t, pitch, n_rows, integers.numel(),
        BLOCK=_CLEARED_AT_ONCE, num_warps=4,
    )  # fmt: skip
    found = _PassResult(
        sums=integers if request.entropy else None,
        packed=integers[1:] if request.peak else None,
        masses=integers[n_sums:] if n_cells else None,
        by_hopper=True,
        pitch=pitch,
        step=2,
    )
    if request.received and plan.n_walks == 1:
        found = found._replace(received=args.per_head((args.s,), torch.float32))
    elif request.received:
        parts = allocate(torch.empty, (plan.n_walks, heads, args.s), torch.float32, args.q)
        found = found._replace(received_parts=parts)
    received = found.received if found.received_parts is None else found.received_parts
    launch(args, plan, padded, pitch, cells, received, found.masses, integers, request)
    return found


def _rows_on_hopper(args: KernelArgs, request: StatsRequest, lse: Tensor) -> _PassResult:
    """Entropies, and what is gathered for peaks."""
    from sightline.look.kernels.hopper.launch import launch_rows  # noqa: PLC0415 (Gluon, where it is known)

    entropy = args.rows_like(torch.float32) if request.entropy else None
    packed = args.rows_like(torch.int64) if request.peak else None
    launch_rows(args, lse, entropy, packed)
    return _PassResult(entropy=entropy, packed=packed, by_hopper=True)


def _cells_touched(length: int, n_cells: int, block: int) -> int:
    """How many rows or columns of cells a block reaches over at most; 0 for many."""
    if length % (n_cells * block) == 0:
        return 1
    touched = (block - 2) // max(1, length // n_cells) + 2
    return touched if touched <= _MAX_UNROLLED else 0


def _rows(
    args: KernelArgs, request: StatsRequest
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    tile = args.tiles.rows
    lse, largest, rest = (args.rows_like(torch.float32) for _ in range(3))
    entropy = args.rows_like(torch.float32) if request.entropy else None
    groups = args.rows_like(torch.int32) if request.peak else None
    if args.t:
        prepared.launch(
            rows_kernel, args.blocks(args.t, tile.queries),
            *args.tensors, *args.mask, lse, largest, rest,
            lse if entropy is None else entropy, lse if groups is None else groups,
            *args.sizes, *args.scale_and_band, ENTROPY=request.entropy, PEAK=request.peak,
            **args.has, PRECISION=args.precision,
            BM=tile.queries, BN=tile.keys, BD=args.width, STAGES=tile.stages,
            num_warps=tile.warps, num_stages=tile.stages, maxnreg=tile.registers,
        )  # fmt: skip
    return lse, largest, rest, entropy, groups


def _empty_rows(
    padding: Tensor, lse: Tensor, largest: Tensor, rest: Tensor, entropy: Tensor | None, groups: Tensor | None
) -> None:
    """Make queries that are padding look at nothing."""
    lse.masked_fill_(padding, -torch.inf)
    largest.masked_fill_(padding, EMPTY_LSE.value)
    rest.masked_fill_(padding, 0.0)
    if entropy is not None:
        entropy.masked_fill_(padding, 0.0)
    if groups is not None:
        groups.masked_fill_(padding, -1)


def _finish(args: KernelArgs, found: _PassResult, cells: Cells | None, rest: Tensor | None) -> _PassResult:
    """Turn integers into numbers, and the best group of each query into its best key."""
    peaks = found.packed is not None or found.groups is not None
    if found.sums is not None:
        found = found._replace(entropy=args.rows_like(torch.float32))
    if peaks:
        found = found._replace(peak=args.rows_like(torch.float32), peak_at=args.rows_like(torch.int64))
    if cells is not None:
        found = found._replace(cells=args.per_head((cells.rows, cells.columns), torch.float32))
    parts = found.received_parts
    if parts is not None:
        found = found._replace(received=args.per_head((args.s,), torch.float32))
    if not (peaks or any(x is not None for x in (found.sums, parts, cells))) or not args.b * args.h:
        return found
    keys, n = (args.tiles.rows.keys, 1) if found.groups is not None else (args.tiles.weights.keys, 2)
    n_blocks = blocks_of(args.t, 32) if found.sums is not None or peaks else 0
    n_cells = 0 if cells is None else blocks_of(cells.rows * cells.columns, _CELLS_AT_ONCE)
    n_keys = 0 if parts is None else blocks_of(args.s, _CELLS_AT_ONCE)
    unused = args.q
    given = (found.sums, found.packed, found.masses, parts, found.groups, rest)
    wanted = (found.entropy, found.peak, found.peak_at, found.cells, found.received)
    prepared.launch(
        finish_kernel, (n_blocks + n_cells + n_keys, args.b * args.h),
        *args.tensors, *args.mask, *(unused if x is None else x for x in (*given, *wanted)),
        *args.sizes, *args.scale_and_band,
        1 if cells is None else cells.rows, 1 if cells is None else cells.columns,
        n_blocks, n_cells, 1 if parts is None else parts.size(0),
        args.t if found.pitch is None else found.pitch,
        GATHERED=found.groups is None, ENTROPY=found.sums is not None, PEAK=peaks, CELLS=cells is not None,
        RECEIVED=parts is not None, STEP=found.step, **args.has,
        BM=32, BN=keys, N=0 if found.by_hopper else n, BD=args.width, BC=_CELLS_AT_ONCE,
        num_warps=4,
    )  # fmt: skip
    return found


def _top(args: KernelArgs, n: int, lse: Tensor, rest: Tensor | None) -> tuple[Tensor, Tensor]:
    tile = args.tiles.top
    kept = max(2, power_of_two(n))
    groups = args.per_head((args.t, kept), torch.int32)
    top, top_at = args.per_head((args.t, n), torch.float32), args.per_head((args.t, n), torch.int64)
    if not args.t:
        return top, top_at
    # The order of the products is that of the scores, unless the scale turns it around.
    by_hopper = kept <= hopper.MAX_TOP and args.inputs.scale > 0 and hopper.supports(args)
    if by_hopper:
        from sightline.look.kernels.hopper.launch import launch_top  # noqa: PLC0415 (Gluon, where it is known)

        launch_top(args, groups)
    else:
        prepared.launch(
            groups_kernel, args.blocks(args.t, tile.queries),
            *args.tensors, *args.mask, groups, *args.sizes, *args.scale_and_band, **args.has,
            PRECISION=args.precision, K=kept, BM=tile.queries, BN=tile.keys, BD=args.width,
            STAGES=tile.stages, num_warps=tile.warps, num_stages=tile.stages, maxnreg=tile.registers,
        )  # fmt: skip
    prepared.launch(
        choose_kernel, args.blocks(args.t, 16),
        *args.tensors, lse, lse if rest is None else rest, *args.mask, groups, top, top_at,
        *args.sizes, *args.scale_and_band, n, **args.has, TWO_PARTS=rest is not None,
        K=kept, BM=16, BN=2 * hopper.BLOCK if by_hopper else tile.keys, N=0 if by_hopper else 1, num_warps=4,
    )  # fmt: skip
    return top, top_at
