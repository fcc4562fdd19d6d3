"""A trained vector for every position: what most models since BERT do.

    x[..., t, :] + weight[offset + t]

It costs parameters, knows nothing of distance until it has learned it, and ends at ``max_length``.
"""

import torch
from torch import Tensor, nn

from sightline.messages import check_integer
from sightline.positions.checks import check_input, checked_table
from sightline.shapes import Float, check_device


class LearnedPositions(nn.Module):
    """Add a learned vector to every token, one for each of ``max_length`` positions.

    Args:
        max_length: How many positions there are; a longer input is refused.
        d_model: Width of the tokens, E.
        dtype, device: Of the parameter.

    Attributes:
        weight: ``(max_length, E)``, drawn from a normal distribution of deviation 0.02: small beside
            the tokens, so that training starts from what they say.

    Example:
        >>> positions = LearnedPositions(max_length=5, d_model=4)
        >>> positions(torch.zeros(2, 3, 4)).shape
        torch.Size([2, 3, 4])
    """

    def __init__(
        self,
        max_length: int,
        d_model: int,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        check_integer("max_length", max_length, at_least=1)
        check_integer("d_model", d_model, at_least=1)
        check_device(device)
        checked_table(max_length, d_model)
        self.max_length, self.d_model = max_length, d_model
        self.weight = nn.Parameter(torch.empty(max_length, d_model, dtype=dtype, device=device))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the vectors anew."""
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, x: Float[Tensor, "... T E"], *, offset: int = 0) -> Float[Tensor, "... T E"]:
        """Add positions ``offset`` to ``offset + T - 1``, where ``offset`` tokens were cached before."""
        check_input(x, self.d_model, "..., T, E")
        check_integer("offset", offset, at_least=0)
        last = offset + x.size(-2)
        if last > self.max_length:
            after = f" after offset={offset}" if offset else ""
            raise ValueError(
                f"learned positions end at max_length={self.max_length}, got T={x.size(-2)}{after}; build "
                "the module longer, or take SinusoidalPositions, which have no end"
            )
        return x + self.weight[offset:last].to(x.dtype)

    def extra_repr(self) -> str:
        """What ``print(module)`` shows."""
        return f"{self.max_length}, {self.d_model}"
