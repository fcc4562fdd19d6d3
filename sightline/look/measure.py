"""``Measure``: a question about attention weights, answered tile by tile."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, inf

from sightline.look.inputs import Tile
from sightline.look.source import Block, Out, OutAxis, Window
from sightline.look.weights import TileWeights
from sightline.shapes import Bool

__all__ = ["Lse", "Measure", "Tensors", "nan_where"]

Tensors = tuple[Tensor, ...]


class Measure:
    """A question about weights, answered tile by tile. Subclass it for a statistic of your own.

    Set ``outputs`` and define ``of_tile``; the rest has defaults. A measure is a value that does not change:
    use a frozen dataclass with ``eq=False`` if it has options.

    Attributes:
        outputs: The tensors that it gives.
        op: How parts of one place are put together: ``"sum"``, ``"max"``, or ``"own"`` by ``join``.
        order: 0 for a measure that shares what it computes, 1, or 2 for one that writes over ``log2_w``.
        whole_rows: Whether a tile must have all keys of its queries.
        all_heads: Whether a tile must have all heads.
        has_gradients: Whether answers carry gradients where the look did.
        others: Blocks of which it makes weights itself; gradients may flow into them too.
        factors: Tensors that it multiplies weights with; gradients may flow into them too.

    Example:
        >>> class Square(sl.Measure):
        ...     \"\"\"Σ w², one over the number of keys that a query looks at alike.\"\"\"
        ...     outputs = (sl.measures.Out("square", "query"),)
        ...     def of_tile(self, x):
        ...         return (x.w.square().sum(-1),)
        >>> q = torch.zeros(1, 1, 4, 8)
        >>> sl.look(q, q, q, measure=[Square()])["square"]
        tensor([[[0.2500, 0.2500, 0.2500, 0.2500]]])
    """

    outputs: ClassVar[tuple[Out, ...]]
    op: str = "sum"
    order: int = 1
    whole_rows: bool = False
    all_heads: bool = False
    has_gradients: bool = True
    others: Sequence[Block] = ()
    factors: Sequence[Tensor] = ()

    def fit(self, t: int, s: int, n_calls: int = 1) -> "Measure":  # noqa: ARG002
        """Return the measure for a call of T queries and S keys, or for several stacked along the batch."""
        return self

    def check(self, t: int, s: int) -> None:
        """Refuse to be asked of T queries and S keys; a watched call that has too few answers what it can."""

    def sizes(self, t: int, s: int) -> Sequence[tuple[int, ...]]:
        """Return the shape of each output after (B, H)."""
        return [(t,) if out.axis == "query" else (s,) for out in self.outputs]

    def windows(self, block: Block, t: int, s: int) -> Sequence[Window]:  # noqa: ARG002
        """Return the queries and keys that have to be looked at."""
        return (Window((0, t), (0, s)),)

    def of_tile(self, x: TileWeights) -> Tensors:
        """Return what a tile contributes, one tensor for each output."""
        raise NotImplementedError(f"{type(self).__name__} has no of_tile(self, x); it reduces a tile x.w")

    def place(self, tile: Tile) -> Sequence[tuple[slice, ...]]:
        """Return where the parts of a tile belong, after (B, H)."""
        return [(slice(*(tile.rows if out.axis == "query" else tile.columns)),) for out in self.outputs]

    def join(self, old: Tensors, new: Tensors) -> Tensors:
        """Return what is known of a place and what is new of it as one."""
        return tuple(map(torch.maximum if self.op == "max" else torch.add, old, new))

    def finish(self, *found: Tensor) -> dict[str, Tensor]:
        """Return the answers by name, from the whole outputs."""
        return {out.name: x for out, x in zip(self.outputs, found, strict=True)}

    def hide(self, answers: dict[str, Tensor], padding: Bool[Tensor, "B H T"]) -> dict[str, Tensor]:
        """Return the answers without those of queries that are padding."""
        return {
            name: nan_where(padding, x) if self.axis_of(name) == "query" and x.is_floating_point() else x
            for name, x in answers.items()
        }

    def axis_of(self, name: str) -> OutAxis:
        """Return what an answer has a number for; what ``finish`` adds has that of the outputs."""
        axes = {out.name: out.axis for out in self.outputs}
        same = set(axes.values())
        return axes.get(name) or (same.pop() if len(same) == 1 else "all")

    def __call__(self, *_: Any) -> Any:
        """Refuse to be called: a measure is handed to a look."""
        raise TypeError(f"{type(self).__name__} is a measure; ask it with sight.ask(...) or measure=[...]")


class Lse(Measure):
    """The log-sum-exp of each query's scores. Blocks of the same queries meet by logaddexp."""

    outputs, op = (Out("lse", "query", -inf, torch.float64),), "own"

    def of_tile(self, x: TileWeights) -> Tensors:
        """Return the log-sum-exp of the tile's queries."""
        return (x.lse.double(),)

    def join(self, old: Tensors, new: Tensors) -> Tensors:
        """Return the log-sum-exp over both."""
        return (torch.logaddexp(old[0], new[0]),)


def nan_where(hidden: Bool[Tensor, "..."], x: Tensor) -> Tensor:
    """Return x with NaN where ``hidden`` is True, which may have fewer dimensions at the end."""
    return x.masked_fill(hidden.reshape(*hidden.shape, *(1,) * (x.dim() - hidden.dim())), torch.nan)
