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
from sightline.look.kernels.top import choose_kernel, groups_kernel
from sightline.look.kernels.weights import join_kernel, weights_kernel
from sightline.look.pairs import Pairs
from sightline.look.stream import Cells, Found, Want
from sightline.shapes import Float

_LOG2E = math.log2(math.e)
_LEAST = -(1 << 63)
_LEAST_CELL = 16


def measure(pairs: Pairs, want: Want, lse: Float[Tensor, "B H T"] | None = None) -> Found:
    """Pass over all weights and reduce them to what was asked, without gradients.

    Args:
        pairs: What the weights are made of: a dot product of q and k.
        want: What to measure.
        lse: Each query's log-sum-exp, where a kernel has given it. With a bias it is computed here, in two
            parts: a model that forbids with a huge negative number leaves too few digits in one.
    """
    given = Given(pairs)
    t, s = given.t, given.s
    fine = want.cells if want.cells is not None and _is_fine(want.cells, t, s) else None
    want = want if fine is None else want._replace(cells=None)
    by_key = want.received or want.cells is not None
    rest = None
    entropy = peak = peak_at = None
    if given.limits.added is not None or lse is None:
        lse, largest, rest, entropy, groups = _rows(given, want)
        if want.peak:
            peak, peak_at = _finish_rows(given, groups, rest)
        if by_key:
            by_keys = Want(want.received, cells=want.cells)
            received, cells, _, _ = _weights(given, by_keys, _way(given, want.cells, rest), largest, rest)
        shift = largest
    else:
        lse = lse.float().contiguous()
        way = _way(given, want.cells, None)
        if by_key or want.entropy or want.peak:
            received, cells, sums, packed = _weights(given, want, way, lse, None)
        if want.entropy or want.peak:
            entropy, peak, peak_at = _finish_weights(given, way, sums, packed)
        if pairs.may_be_empty():
            lse = torch.where(lse.abs() < 1e30, lse, -torch.inf)
        shift = lse
    if not by_key:
        received = cells = None
    if fine is not None:
        cells = stream.pool(pairs, lse, fine).div_(fine.areas(lse.device))
    top = top_at = None
    if want.top:
        top, top_at = _top(given, want.top, shift, rest)
    return Found(lse, received, entropy, peak, peak_at, cells, top, top_at)


class Given:
    """What every kernel is given: q, k and the mask, by pointers and strides."""

    def __init__(self, pairs: Pairs, limits: Limits | None = None) -> None:
        self.pairs, self.q, self.k = pairs, pairs.q, pairs.k
        shape = self.b, self.h, self.t, self.s = pairs.shape
        self.limits = limits_of(pairs.mask, shape) if limits is None else limits
        self.width = width_of(pairs)
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
        self.scale_and_band = pairs.scale * _LOG2E, self.limits.low, self.limits.high
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


class Way(NamedTuple):
    """Which kernel adds the weights up, and in what tiles."""

    on_hopper: bool
    tile: Tile


def _way(given: Given, cells: Cells | None, rest: Tensor | None) -> Way:
    tile = _fitted(given.tiles.weights, cells, given.t, given.s)
    if rest is None and hopper.suits(given, cells):
        return Way(True, tile._replace(keys=hopper.BLOCK))
    return Way(False, tile)


def _weights(
    given: Given, want: Want, way: Way, lse: Tensor, rest: Tensor | None
) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
    """received, cells, and what has been gathered for entropies and peaks."""
    cells, tile = want.cells, way.tile
    received = parts = None
    if want.received:
        received = torch.empty((given.b, given.h, given.s), dtype=torch.float32, device=given.q.device)
    sums = given.rows_like(torch.int64).zero_() if want.entropy else None
    packed = given.rows_like(torch.int64).fill_(_LEAST) if want.peak else None
    blocks, n_cells = 2 * blocks_of(given.s, 2 * tile.keys), 1
    if cells is not None:
        n_cells = _spanned(given.s, cells.columns, tile.keys)
        shape = (given.b * given.h, cells.rows, blocks, n_cells, hopper.WARPS if way.on_hopper else 1)
        parts = torch.zeros(shape, dtype=torch.float32, device=given.q.device)
    unused = given.q
    if way.on_hopper:
        from sightline.look.kernels.hopper.launch import add_up  # noqa: PLC0415 (Gluon, where it is known)

        add_up(given, lse, cells, received, parts, sums, packed)
    elif given.t and given.s:
        q_tiles = given.q_tiles(tile.queries)
        weights_kernel[given.blocks(given.s, 2 * tile.keys)](
            unused if q_tiles is None else q_tiles, *given.tensors,
            lse, unused if rest is None else rest, *given.mask,
            unused if received is None else received, unused if parts is None else parts,
            unused if sums is None else sums, unused if packed is None else packed,
            *given.sizes, *given.scale_and_band,
            cells.rows if cells else 1, cells.columns if cells else 1,
            RECEIVED=want.received, CELLS=cells is not None, ENTROPY=want.entropy, PEAK=want.peak,
            **given.has, TWO_PARTS=rest is not None, PRECISION=given.precision,
            BM=tile.queries, BN=tile.keys, BD=given.width, NC=n_cells, STAGES=tile.stages,
            BY_TILES=q_tiles is not None,
            num_warps=tile.warps, num_stages=tile.stages, maxnreg=tile.registers,
        )  # fmt: skip
    picture = None if parts is None or cells is None else _joined(parts, cells, given, tile.keys)
    return received, picture, sums, packed


def _rows(given: Given, want: Want) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    tile = given.tiles.rows
    lse, largest, rest = (given.rows_like(torch.float32) for _ in range(3))
    entropy = given.rows_like(torch.float32) if want.entropy else None
    groups = given.rows_like(torch.int32) if want.peak else None
    if given.t:
        rows_kernel[given.blocks(given.t, tile.queries)](
            *given.tensors, *given.mask, lse, largest, rest,
            lse if entropy is None else entropy, lse if groups is None else groups,
            *given.sizes, *given.scale_and_band, ENTROPY=want.entropy, PEAK=want.peak,
            **given.has, PRECISION=given.precision,
            BM=tile.queries, BN=tile.keys, BD=given.width, STAGES=tile.stages,
            num_warps=tile.warps, num_stages=tile.stages, maxnreg=tile.registers,
        )  # fmt: skip
    return lse, largest, rest, entropy, groups


def _finish_weights(
    given: Given, way: Way, sums: Tensor | None, packed: Tensor | None
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    entropy = None if sums is None else given.rows_like(torch.float32)
    peak = None if packed is None else given.rows_like(torch.float32)
    peak_at = None if packed is None else given.rows_like(torch.int64)
    keys, n = (hopper.GROUPS, 1) if way.on_hopper else (way.tile.keys, 2)
    _finish(given, keys, n, sums, packed, None, None, entropy, peak, peak_at)
    return entropy, peak, peak_at


def _finish_rows(given: Given, groups: Tensor | None, rest: Tensor) -> tuple[Tensor, Tensor]:
    peak, peak_at = given.rows_like(torch.float32), given.rows_like(torch.int64)
    _finish(given, given.tiles.rows.keys, 1, None, None, groups, rest, None, peak, peak_at)
    return peak, peak_at


def _finish(
    given: Given,
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
    if not given.t:
        return
    unused = given.q
    finish_kernel[given.blocks(given.t, 32)](
        *given.tensors, *given.mask,
        *(unused if x is None else x for x in (sums, packed, groups, rest, entropy, peak, peak_at)),
        *given.sizes, *given.scale_and_band,
        GATHERED=groups is None, ENTROPY=entropy is not None, PEAK=peak is not None, **given.has,
        BM=32, BN=keys, N=n, BD=given.width, num_warps=4,
    )  # fmt: skip


def _top(given: Given, n: int, lse: Tensor, rest: Tensor | None) -> tuple[Tensor, Tensor]:
    tile = given.tiles.top
    kept = max(2, power_of_two(n))
    shape, device = (given.b, given.h, given.t), given.q.device
    groups = torch.empty((*shape, kept), dtype=torch.int32, device=device)
    top = torch.empty((*shape, n), dtype=torch.float32, device=device)
    top_at = torch.empty_like(top, dtype=torch.int64)
    if not given.t:
        return top, top_at
    groups_kernel[given.blocks(given.t, tile.queries)](
        *given.tensors, *given.mask, groups, *given.sizes, *given.scale_and_band, **given.has,
        PRECISION=given.precision, K=kept, BM=tile.queries, BN=tile.keys, BD=given.width,
        STAGES=tile.stages, num_warps=tile.warps, num_stages=tile.stages, maxnreg=tile.registers,
    )  # fmt: skip
    choose_kernel[given.blocks(given.t, 16)](
        *given.tensors, lse, lse if rest is None else rest, *given.mask, groups, top, top_at,
        *given.sizes, *given.scale_and_band, n, **given.has, TWO_PARTS=rest is not None,
        K=kept, BM=16, BN=tile.keys, num_warps=4,
    )  # fmt: skip
    return top, top_at


def _is_fine(cells: Cells, t: int, s: int) -> bool:
    """Whether cells are smaller than any tile: adding them up is the plain path's business."""
    return t // cells.rows < _LEAST_CELL or s // cells.columns < _LEAST_CELL


def _fitted(tile: Tile, cells: Cells | None, t: int, s: int) -> Tile:
    """A tile no higher than a row of cells, so that it leaves one row at most."""
    if cells is None:
        return tile
    queries = min(tile.queries, 1 << ((t // cells.rows).bit_length() - 1))
    keys = tile.keys if s // cells.columns >= tile.keys else min(tile.keys, 64)
    return tile._replace(queries=queries, keys=keys, warps=tile.warps if queries == tile.queries else 4)


def _spanned(s: int, columns: int, keys: int) -> int:
    """Over how many columns of cells a block of keys may reach, at most."""
    narrowest = max(1, s // columns)
    if s % (columns * keys) == 0:
        return 1
    return power_of_two((keys - 2) // narrowest + 2)


def _joined(parts: Tensor, cells: Cells, given: Given, keys: int) -> Tensor:
    """Put what the blocks of keys have added to their cells in place: the mean weight of each cell."""
    heads, rows, blocks, spanned, warps = parts.shape
    picture = parts.new_empty((given.b, given.h, rows, cells.columns))
    widest = blocks_of(given.s, cells.columns)
    join_kernel[(rows, heads, blocks_of(cells.columns, 64))](
        parts, picture, given.t, given.s, rows, cells.columns, blocks, (widest - 1) // keys + 2,
        BN=keys, NC=spanned, WARPS=warps, BC=64, num_warps=2,
    )  # fmt: skip
    return picture
