"""The weights that outlive a run: the best ones, and those after each of the last epochs, for their mean."""

import os
from pathlib import Path

from torch import Tensor, nn

from sightline.models.run_folder import WEIGHTS
from sightline.train.average import mean_of
from sightline.train.checkpoint import load_weights, read_tensors, weights_of, write_tensors

__all__ = ["BestWeights"]


class BestWeights:
    """Writes weights to a run, for one of its stages.

    Args:
        out: The run folder, where later commands look for the weights to use.
        folder: The stage's own, where the next stage looks for those to start from.
    """

    def __init__(self, out: Path, folder: Path) -> None:
        self._out, self._folder = out, folder

    def keep_best(self, model: nn.Module) -> None:
        """Write the weights to use."""
        write_tensors(self._folder / WEIGHTS, weights_of(model))
        beside = self._out / f".{WEIGHTS}-{os.getpid()}"
        beside.unlink(missing_ok=True)
        try:
            os.link(self._folder / WEIGHTS, beside)  # one file under two names, where the disk can
            beside.replace(self._out / WEIGHTS)
        except OSError:
            write_tensors(self._out / WEIGHTS, weights_of(model))

    def load_best(self, model: nn.Module) -> None:
        """Give a model the best weights of the stage, or the run's where the stage found none better."""
        for path in (self._folder / WEIGHTS, self._out / WEIGHTS):
            if path.exists():
                load_weights(model, read_tensors(path), str(path))
                return

    def keep_epoch(self, model: nn.Module, epoch: int, *, reach: int) -> None:
        """Keep the weights after an epoch, and drop those ``reach`` epochs before."""
        write_tensors(self._epoch(epoch), weights_of(model))
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
