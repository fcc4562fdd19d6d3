"""Where weights come from: blocks of queries and keys, of one call, of the steps of a loop, of a ring.

A measure (``engine.py``) knows positions in the T x S that comes out. A block knows which of those positions
its queries and keys have, so a measure is written once for all sources.
"""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from sightline.look.inputs import PrecomputedWeights, ScoreInputs, Tile
from sightline.shapes import Float

__all__ = ["Block", "Local", "Out", "OutAxis", "Source", "Window"]

OutAxis = Literal["query", "key", "all"]


class Out(NamedTuple):
    """One tensor that a measure gives, (B, H, ...).

    Attributes:
        name: What a sight calls it.
        axis: What it has a number for: each ``query``, each ``key``, or neither (``all``). In a ring of
            processes each has its own queries and keys, and all have the same of the rest.
        fill: The value where a query may look at nothing, or no query looks at a key.
        dtype: That of the statistics if None.
    """

    name: str
    axis: OutAxis
    fill: float = 0.0
    dtype: torch.dtype | None = None


class Window(NamedTuple):
    """Some queries and some keys, ``(first, past_the_last)``, of the T x S that comes out."""

    rows: tuple[int, int]
    columns: tuple[int, int]


@dataclass(frozen=True, eq=False)
class Block:
    """Some queries, the keys that they look at, and where both are in the T x S that comes out.

    Attributes:
        inputs: What the scores are made of.
        lse: The log-sum-exp of each query. Float32 is a kernel's: it is believed as far as rows of weights
            then sum to one. Float64 has all digits. None if it is not known.
        query, key: The positions of the first query and the first key.
        position: Where the first query is among the keys of its sequence; None if it is at ``query``, as far
            as is known.
        recorded: Of weights that a model has computed itself, the log-sum-exp of their scores.
        is_part: Whether rows have more keys than these, as in a ring of processes; ``lse`` is of whole rows.
    """

    inputs: ScoreInputs
    lse: Float[Tensor, "B H T"] | None = None
    query: int = 0
    key: int = 0
    position: int | None = None
    is_part: bool = False
    recorded: Float[Tensor, "B H T"] | None = None

    @property
    def window(self) -> Window:
        """The queries and keys that it has."""
        t, s = self.inputs.shape[2:]
        return Window((self.query, self.query + t), (self.key, self.key + s))

    def placed(self, tile: Tile) -> Tile:
        """Return a tile of this block by its positions in the T x S that comes out."""
        if not self.query and not self.key:
            return tile
        (a, b), (c, d) = tile.rows, tile.columns
        return tile._replace(rows=(a + self.query, b + self.query), columns=(c + self.key, d + self.key))

    @property
    def is_certain(self) -> bool:
        """Whether ``lse`` is taken as it is: these weights alone can't show whether it is right."""
        return self.is_part or isinstance(self.inputs, PrecomputedWeights)

    def has_whole_rows(self, tile: Tile) -> bool:
        """Return whether a tile has all keys that its queries may look at, so that its rows sum to one."""
        if self.is_part or isinstance(self.inputs, PrecomputedWeights):
            return False
        mask, s = self.inputs.mask, self.inputs.k.size(2)
        low, high = mask.keys(tile.rows, self.inputs.q.size(2), s) if mask.bands else (0, s)
        return tile.columns[0] <= low and tile.columns[1] >= high

    @property
    def requires_grad(self) -> bool:
        """Whether its weights should be differentiable."""
        own = self.lse is not None and self.lse.requires_grad and torch.is_grad_enabled()
        return own or self.inputs.requires_grad

    def to(self, device: torch.device | str) -> "Block":
        """Return the same on another device."""
        lse, recorded = (None if x is None else x.to(device) for x in (self.lse, self.recorded))
        return replace(self, inputs=self.inputs.to(device), lse=lse, recorded=recorded)

    def detached(self) -> "Block":
        """Return the same without its history."""
        lse, recorded = (None if x is None else x.detach() for x in (self.lse, self.recorded))
        return replace(self, inputs=self.inputs.detached(), lse=lse, recorded=recorded)

    def select(self, items: "list[int] | slice", heads: "list[int] | slice") -> "Block":
        """Return some items of the batch and some heads."""
        b, h = self.inputs.shape[:2]
        items, heads = (list(range(n))[x] if isinstance(x, slice) else x for x, n in ((items, b), (heads, h)))
        lse, recorded = (None if x is None else x[items][:, heads] for x in (self.lse, self.recorded))
        return replace(self, inputs=self.inputs.select(items, heads), lse=lse, recorded=recorded)


@runtime_checkable
class Source(Protocol):
    """What a pass over weights goes through."""

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(B, H, T, S) of what comes out."""

    @property
    def like(self) -> Tensor:
        """A tensor with the device and the dtype of the statistics."""

    def blocks(self) -> Iterable[Block]:
        """Return the blocks, each with queries and keys that no other has together."""

    def reduce(self, parts: Sequence[tuple[OutAxis, str, Tensor]]) -> list[Tensor]:
        """Return what all processes have found together: a ``sum`` or a ``max``, by axis."""


class Local:
    """The blocks of this process alone: one of a call, one for each step of a decoding loop."""

    def __init__(self, *blocks: Block) -> None:
        self._blocks = blocks

    @functools.cached_property
    def shape(self) -> tuple[int, int, int, int]:
        """(B, H, T, S) of what comes out."""
        first = self._blocks[0]
        if len(self._blocks) == 1 and not first.query and not first.key:
            return first.inputs.shape
        windows = [block.window for block in self._blocks]
        return *first.inputs.shape[:2], max(x.rows[1] for x in windows), max(x.columns[1] for x in windows)

    @property
    def like(self) -> Tensor:
        """A tensor with the device and the dtype of the statistics."""
        inputs = self._blocks[0].inputs
        return inputs.q.new_empty(0, dtype=inputs.dtype)

    def blocks(self) -> Sequence[Block]:
        """Return the blocks."""
        return self._blocks

    def reduce(self, parts: Sequence[tuple[OutAxis, str, Tensor]]) -> list[Tensor]:
        """Return what was found as it is."""
        return [x for _, _, x in parts]
