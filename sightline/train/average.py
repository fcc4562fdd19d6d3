"""Means of weights: a moving one over steps, and the plain one over the last epochs."""

import copy
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from sightline.train.checkpoint import read_tensors, weights_of

__all__ = ["Ema", "mean_of"]


class Ema:
    """A copy of a model whose weights follow the model's with a moving mean.

        mean = d mean + (1 - d) weights        d = min(decay, (1 + step) / (10 + step))

    The decay begins low, so that the random weights of the start are soon forgotten.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        self.decay = decay
        pairs = list(zip(self.model.parameters(), model.parameters(), strict=True))
        # What is frozen in the model never moves.
        self._mean: list[Tensor] = [mean for mean, new in pairs if new.requires_grad]
        self._new: list[Tensor] = [new for _, new in pairs if new.requires_grad]
        self._buffers = list(zip(self.model.buffers(), model.buffers(), strict=True))

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Follow the model after its step, counted from 1."""
        decay = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(self._mean, self._new, 1 - decay)  # as torch.optim does

    @torch.no_grad()
    def evaluated(self) -> nn.Module:
        """The copy, with the model's present buffers."""
        for mean, new in self._buffers:
            mean.copy_(new)
        return self.model


def mean_of(files: Sequence[Path], model: nn.Module) -> dict[str, Tensor]:
    """The mean of the weights in several files, as weights for the model; counts and flags are the last's."""
    total: dict[str, Tensor] = {}
    for path in files:
        for name, tensor in read_tensors(path).items():
            if tensor.is_floating_point():
                wide = tensor.double()
                total[name] = total[name] + wide if name in total else wide
            else:
                total[name] = tensor
    dtypes = {name: tensor.dtype for name, tensor in weights_of(model).items()}
    return {
        name: (tensor / len(files)).to(dtypes[name]) if tensor.is_floating_point() else tensor
        for name, tensor in total.items()
    }
