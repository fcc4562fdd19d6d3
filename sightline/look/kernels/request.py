"""What one launch of the kernels of weights finds out, and what it has found."""

from typing import NamedTuple

from torch import Tensor

from sightline.look.cells import Cells
from sightline.shapes import Float, Int

__all__ = ["Cells", "Stats", "StatsRequest"]


class StatsRequest(NamedTuple):
    """What a pass should find out."""

    received: bool = False
    entropy: bool = False
    peak: bool = False
    cells: Cells | None = None
    top: int | None = None


class Stats(NamedTuple):
    """What it found; None for what it was not asked. All differentiable but indices, cells and top."""

    lse: Float[Tensor, "B H T"]
    received: Float[Tensor, "B H S"] | None
    entropy: Float[Tensor, "B H T"] | None
    peak: Float[Tensor, "B H T"] | None
    peak_at: Int[Tensor, "B H T"] | None
    cells: Float[Tensor, "B H rows columns"] | None
    top: Float[Tensor, "B H T K"] | None
    top_at: Int[Tensor, "B H T K"] | None
