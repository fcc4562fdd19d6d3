"""One rank's queries and another rank's keys: rectangles of the whole T x S, with their part of the mask."""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from torch import Tensor

from sightline.attention.band import Band
from sightline.attention.mask_shapes import cut
from sightline.attention.masks import Mask
from sightline.look.inputs import ScoreInputs
from sightline.look.sharded.axes import Spans
from sightline.look.source import Block
from sightline.shapes import Float

__all__ = ["Rectangle", "mask_block", "rectangles_of"]


class Rectangle(NamedTuple):
    """A block of a ring: some of this rank's queries, and some of the visiting keys.

    Attributes:
        block: What it is made of, and its positions in the whole sequence.
        rows: Which of this rank's queries these are.
        columns: Which of the visiting keys.
    """

    block: Block
    rows: slice
    columns: slice


def rectangles_of(
    inputs: ScoreInputs,
    lse: Float[Tensor, "B H T"] | None,
    keys: Tensor,
    queries_at: Spans,
    keys_at: Spans,
    whole: tuple[int, int],
) -> Iterator[Rectangle]:
    """Yield every rectangle in which something may be looked at.

    Args:
        inputs: This rank's queries, and the mask of the whole: its tensors have a row for each of this
            rank's queries, or one for all, and a column for each key of the whole.
        lse: The log-sum-exp of whole rows, float64; None if it is not known yet.
        keys: The visiting keys.
        queries_at, keys_at: Where the queries and the visiting keys stand.
        whole: T and S.
    """
    row = 0
    for queries in queries_at:
        rows = slice(row, row + queries[1] - queries[0])
        row, column = rows.stop, 0
        for visitors in keys_at:
            columns = slice(column, column + visitors[1] - visitors[0])
            column = columns.stop
            if rows.start == rows.stop or columns.start == columns.stop:
                continue
            mask = mask_block(inputs.mask, queries, visitors, rows, whole)
            if mask is None:
                continue
            part = replace(inputs, q=inputs.q[:, :, rows], k=keys[:, :, columns], mask=mask, versions=None)
            known = None if lse is None else lse[:, :, rows]
            block = Block(part, known, queries[0], visitors[0], queries[0], is_part=True)
            yield Rectangle(block, rows, columns)


def mask_block(
    mask: Mask, queries: tuple[int, int], keys: tuple[int, int], rows: slice, whole: tuple[int, int]
) -> Mask | None:
    """A mask's part of a rectangle, as a mask of its own; None if nothing may be looked at, by position.

    Args:
        mask: Fitted to this rank's queries and all keys.
        queries, keys: Where the rectangle lies in T x S.
        rows: Which of this rank's queries these are.
        whole: T and S.
    """
    t, s = queries[1] - queries[0], keys[1] - keys[0]
    left: int | None = None
    right: int | None = None
    for band in mask.bands:
        # query i and key j of the block are queries[0] + i and keys[0] + j of the whole
        shift = queries[0] - keys[0] + (whole[1] - whole[0] if band.align == "end" else 0)
        if band.left is not None:
            left = band.left - shift if left is None else min(left, band.left - shift)
        if band.right is not None:
            right = band.right + shift if right is None else min(right, band.right + shift)
    if (right is not None and t - 1 + right < 0) or (left is not None and s - 1 + left < 0):
        return None
    band = Band(left, right, "start").clipped(t, s)
    bands = () if band.left is None and band.right is None else (band,)
    return Mask(
        bands=bands,
        lengths=tuple((x - keys[0]).clamp(min=0) for x in mask.lengths),
        allowed=tuple(cut(x, (rows.start, rows.stop), keys) for x in mask.allowed),
        added=tuple(cut(x, (rows.start, rows.stop), keys) for x in mask.added),
    )
