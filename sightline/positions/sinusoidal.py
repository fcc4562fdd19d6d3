"""A vector of sines and cosines for every position (Vaswani et al., 2017, section 3.5).

    PE[pos, 2i]     = sin(pos / base^(2i / E))
    PE[pos, 2i + 1] = cos(pos / base^(2i / E))

Each pair of columns is the hand of a clock: the first turns by one radian a position, the last takes
about ``base`` positions for it. Moving on by an offset turns every hand by a known angle, so it is a
linear map, :func:`shift_matrix`, the same for all positions: that is what lets a model look "three back".
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from sightline.messages import check_integer, check_number
from sightline.positions.checks import (
    Number,
    check_input,
    checked_dtype,
    checked_table,
)
from sightline.shapes import Float, check_device


def sinusoidal(
    length: int,
    d_model: int,
    *,
    base: Number = 10000.0,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Float[Tensor, "T E"]:
    """The table of positions 0 to ``length - 1``, computed in float64 and rounded once.

        PE[pos, 2i] = sin(pos / base^(2i / E))        PE[pos, 2i + 1] = cos(the same)

    Args:
        length: How many positions, T.
        d_model: Width of the table, E. With an odd one the last sine has no cosine beside it.
        base: Sets the longest wavelength, about ``2π · base`` positions.
        dtype: Of the result. Default: torch's default dtype.
        device: Of the result.

    Raises:
        ValueError: If ``length`` is negative, ``d_model`` is below one or ``base`` not above zero.

    Example:
        >>> sinusoidal(3, 4)
        tensor([[ 0.0000,  1.0000,  0.0000,  1.0000],
                [ 0.8415,  0.5403,  0.0100,  0.9999],
                [ 0.9093, -0.4161,  0.0200,  0.9998]])
    """
    check_integer("length", length, at_least=0)
    check_integer("d_model", d_model, at_least=1)
    check_device(device)
    checked_table(length, d_model)
    table = _encoded(0, length, d_model, base)
    return table.to(
        device=torch.get_default_device() if device is None else device, dtype=checked_dtype(dtype)
    )


def shift_matrix(
    offset: Number,
    d_model: int,
    *,
    base: Number = 10000.0,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Float[Tensor, "E E"]:
    """The linear map that moves every position on by ``offset``: ``PE[pos + offset] = M @ PE[pos]``.

        [sin ω(t + φ)]   [ cos ωφ  sin ωφ] [sin ωt]
        [cos ω(t + φ)] = [-sin ωφ  cos ωφ] [cos ωt]        for each pair of columns, φ the offset

    A table of positions is moved as a whole by ``PE @ M.T``. Rotations add up: the map of 2 times the
    map of 3 is the map of 5, and that of -3 undoes that of 3.

    Args:
        offset: How many positions to move on, negative for back.
        d_model: Width of the table, E; even, since a sine without its cosine can't be turned.
        base: As for :func:`sinusoidal`.
        dtype: Of the result. Default: torch's default dtype.
        device: Of the result.

    Example:
        >>> table = sinusoidal(8, 6)
        >>> torch.allclose(shift_matrix(3, 6) @ table[2], table[5], atol=1e-6)
        True
    """
    check_number("offset", offset)
    check_integer("d_model", d_model, at_least=1)
    check_device(device)
    if d_model % 2:
        raise ValueError(
            f"d_model must be even for a shift to be linear, got {d_model}: the last sine has no cosine to "
            f"turn with; take {d_model + 1}"
        )
    checked_table(d_model, d_model)
    turn = offset * frequencies(d_model, base)  # (E / 2,)
    sine = torch.arange(0, d_model, 2, device="cpu")
    cosine = sine + 1
    matrix = torch.zeros(d_model, d_model, dtype=torch.float64, device="cpu")
    matrix[sine, sine] = matrix[cosine, cosine] = turn.cos()
    matrix[sine, cosine] = turn.sin()
    matrix[cosine, sine] = -turn.sin()
    return matrix.to(
        device=torch.get_default_device() if device is None else device, dtype=checked_dtype(dtype)
    )


def frequencies(d_model: int, base: Number) -> Float[Tensor, " half"]:
    """How many radians each pair of columns turns a position: ``base^(-2i / E)``, in float64."""
    check_number("base", base, above=0)
    even = torch.arange(0, d_model, 2, dtype=torch.float64, device="cpu")  # not every device has float64
    return torch.pow(base, -even / d_model)


def _encoded(first: int, last: int, d_model: int, base: Number) -> Float[Tensor, "T E"]:
    """The rows of positions ``first`` to ``last - 1``, in float64."""
    rate = frequencies(d_model, base)
    angle = torch.arange(first, last, dtype=torch.float64, device="cpu")[:, None] * rate  # (T, ceil(E / 2))
    table = torch.empty(last - first, d_model, dtype=torch.float64, device="cpu")
    table[:, 0::2] = angle.sin()
    table[:, 1::2] = angle[:, : d_model // 2].cos()
    return table


class SinusoidTable(nn.Module):
    """A table of :func:`sinusoidal`, kept ready but not saved, with no end: later rows are computed.

    The table never changes in use, so that copies of a module on several devices stay alike. Casting or
    moving the module computes it anew: a cast one would keep float32's digits in float64, and one that
    comes from the meta device would hold nothing at all.
    """

    table: Tensor

    def __init__(self, width: int, length: int, base: Number) -> None:
        super().__init__()
        self.width, self.base = width, base
        self.register_buffer("table", sinusoidal(length, width, base=base), persistent=False)

    def rows(self, first: int, last: int, like: Tensor) -> Float[Tensor, "T E"]:
        """Positions ``first`` to ``last - 1``, in the dtype and on the device of ``like``."""
        ready = last <= self.table.size(0)
        rows = self.table[first:last] if ready else _encoded(first, last, self.width, self.base)
        return rows.to(device=like.device, dtype=like.dtype)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        old = self.table
        self.table = sinusoidal(old.size(0), self.width, base=self.base, dtype=old.dtype, device=old.device)
        return self


class SinusoidalPositions(SinusoidTable):
    """Add the sinusoidal position to every token: ``x[..., t, :] + PE[offset + t]``.

    Args:
        d_model: Width of the tokens, E.
        max_length: How many positions to keep ready. Those beyond are computed when asked for.
        base: As for :func:`sinusoidal`.

    Example:
        >>> positions = SinusoidalPositions(4)
        >>> positions(torch.zeros(1, 1, 4), offset=2)              # the third token, decoded alone
        tensor([[[ 0.9093, -0.4161,  0.0200,  0.9998]]])
    """

    def __init__(self, d_model: int, max_length: int = 512, *, base: Number = 10000.0) -> None:
        check_integer("max_length", max_length, at_least=1)
        super().__init__(d_model, max_length, base)
        self.d_model = d_model

    def forward(self, x: Float[Tensor, "... T E"], *, offset: int = 0) -> Float[Tensor, "... T E"]:
        """Add positions ``offset`` to ``offset + T - 1``, where ``offset`` tokens were cached before."""
        check_input(x, self.d_model, "..., T, E")
        check_integer("offset", offset, at_least=0)
        return x + self.rows(offset, offset + x.size(-2), x)

    def extra_repr(self) -> str:
        """What ``print(module)`` shows."""
        return f"{self.d_model}, base={self.base:g}"
