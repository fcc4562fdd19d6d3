"""A learned bias for each distance in a grid: attention that knows where its neighbours are.

    score[h, i, j] = q[h, i] . k[h, j] / sqrt(d) + table[h, row of j - row of i, column of j - column of i]

A Transformer without it has to learn what a neighbour is before it can see an edge that crosses from one
patch to the next. Here each head begins at one neighbour, as a convolution does (Cordonnier et al., 2020;
d'Ascoli et al., 2021), and is free to look elsewhere from the first step on.
"""

import torch
from torch import Tensor, nn

from sightline.messages import check_integer
from sightline.positions.checks import check_grid, checked_table
from sightline.shapes import Float

__all__ = ["RelativeBias2d"]

_LEAST = -8.0  # what is far is hard to see at first, not forbidden: exp(-8) of the neighbour's weight


class RelativeBias2d(nn.Module):
    """A table of biases, one for each head, distance in rows and distance in columns.

    Args:
        n_heads: Heads, H. Head h begins at the h-th nearest other cell: the four sides, then the corners.
        grid: Rows and columns, r and c; cells are numbered row by row, P = r c.

    Attributes:
        table: ``(H, 2 r - 1, 2 c - 1)``; the middle is a cell itself.

    Example:
        >>> bias = RelativeBias2d(4, (2, 3))()
        >>> bias.shape
        torch.Size([4, 6, 6])
        >>> bias[:, 1].argmax(-1)      # of the first row's middle: nothing is above, left, right, below
        tensor([1, 0, 2, 4])
    """

    places: Tensor

    def __init__(self, n_heads: int, grid: tuple[int, int]) -> None:
        super().__init__()
        check_integer("n_heads", n_heads, at_least=1)
        check_grid(grid, at_least=1)
        rows, columns = grid
        checked_table(n_heads, 4 * rows * columns)
        checked_table(rows * columns, 3 * rows * columns)
        self.table = nn.Parameter(_beginnings(n_heads, rows, columns))
        cells = torch.cartesian_prod(torch.arange(rows), torch.arange(columns))
        down, across = (cells[None] - cells[:, None]).unbind(-1)  # (P, P) each: of the key, from the query
        places = (down + rows - 1) * (2 * columns - 1) + across + columns - 1
        self.register_buffer("places", places, persistent=False)

    def forward(self) -> Float[Tensor, "H P P"]:
        """The bias of every pair of cells, to be added to their scores."""
        return self.table.flatten(1)[:, self.places]


def _beginnings(n_heads: int, rows: int, columns: int) -> Float[Tensor, "H y x"]:
    """Minus the squared distance from each head's own neighbour."""
    down, across = torch.meshgrid(
        torch.arange(1.0 - rows, rows), torch.arange(1.0 - columns, columns), indexing="ij"
    )
    far = [(down - y).square() + (across - x).square() for y, x in _nearest(n_heads)]
    return (0 - torch.stack(far)).clamp(min=_LEAST)


def _nearest(n: int) -> list[tuple[int, int]]:
    """The n nearest other cells of an endless grid, as rows down and columns across."""
    reach = range(-n, n + 1)
    others = [(y, x) for y in reach for x in reach if (y, x) != (0, 0)]
    return sorted(others, key=lambda cell: cell[0] ** 2 + cell[1] ** 2)[:n]
