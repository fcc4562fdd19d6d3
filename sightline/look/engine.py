"""Statistics of attention weights: tiles of weights are computed, reduced by every measure, and dropped.

The fused kernel has given the output and often, for each query, lse = log Σ exp(score). So any weight is

    w[t, s] = exp(score[t, s] - lse[t])

on its own, and each measure reduces rectangles of them (``measures.py``; ``weights.py`` makes the weights).
Nothing of size T x S is ever alive. With gradients, a tile is computed once more in the backward pass, and
nothing is kept.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from sightline.look import kernels
from sightline.look.inputs import Tile
from sightline.look.measure import Lse, Measure, Tensors
from sightline.look.source import Block, Local, Out, Source, Window
from sightline.look.threads import by_tile, one_thread, shares_tiles
from sightline.look.weights import Scratch, WeightMaker, tile_size, usable_lse
from sightline.shapes import Float

__all__ = ["Found", "collect", "finish", "parts_of", "run", "tile_weights"]

Found = dict[Measure, list[Tensor]]
Shape = tuple[int, int, int, int]
Windows = tuple[Window, ...]

_order = attrgetter("order")


def run(measures: Sequence[Measure], source: Source) -> dict[str, Tensor]:
    """Reduce all weights of a source to what is asked, in O(T + S) memory.

    Args:
        measures: What is asked, fitted to the source's T and S.
        source: Where the weights come from.

    Returns:
        The answers by name, (B, H, ...).
    """
    found = collect(measures, source)
    if type(source) is Local:
        return finish(found)
    whole = iter(source.reduce([(out.axis, m.op, x) for m, out, x in parts_of(found)]))
    return finish({m: [next(whole) for _ in m.outputs] for m in found})


def parts_of(found: Found) -> Iterator[tuple[Measure, Out, Tensor]]:
    """Yield what was found, with the measure and the output that it is of."""
    for m, parts in found.items():
        for out, x in zip(m.outputs, parts, strict=True):
            yield m, out, x


def finish(found: Mapping[Measure, Sequence[Tensor]]) -> dict[str, Tensor]:
    """Return the answers by name."""
    answers: dict[str, Tensor] = {}
    for m, parts in found.items():
        if type(m).finish is Measure.finish:
            for out, x in zip(m.outputs, parts, strict=True):
                answers[out.name] = x
        else:
            answers.update(m.finish(*parts))
    return answers


def collect(measures: Sequence[Measure], source: Source) -> Found:
    """Pass over all weights of a source, and return what this process has found."""
    shape = source.shape
    known = _Known(shape, source)
    for block in source.blocks():
        left = _answered_elsewhere(measures, block, shape, known)
        once = not block.is_part  # all keys of a query are in one block, and in one tile if nothing is cut
        for windows, some in _by_windows(left, block, shape):
            for tile, parts in over_tiles(block, some, windows):
                if tile.is_all(shape):  # short inputs: nothing to put together
                    known.found.update(zip(some, map(list, parts), strict=True))
                    continue
                with one_thread():
                    for m, new in zip(some, parts, strict=True):
                        known.put(m, tile, new, once=once and windows is None)
    return known.all(measures)


def _answered_elsewhere(
    measures: Sequence[Measure], block: Block, shape: Shape, known: "_Known"
) -> Sequence[Measure]:
    """Take what a kernel has given or can give, and return the measures that the tiles must answer."""
    if len(measures) == 1 and type(measures[0]) is Lse and (lse := usable_lse(block)) is not None:
        known.put(measures[0], known.tile_of(block), (lse,))
        return ()
    if block.is_part and (apart := next((m for m in measures if m.whole_rows), None)) is not None:
        raise ValueError(
            f"{type(apart).__name__} needs all keys of a query at once, and this sequence is spread over "
            "processes; ask it where one process has the sequence"
        )
    if not kernels.are_here(block.inputs.q):
        return measures
    from sightline.look.kernels.table import answer  # noqa: PLC0415 (it needs Triton)

    answers = answer(measures, block, shape)
    for m, parts in answers.items():
        known.put(m, known.tile_of(block), parts)
    return [m for m in measures if m not in answers]


class _Known:
    """What is known so far: for each measure, whole tensors that tiles are joined into."""

    def __init__(self, shape: Shape, source: Source) -> None:
        self._shape, self._source = shape, source
        self.found: Found = {}

    def all(self, measures: Sequence[Measure]) -> Found:
        """Return what was found, in the order asked, which is that of all processes.

        Where no tile was, it is what a measure gives of nothing.
        """
        found: Found = {}
        for m in measures:
            found[m] = self.found[m] if m in self.found else self._start(m)
        return found

    def put(self, m: Measure, tile: Tile, new: Tensors, *, once: bool = False) -> None:
        """Join the parts of a tile with what is known of their places.

        Args:
            m: What was asked.
            tile: Which items, heads, queries and keys.
            new: What it contributes.
            once: Whether no other tile has these queries.
        """
        if m not in self.found:
            self.found[m] = self._start(m)
        known = self.found[m]
        at = [(tile.batch, tile.heads, *i) for i in m.place(tile)]
        if once and all(out.axis == "query" for out in m.outputs):
            for x, i, value in zip(known, at, new, strict=True):
                x[i] = value
            return
        grad = any(x.requires_grad for x in (*known, *new))
        if m.op == "sum" and not grad:
            for x, i, value in zip(known, at, new, strict=True):
                x[i] += value
            return
        old = tuple(x[i].clone() if grad else x[i] for x, i in zip(known, at, strict=True))
        for x, i, value in zip(known, at, m.join(old, new), strict=True):
            x[i] = value  # autograd follows

    def tile_of(self, block: Block) -> Tile:
        """Return the tile that a block is, in the T x S that comes out."""
        return Tile(slice(0, self._shape[0]), slice(0, self._shape[1]), *block.window)

    def _start(self, m: Measure) -> list[Tensor]:
        (b, h, t, s), like = self._shape, self._source.like
        sizes = zip(m.outputs, m.sizes(t, s), strict=True)
        return [like.new_full((b, h, *n), out.fill, dtype=out.dtype or like.dtype) for out, n in sizes]


def _by_windows(
    measures: Sequence[Measure], block: Block, shape: Shape
) -> Sequence[tuple[Windows | None, list[Measure]]]:
    """Return the measures by what they look at, None for all: those that look at the same share a pass."""
    passes: dict[Windows | None, list[Measure]] = {}
    whole = (Window((0, shape[2]), (0, shape[3])),)
    for m in sorted(measures, key=_order):
        windows = None if type(m).windows is Measure.windows else tuple(m.windows(block, *shape[2:]))
        passes.setdefault(None if windows == whole else windows, []).append(m)
    return list(passes.items())


def over_tiles(
    block: Block, some: Sequence[Measure], windows: Windows | None
) -> Iterator[tuple[Tile, list[Tensors]]]:
    """Ask measures of the tiles of a block: pairs of a tile and what it contributes to each of them.

    On a CPU threads share the tiles; with gradients each is computed again in the backward pass.
    """
    inputs = least = block.inputs
    grad = torch.is_grad_enabled() and block.requires_grad
    for m in some:
        for x in m.factors:
            grad = grad or (x.requires_grad and torch.is_grad_enabled())
        for other in m.others:
            grad = grad or other.requires_grad
            least = least if shares_tiles(other.inputs) else other.inputs
    tiles = _cut(block, some, windows)
    if windows is not None:
        block = _with_lse(block, tiles)
    maker = WeightMaker(block, grad=grad)
    moves = bool(block.query or block.key)
    if grad:

        def ask_again(tile: Tile) -> list[Tensors]:
            x = maker.differentiable(tile)
            return [m.of_tile(x) for m in some]

        for tile in tiles:
            yield block.placed(tile), checkpoint(ask_again, tile, use_reentrant=False)
        return

    def ask(tile: Tile) -> list[Tensors]:
        scratch = Scratch.of(inputs)
        x = maker.in_place(tile, scratch)
        parts = [m.of_tile(x) for m in some]
        scratch.give_back()
        return parts

    # Threads share tiles only where they may share those of all: a score of the user's own is called here.
    for tile, parts in by_tile(least, ask, tiles):
        yield block.placed(tile) if moves else tile, parts


def _cut(block: Block, some: Sequence[Measure], windows: Windows | None) -> list[Tile]:
    """Return the tiles of a block that lie in these windows; those without a key contribute nothing."""
    inputs, tiles = block.inputs, list[Tile]()
    size, n_heads = tile_size(inputs), None
    for m in some:
        n_heads = inputs.shape[1] if m.all_heads else n_heads
    if windows is None:
        t, s = inputs.shape[2:]
        spans = [((0, t), (0, s))]
    else:
        own = block.window
        spans = [
            (_within(rows, own.rows, block.query), _within(columns, own.columns, block.key))
            for rows, columns in windows
        ]
    for queries, keys in spans:
        if queries[0] < queries[1] and keys[0] < keys[1]:
            tiles += inputs.tiles(size, queries, keys, n_heads=n_heads)
    return [x for x in tiles if x.columns[0] < x.columns[1]]


def _within(span: tuple[int, int], own: tuple[int, int], first: int) -> tuple[int, int]:
    return max(span[0], own[0]) - first, min(span[1], own[1]) - first


def _with_lse(block: Block, tiles: Sequence[Tile]) -> Block:
    """Return the block with log-sum-exps, which parts of rows need; with gradients where its inputs have."""
    lse = block.lse
    if block.is_certain or (lse is not None and (lse.requires_grad or not block.inputs.requires_grad)):
        return block
    if all(map(block.has_whole_rows, tiles)):
        return block
    return replace(block, lse=run([Lse()], Local(replace(block, query=0, key=0)))["lse"])


def tile_weights(block: Block, tile: Tile) -> Float[Tensor, "b h t s"]:
    """Return the weights of one tile, without gradients."""
    block = _with_lse(block.detached(), [tile])
    return WeightMaker(block).in_place(tile, Scratch(block.inputs)).w
