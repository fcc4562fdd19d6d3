"""The sentences that answer a wrong size, dtype or input, shared by all of ``positions``."""

import torch
from torch import Tensor

from sightline.messages import check_integer, format_value
from sightline.shapes import is_tensor
from sightline.untrusted import check_memory

Number = int | float  # what a float argument takes, spelled out for checkers at run time

_SMALL = 1 << 20  # numbers of a table that no machine lacks the memory for


def checked_table(rows: int, columns: int) -> None:
    """Refuse a table of positions that is larger than the memory."""
    if rows * columns > _SMALL:
        check_memory(8 * rows * columns, f"a table of {rows} x {columns} numbers")


def check_grid(grid: object, *, at_least: int) -> None:
    """Refuse what is not a number of rows and one of columns."""
    if not isinstance(grid, tuple | list) or len(grid) != 2:
        raise TypeError(f"grid must be two whole numbers, rows and columns, got {format_value(grid)}")
    for side in grid:
        check_integer("a side of the grid", side, at_least=at_least)


def checked_dtype(dtype: object) -> torch.dtype:
    """Take a floating point dtype, torch's default where none is given."""
    if dtype is None:
        return torch.get_default_dtype()
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise TypeError(f"positions are real numbers, dtype must be a torch float dtype, got {dtype}")
    return dtype


def check_input(x: Tensor, width: int, layout: str, *, called: str = "d_model") -> None:
    """Refuse an input without the dimensions of ``layout``, its last one of this width."""
    is_tensor(x, "x")
    if not x.is_floating_point() or x.element_size() == 1:
        raise TypeError(f"x must be a float tensor, got {x.dtype}; embed token ids before adding positions")
    least = len(layout.replace("...", "").replace(",", " ").split())
    if x.dim() < least:
        raise ValueError(f"x must have the dimensions ({layout}), got shape {tuple(x.shape)}")
    if x.size(-1) != width:
        raise ValueError(
            f"x must be {called}={width} wide in its last dimension, got width {x.size(-1)} for shape "
            f"{tuple(x.shape)}"
        )
