"""Positions in an image: half of the channels tell the row, half the column.

    PE[r, c, :E/2] = PE[r]        PE[r, c, E/2:] = PE[c]        each of width E / 2

Both halves are the one-dimensional table of ``sinusoidal.py``, so moving down or right is again a linear
map, and an image of another size than those seen in training still has positions.
"""

import torch
from torch import Tensor

from sightline.messages import check_integer
from sightline.positions.checks import Number, check_grid, check_input
from sightline.positions.sinusoidal import SinusoidTable, sinusoidal
from sightline.shapes import Float


def sinusoidal_2d(
    height: int,
    width: int,
    d_model: int,
    *,
    base: Number = 10000.0,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Float[Tensor, "height width E"]:
    """The positions of a grid: channels ``[:E/2]`` encode the row, channels ``[E/2:]`` the column.

    Args:
        height: Rows of the grid, in patches.
        width: Columns of the grid.
        d_model: Number of channels, E. Even, to be halved; a multiple of four keeps every sine beside
            its cosine in both halves.
        base: As for :func:`~sightline.positions.sinusoidal`.
        dtype: Of the result. Default: torch's default dtype.
        device: Of the result.

    Returns:
        ``(height, width, E)``. ``.flatten(0, 1)`` gives ``(P, E)`` for patches numbered row by row.

    Example:
        >>> grid = sinusoidal_2d(2, 3, 4)
        >>> grid[1, 2]                         # row 1: sin 1, cos 1; column 2: sin 2, cos 2
        tensor([ 0.8415, 0.5403, 0.9093, -0.4161])
    """
    check_integer("height", height, at_least=0)
    check_integer("width", width, at_least=0)
    table = sinusoidal(max(height, width), _half(d_model), base=base, dtype=dtype, device=device)
    return _grid(table, height, width)


class SinusoidalPositions2d(SinusoidTable):
    """Add the position in the grid to every patch: ``x[..., r, c, :] + PE[r, c]``.

    Patches that lie in a grid, ``(..., height, width, E)``, are taken as they are. Patches that were
    flattened row by row, ``(..., P, E)``, need the grid they came from: ``positions(x, grid=(h, w))``.

    Args:
        d_model: Number of channels, E; even.
        base: As for :func:`~sightline.positions.sinusoidal`.

    Example:
        >>> positions = SinusoidalPositions2d(4)
        >>> patches = torch.zeros(1, 2, 3, 4)
        >>> flat = positions(patches.flatten(1, 2), grid=(2, 3))
        >>> torch.equal(flat, positions(patches).flatten(1, 2))
        True
    """

    def __init__(self, d_model: int, *, base: Number = 10000.0) -> None:
        super().__init__(_half(d_model), 32, base)
        self.d_model = d_model

    def forward(
        self, x: Float[Tensor, "... E"], *, grid: tuple[int, int] | None = None
    ) -> Float[Tensor, "... E"]:
        """Add the positions to ``(..., height, width, E)``, or with ``grid`` to ``(..., P, E)``."""
        if grid is None:
            check_input(x, self.d_model, "..., height, width, E")
            height, width = x.shape[-3:-1]
        else:
            check_input(x, self.d_model, "..., P, E")
            check_grid(grid, at_least=0)
            height, width = grid
            if height * width != x.size(-2):
                raise ValueError(
                    f"a grid of {height} x {width} has {height * width} patches, got P={x.size(-2)} for x "
                    f"{tuple(x.shape)}; take class tokens off before adding positions"
                )
        positions = _grid(self.rows(0, max(height, width), x), height, width)  # (height, width, E)
        return x + (positions if grid is None else positions.flatten(0, 1))

    def extra_repr(self) -> str:
        """What ``print(module)`` shows."""
        return f"{self.d_model}, base={self.base:g}"


def _grid(table: Float[Tensor, "side half"], height: int, width: int) -> Float[Tensor, "height width E"]:
    half = table.size(1)
    grid = table.new_empty(
        height, width, 2 * half
    )  # torch.cat refuses one kind of half precision in autocast
    grid[..., :half], grid[..., half:] = table[:height, None], table[:width]
    return grid


def _half(d_model: int) -> int:
    check_integer("d_model", d_model, at_least=2)
    if d_model % 2:
        raise ValueError(
            f"d_model must be even, half for the row and half for the column, got {d_model}; "
            f"take {d_model + 1}"
        )
    return d_model // 2
