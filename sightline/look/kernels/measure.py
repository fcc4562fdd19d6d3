"""``measure``, as in stream.py, by the Triton kernels: which of them run, with what, into what."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from sightline.look import stream
from sightline.look.kernels import hopper
from sightline.look.kernels.limits import NO_LIMIT, Limits, limits_of
from sightline.look.kernels.rows import finish_kernel, rows_kernel
from sightline.look.kernels.shapes import Tile, Tiles, blocks_of, power_of_two, tiles_of, width_of
from sightline.look.kernels.tiles import EMPTY_LSE
from sightline.look.kernels.top import choose_kernel, groups_kernel
from sightline.look.kernels.weights import join_kernel, weights_kernel
from sightline.look.score_inputs import ScoreInputs
from sightline.look.stream import Cells, Stats, StatsRequest
from sightline.shapes import Float

_LOG2E = math.log2(math.e)
_LEAST = -(1 << 63)
_LEAST_CELL = 16


def measure(inputs: ScoreInputs, request: StatsRequest, lse: Float[Tensor, "B H T"] | None = None) -> Stats:
    """Pass over all weights and reduce them to what was asked, without gradients.

    Args:
        pairs: What the weights are made of: a dot product of q and k.
        want: What to measure.
        lse: Each query's log-sum-exp, where a kernel has given it. With a bias it is computed here, in two
            parts: a model that forbids with a huge negative number leaves too few digits in one.
    """
    args = KernelArgs(inputs)
    t, s = args.t, args.s
    fine = request.cells if request.cells is not None and _is_finer_than_tiles(request.cells, t, s) else None
    request = request if fine is None else request._replace(cells=None)
    by_key = request.received or request.cells is not None
    rest = None
    entropy = peak = peak_at = None
    if args.limits.added is not None or lse is None:
        lse, largest, rest, entropy, groups = _rows(args, request)
        if inputs.padding is not None:
            _empty_rows(inputs.padding, lse, largest, rest, entropy, groups)
        if request.peak:
            peak, peak_at = _finish_rows(args, groups, rest)
        if by_key:
            by_keys = StatsRequest(request.received, cells=request.cells)
            received, cells, _, _ = _weights(args, by_keys, _plan(args, request.cells, rest), largest, rest)
        shift = largest
    else:
        lse = lse.float().contiguous()
        if inputs.padding is not None:
            lse = lse.masked_fill(inputs.padding, torch.inf)
        plan = _plan(args, request.cells, None)
        if by_key or request.entropy or request.peak:
            received, cells, sums, packed = _weights(args, request, plan, lse, None)
        if request.entropy or request.peak:
            entropy, peak, peak_at = _finish_weights(args, plan, sums, packed)
        if inputs.may_have_empty_rows():
            lse = torch.where(lse.abs() < 1e30, lse, -torch.inf)
        shift = lse
    if not by_key:
        received = cells = None
    if fine is not None:
        cells = stream.pool(inputs, lse, fine).div_(fine.areas(lse.device))
    top = top_at = None
    if request.top:
        top, top_at = _top(args, request.top, shift, rest)
    return Stats(lse, received, entropy, peak, peak_at, cells, top, top_at)


class KernelArgs:
    """What every kernel is given: q, k and the mask, by pointers and strides."""

    def __init__(self, inputs: ScoreInputs, limits: Limits | None = None) -> None:
        self.inputs, self.q, self.k = inputs, inputs.q, inputs.k
        shape = self.b, self.h, self.t, self.s = inputs.shape
        self.limits = limits_of(inputs.mask, shape) if limits is None else limits
        self.width = width_of(inputs)
        self.tiles: Tiles = tiles_of(self.width, self.q.dtype)
        # Queries and keys with their strides.
        self.tensors: tuple[Any, ...] = (self.q, *self.q.stride(), self.k, *self.k.stride())
        # The mask's tensors with theirs; any pointer where there is none.
        lengths, allowed, added = self.limits[2:]
        self.mask: tuple[Any, ...] = (
            self.q if lengths is None else lengths, *((0, 0) if lengths is None else lengths.stride()),
            self.q if allowed is None else allowed, *((0,) * 4 if allowed is None else allowed.stride()),
            self.q if added is None else added, *((0,) * 4 if added is None else added.stride()),
        )  # fmt: skip
        # H, how many heads share keys, T, S, D.
        self.sizes = self.h, self.h // self.k.size(1), self.t, self.s, self.q.size(3)
        # The scale in units of log2, and the limits on the distance.
        self.scale_and_band = inputs.scale * _LOG2E, self.limits.low, self.limits.high
        # Which limits there are: what is not there is not compiled.
        self.has = {
            "HAS_LENGTHS": lengths is not None,
            "HAS_ALLOWED": allowed is not None,
            "HAS_ADDED": added is not None,
            "HAS_LOW": self.limits.low > -NO_LIMIT,
            "HAS_HIGH": self.limits.high < NO_LIMIT,
        }

    def q_tiles(self, queries: int) -> TensorDescriptor | None:
        """Queries as the copy engine reads it, in tiles; None where its strides don't suit that."""
        strides = self.q.stride()
        size = self.q.element_size()
        if strides[3] != 1 or any(x * size % 16 for x in strides[:3]) or self.q.data_ptr() % 16:
            return None
        shape = [1, 1, queries, self.width]
        return TensorDescriptor(self.q, list(self.q.shape), list(strides), shape)

    @property
    def precision(self) -> str:
        """Float32 is multiplied as IEEE says, unless tf32 was chosen for all of torch."""
        full = self.q.dtype != torch.float32 or torch.get_float32_matmul_precision() == "highest"
        return "ieee" if full else "tf32"

    def blocks(self, n: int, size: int) -> tuple[int, int]:
        """How many programs: one for each block of each head."""
        return blocks_of(n, size), self.b * self.h

    def rows_like(self, dtype: torch.dtype) -> Tensor:
        """A number for each query."""
        return torch.empty((self.b, self.h, self.t), dtype=dtype, device=self.q.device)


class KernelPlan(NamedTuple):
    """Which kernel adds the weights up, and in what tiles."""

    on_hopper: bool
    tile: Tile


def _plan(args: KernelArgs, cells: Cells | None, rest: Tensor | None) -> KernelPlan:
    tile = _fit_to_cells(args.tiles.weights, cells, args.t, args.s)
    if rest is None and hopper.supports(args, cells):
        return KernelPlan(True, tile._replace(keys=hopper.BLOCK))
    return KernelPlan(False, tile)


def _weights(
    args: KernelArgs, request: StatsRequest, plan: KernelPlan, lse: Tensor, rest: Tensor | None
) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
    """received, cells, and what has been gathered for entropies and peaks."""
    cells, tile = request.cells, plan.tile
    received = parts = None
    if request.received:
        received = torch.empty((args.b, args.h, args.s), dtype=torch.float32, device=args.q.device)
    sums = args.rows_like(torch.int64).zero_() if request.entropy else None
    packed = args.rows_like(torch.int64).fill_(_LEAST) if request.peak else None
    blocks, n_cells = 2 * blocks_of(args.s, 2 * tile.keys), 1
    if cells is not None:
        n_cells = _columns_per_block(args.s, cells.columns, tile.keys)
        shape = (args.b * args.h, cells.rows, blocks, n_cells, hopper.WARPS if plan.on_hopper else 1)
        parts = torch.zeros(shape, dtype=torch.float32, device=args.q.device)
    unused = args.q
    if plan.on_hopper:
        from sightline.look.kernels.hopper.launch import launch  # noqa: PLC0415 (Gluon, where it is known)

        launch(args, lse, cells, received, parts, sums, packed)
    elif args.t and args.s:
        q_tiles = args.q_tiles(tile.queries)
        weights_kernel[args.blocks(args.s, 2 * tile.keys)](
            unused if q_tiles is None else q_tiles, *args.tensors,
            lse, unused if rest is None else rest, *args.mask,
            unused if received is None else received, unused if parts is None else parts,
            unused if sums is None else sums, unused if packed is None else packed,
            *args.sizes, *args.scale_and_band,
            cells.rows if cells else 1, cells.columns if cells else 1,
            RECEIVED=request.received, CELLS=cells is not None, ENTROPY=request.entropy, PEAK=request.peak,
            **args.has, TWO_PARTS=rest is not None, PRECISION=args.precision,
            BM=tile.queries, BN=tile.keys, BD=args.width, NC=n_cells, STAGES=tile.stages,
            BY_TILES=q_tiles is not None,
            num_warps=tile.warps, num_stages=tile.stages, maxnreg=tile.registers,
        )  # fmt: skip
    picture = None if parts is None or cells is None else _join_cells(parts, cells, args, tile.keys)
    return received, picture, sums, packed


def _rows(
    args: KernelArgs, request: StatsRequest
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    tile = args.tiles.rows
    lse, largest, rest = (args.rows_like(torch.float32) for _ in range(3))
    entropy = args.rows_like(torch.float32) if request.entropy else None
    groups = args.rows_like(torch.int32) if request.peak else None
    if args.t:
        rows_kernel[args.blocks(args.t, tile.queries)](
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


def _finish_weights(
    args: KernelArgs, plan: KernelPlan, sums: Tensor | None, packed: Tensor | None
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    entropy = None if sums is None else args.rows_like(torch.float32)
    peak = None if packed is None else args.rows_like(torch.float32)
    peak_at = None if packed is None else args.rows_like(torch.int64)
    keys, n = (hopper.GROUPS, 1) if plan.on_hopper else (plan.tile.keys, 2)
    _finish(args, keys, n, sums, packed, None, None, entropy, peak, peak_at)
    return entropy, peak, peak_at


def _finish_rows(args: KernelArgs, groups: Tensor | None, rest: Tensor) -> tuple[Tensor, Tensor]:
    peak, peak_at = args.rows_like(torch.float32), args.rows_like(torch.int64)
    _finish(args, args.tiles.rows.keys, 1, None, None, groups, rest, None, peak, peak_at)
    return peak, peak_at


def _finish(
    args: KernelArgs,
    keys: int,
    n: int,
    sums: Tensor | None,
    packed: Tensor | None,
    groups: Tensor | None,
    rest: Tensor | None,
    entropy: Tensor | None,
    peak: Tensor | None,
    peak_at: Tensor | None,
) -> None:
    if not args.t:
        return
    unused = args.q
    finish_kernel[args.blocks(args.t, 32)](
        *args.tensors, *args.mask,
        *(unused if x is None else x for x in (sums, packed, groups, rest, entropy, peak, peak_at)),
        *args.sizes, *args.scale_and_band,
        GATHERED=groups is None, ENTROPY=entropy is not None, PEAK=peak is not None, **args.has,
        BM=32, BN=keys, N=n, BD=args.width, num_warps=4,
    )  # fmt: skip


def _top(args: KernelArgs, n: int, lse: Tensor, rest: Tensor | None) -> tuple[Tensor, Tensor]:
    tile = args.tiles.top
    kept = max(2, power_of_two(n))
    shape, device = (args.b, args.h, args.t), args.q.device
    groups = torch.empty((*shape, kept), dtype=torch.int32, device=device)
    top = torch.empty((*shape, n), dtype=torch.float32, device=device)
    top_at = torch.empty_like(top, dtype=torch.int64)
    if not args.t:
        return top, top_at
    groups_kernel[args.blocks(args.t, tile.queries)](
        *args.tensors, *args.mask, groups, *args.sizes, *args.scale_and_band, **args.has,
        PRECISION=args.precision, K=kept, BM=tile.queries, BN=tile.keys, BD=args.width,
        STAGES=tile.stages, num_warps=tile.warps, num_stages=tile.stages, maxnreg=tile.registers,
    )  # fmt: skip
    choose_kernel[args.blocks(args.t, 16)](
        *args.tensors, lse, lse if rest is None else rest, *args.mask, groups, top, top_at,
        *args.sizes, *args.scale_and_band, n, **args.has, TWO_PARTS=rest is not None,
        K=kept, BM=16, BN=tile.keys, num_warps=4,
    )  # fmt: skip
    return top, top_at


def _is_finer_than_tiles(cells: Cells, t: int, s: int) -> bool:
    """Whether cells are smaller than any tile: adding them up is the plain path's business."""
    return t // cells.rows < _LEAST_CELL or s // cells.columns < _LEAST_CELL


def _fit_to_cells(tile: Tile, cells: Cells | None, t: int, s: int) -> Tile:
    """A tile no higher than a row of cells, so that it leaves one row at most."""
    if cells is None:
        return tile
    queries = min(tile.queries, 1 << ((t // cells.rows).bit_length() - 1))
    keys = tile.keys if s // cells.columns >= tile.keys else min(tile.keys, 64)
    return tile._replace(queries=queries, keys=keys, warps=tile.warps if queries == tile.queries else 4)


def _columns_per_block(s: int, columns: int, keys: int) -> int:
    """Over how many columns of cells a block of keys may reach, at most."""
    narrowest = max(1, s // columns)
    if s % (columns * keys) == 0:
        return 1
    return power_of_two((keys - 2) // narrowest + 2)


def _join_cells(parts: Tensor, cells: Cells, args: KernelArgs, keys: int) -> Tensor:
    """Put what the blocks of keys have added to their cells in place: the mean weight of each cell."""
    heads, rows, blocks, spanned, warps = parts.shape
    picture = parts.new_empty((args.b, args.h, rows, cells.columns))
    widest = blocks_of(args.s, cells.columns)
    join_kernel[(rows, heads, blocks_of(cells.columns, 64))](
        parts, picture, args.t, args.s, rows, cells.columns, blocks, (widest - 1) // keys + 2,
        BN=keys, NC=spanned, WARPS=warps, BC=64, num_warps=2,
    )  # fmt: skip
    return picture
