"""The weights that outlive a run: the best ones, and those after each of the last epochs, for their mean."""

import copy
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from sightline.models.run_folder import WEIGHTS
from sightline.train.checkpoint import load_weights, read_tensors, weights_of, write_tensors
from sightline.train.sharding import local

__all__ = ["BestWeights", "Ema", "mean_of"]


class BestWeights:
    """Writes weights to a run, for one of its stages.

    Args:
        out: The run folder, where later commands look for the weights to use.
        folder: The stage's own, where the next stage looks for those to start from.
    """

    def __init__(self, out: Path, folder: Path) -> None:
        self._out, self._folder = out, folder

    def keep_best(self, weights: Mapping[str, Tensor]) -> None:
        """Write the weights to use."""
        write_tensors(self._folder / WEIGHTS, weights)
        beside = self._out / f".{WEIGHTS}-{os.getpid()}"
        beside.unlink(missing_ok=True)
        try:
            os.link(self._folder / WEIGHTS, beside)  # one file under two names, where the disk can
            beside.replace(self._out / WEIGHTS)
        except OSError:
            write_tensors(self._out / WEIGHTS, weights)

    def load_best(self, model: nn.Module) -> None:
        """Give a model the best weights of the stage, or the run's where the stage found none better.

        Raises:
            ValueError: If there are none.
        """
        for path in (self._folder / WEIGHTS, self._out / WEIGHTS):
            if path.exists():
                load_weights(model, read_tensors(path), str(path))
                return
        raise ValueError(
            f"a training that has ended has weights, {str(self._out)!r} has none: they were removed, or no "
            "evaluation gave a number; train again with another --out"
        )

    def keep_epoch(self, weights: Mapping[str, Tensor], epoch: int, *, reach: int) -> None:
        """Keep the weights after an epoch, and drop those ``reach`` epochs before."""
        write_tensors(self._epoch(epoch), weights)
        self._epoch(epoch - reach).unlink(missing_ok=True)

    def mean(self, model: nn.Module, last: int, n: int) -> dict[str, Tensor]:
        """The mean of the weights after the ``n`` epochs that end with ``last``."""
        files = [self._epoch(i) for i in range(max(1, last - n + 1), last + 1)]
        return mean_of(
            [path for path in files if path.exists()], model
        )  # a run that goes on has dropped some

    def drop_epochs(self) -> None:
        """Remove the weights of single epochs: their mean has been taken."""
        for path in self._folder.glob("epoch-*.safetensors"):
            path.unlink()

    def _epoch(self, epoch: int) -> Path:
        return self._folder / f"epoch-{epoch:05d}.safetensors"


class Ema:
    """A copy of a model whose weights follow the model's with a moving mean.

        mean = d mean + (1 - d) weights        d = min(decay, (1 + step) / (10 + step))

    The decay begins low, so that the random weights of the start are soon forgotten.
    """

    def __init__(self, model: nn.Module, decay: float, *, copied: nn.Module | None = None) -> None:
        """Follow a model; ``copied`` is the copy where one was made, sharded as the model is."""
        self.model = (copied or copy.deepcopy(model)).eval().requires_grad_(False)
        self.decay = decay
        pairs = list(zip(self.model.parameters(), model.parameters(), strict=True))
        # What is frozen in the model never moves; of what is sharded, each process moves its part.
        self._mean: list[Tensor] = [local(mean) for mean, new in pairs if new.requires_grad]
        self._new: list[Tensor] = [local(new) for _, new in pairs if new.requires_grad]
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
