"""What the backward pass tells of one attention: the gradient of its output."""

from dataclasses import dataclass

import torch
from torch import Tensor

from sightline.look.inputs import as_index
from sightline.shapes import Float

__all__ = ["OutputGradient"]


@dataclass(eq=False, kw_only=True)
class OutputGradient:
    """The values and the output of a call, and the gradient of that output once it is known.

    Attributes:
        v: The values, (B, Hkv, S, Dv).
        output: What the heads gave, (B, H, T, Dv).
    """

    v: Float[Tensor, "B Hkv S Dv"]
    output: Float[Tensor, "B H T Dv"]
    _gradient: Tensor | None = None
    _parent: "OutputGradient | None" = None
    _index: tuple[list[int], list[int]] = ([], [])

    def add(self, gradient: Float[Tensor, "B H T Dv"]) -> None:
        """Note what a backward pass has brought; several add up."""
        gradient = gradient.detach()
        self._gradient = gradient if self._gradient is None else self._gradient + gradient

    @property
    def gradient(self) -> Float[Tensor, "B H T Dv"] | None:
        """The gradient of the output; None before the backward pass."""
        if self._parent is None:
            return self._gradient
        whole = self._parent.gradient
        batch, heads = self._index
        return None if whole is None else whole[as_index(batch)][:, as_index(heads)]

    def select(self, batch: list[int], heads: list[int]) -> "OutputGradient":
        """The same of some items and heads; it learns what this one learns."""
        group = self.output.size(1) // self.v.size(1)
        v = self.v[as_index(batch)][:, as_index([head // group for head in heads])]
        output = self.output[as_index(batch)][:, as_index(heads)]
        return OutputGradient(v=v, output=output, _parent=self, _index=(batch, heads))

    def to(self, device: torch.device | str) -> "OutputGradient":
        """A copy of what is known so far on another device; the same one where it is there already."""
        if self.v.device == torch.device(device):
            return self
        gradient = self.gradient
        known = None if gradient is None else gradient.to(device)
        return OutputGradient(v=self.v.to(device), output=self.output.to(device), _gradient=known)
