"""Positions as rotations of queries and keys (Su et al., 2021): nothing is added, and only distance counts.

    q'_t = R(t) q_t        k'_s = R(s) k_s        q'_t · k'_s = q_t · R(s - t) k_s

R(t) turns each pair of channels by the angle ``t · base^(-2i / D)``. **Which channels make a pair** differs
between code bases: here channel i is paired with channel i + D/2 (the half-split, "rotate half" layout of
Llama-like checkpoints), not with its neighbour as in the paper. The two differ by a fixed order of the
channels; weights trained with one need their projections reordered for the other.
"""

import torch
from torch import Tensor, nn

from sightline.messages import check_integer, check_number
from sightline.positions.checks import Number, check_input
from sightline.positions.sinusoidal import frequencies
from sightline.shapes import Float, Shaped, is_tensor, shown


class Rotary(nn.Module):
    """Rotate queries and keys by their positions. It has no parameters and no state.

        x'[i]       = x[i] cos θ_i - x[i + D/2] sin θ_i
        x'[i + D/2] = x[i + D/2] cos θ_i + x[i] sin θ_i        θ_i = pos · base^(-2i / D)

    Angles are computed in float64, so that positions in the millions keep their digits, and half
    precision is turned in float32 and rounded once.

    Args:
        d_head: Width of the queries and keys, D; even.
        base: Sets the longest wavelength, about ``2π · base`` positions.

    Example:
        >>> rotary = Rotary(4)
        >>> q, k = torch.ones(1, 3, 4), torch.ones(1, 3, 4)
        >>> q, k = rotary(q, k)
        >>> q @ k.mT                                   # depends on the distance alone
        tensor([[[4.0000, 3.0805, 1.1673],
                 [3.0805, 4.0000, 3.0805],
                 [1.1673, 3.0805, 4.0000]]])
    """

    def __init__(self, d_head: int, base: Number = 10000.0) -> None:
        super().__init__()
        check_integer("d_head", d_head, at_least=2)
        check_number("base", base, above=0)
        if d_head % 2:
            raise ValueError(
                f"d_head must be even, its channels are turned in pairs, got {d_head}; take {d_head + 1}"
            )
        self.d_head, self.base = d_head, float(base)

    def forward(
        self,
        q: Float[Tensor, "... D"],
        k: Float[Tensor, "... D"],
        *,
        offset: int = 0,
        positions: Shaped[Tensor, "..."] | None = None,
    ) -> tuple[Float[Tensor, "... D"], Float[Tensor, "... D"]]:
        """Rotate q and k ``(..., T, D)`` at the same positions; their numbers of heads may differ.

        Args:
            q: Queries.
            k: Keys of the same tokens, turned before they are cached.
            offset: The number of tokens before these, for decoding with a cache.
            positions: Instead of ``offset``, where each token stands: ``(T,)``, or ``(B, T)`` for a row
                of its own for each item of the batch, or any shape that broadcasts to ``(..., T)``.
        """
        is_tensor(q, "q")
        is_tensor(k, "k")
        if q.shape[-2:-1] != k.shape[-2:-1]:
            raise ValueError(
                f"q and k must have the same length T to stand at the same positions, got {shown(q=q, k=k)}; "
                "turn them one by one, rotary.rotate(q, offset=...)"
            )
        return self.rotate(q, offset=offset, positions=positions), self.rotate(
            k, offset=offset, positions=positions
        )

    def rotate(
        self,
        x: Float[Tensor, "... T D"],
        *,
        offset: int = 0,
        positions: Shaped[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "... T D"]:
        """Rotate queries or keys alone."""
        check_input(x, self.d_head, "..., T, D", called="d_head")
        if positions is None:
            check_integer("offset", offset, at_least=0)
            positions = torch.arange(offset, offset + x.size(-2), device=x.device)
        elif offset:
            raise ValueError(f"give offset or positions, not both, got offset={offset} with positions")
        else:
            positions = _fitted(positions, x)
        exact = torch.float32 if x.device.type == "mps" else torch.float64  # which mps has not
        rate = frequencies(self.d_head, self.base).to(x.device, exact)
        angle = positions.to(x.device, exact)[..., None] * rate  # (..., T, D / 2)
        wide = torch.promote_types(x.dtype, torch.float32)
        cos, sin = angle.cos().to(wide), angle.sin().to(wide)
        first, second = x.to(wide).chunk(2, dim=-1)
        turned = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
        return turned.to(x.dtype)

    def extra_repr(self) -> str:
        """What ``print(module)`` shows."""
        return f"{self.d_head}, base={self.base:g}"


def _fitted(positions: Tensor, x: Tensor) -> Tensor:
    """Line positions up with ``(..., T)``: those of a batch, ``(B, T)``, are the same for all its heads."""
    is_tensor(positions, "positions")
    if positions.dtype == torch.bool or positions.is_complex():
        raise TypeError(f"positions must be integers or real numbers, got {positions.dtype}")
    lead, shape = tuple(x.shape[:-1]), tuple(positions.shape)
    if 2 <= len(shape) < len(lead):
        shape = (*shape[:-1], *(1,) * (len(lead) - len(shape)), shape[-1])
    if len(shape) > len(lead) or any(n not in (1, m) for n, m in zip(shape[::-1], lead[::-1], strict=False)):
        raise ValueError(
            f"positions must be (T,), (B, T) or broadcast to (..., T) = {lead}, got positions "
            f"{tuple(positions.shape)} for x {tuple(x.shape)}"
        )
    return positions.reshape(shape)
