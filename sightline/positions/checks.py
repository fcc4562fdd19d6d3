"""The sentences that answer a wrong length, width, base or input, shared by all of ``positions``."""

import math
import numbers
import operator

import torch
from torch import Tensor

from sightline.messages import shortened
from sightline.shapes import is_tensor
from sightline.untrusted import check_memory

Number = int | float  # what a float argument takes, spelled out for checkers at run time

_SMALL = 1 << 20  # numbers of a table that no machine lacks the memory for


def checked_count(name: str, value: int, least: int) -> int:
    """Take an integer that is at least so large.

    Example:
        >>> checked_count("length", -3, least=0)
        Traceback (most recent call last):
        ValueError: length must be at least 0, got -3
    """
    try:
        count = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, got {value!r}") from None
    is_array = hasattr(value, "dtype") and not isinstance(value, numbers.Integral)  # of no dimension
    if isinstance(value, bool) or is_array:
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    if count >= 1 << 63:
        raise ValueError(f"{name} must be a number of 64 bits, got {shortened(count)}")
    if count < least:
        raise ValueError(f"{name} must be at least {least}, got {count}")
    return count


def checked_table(rows: int, columns: int) -> None:
    """Refuse a table of positions that is larger than the memory."""
    if rows * columns > _SMALL:
        check_memory(8 * rows * columns, f"a table of {rows} x {columns} numbers")


def checked_real(name: str, value: object) -> float:
    """Take a finite number."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number, got {value!r}")
    if not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {value}")
    return float(value)


def checked_base(base: object) -> float:
    """Take the base of the wavelengths, a finite number above zero."""
    value = checked_real("base", base)
    if value <= 0:
        raise ValueError(f"base must be above 0, got {base}; the paper's is 10000")
    return value


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
