"""An objective over the splits of a data set: all but the loss has a default."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from sightline.data.batches import shuffled_batches
from sightline.settings import as_json
from sightline.tasks.task import Settings
from sightline.train.objective import Objective
from sightline.train.processes import spread
from sightline.train.stepping import to_device

__all__ = ["DatasetObjective"]


class DatasetObjective(Objective):
    """Learns from the train split in batches of an order that each epoch has of its own, scored on val.

    Derive from it and write ``loss``; what the loss counts (``Loss.also``) is a score too.

    Args:
        dataset: With a ``train`` and a ``val`` split.
        settings: Of the training: its ``data`` go into the run's config.

    Example:
        >>> class Ones(DatasetObjective):
        ...     def loss(self, model, batch):
        ...         wrong = (model(batch) - 1).square()
        ...         return sl.train.Loss(wrong.sum(), torch.tensor(wrong.numel()))
    """

    def __init__(self, dataset: Any, settings: Settings) -> None:
        self.dataset, self.settings, self.train = dataset, settings, settings["train"]
        self._examples, self._val = dataset.split("train"), dataset.split("val")

    @property
    def kind(self) -> str:
        """The task's."""
        return self.settings.kind

    def collate(self, examples: Sequence[Any]) -> Any:
        """A batch of some examples: tensors, stacked."""
        return torch.stack(list(examples))

    def plan(self, epoch: int) -> list[list[int]]:
        """All examples in batches, in an order of the epoch's own."""
        return shuffled_batches(len(self._examples), self.train.batch_size, self.train.seed, epoch)

    def load(self, indices: Sequence[int], epoch: int) -> Any:  # noqa: ARG002
        """The examples of these indices."""
        return self.collate([self._examples[i] for i in indices])

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """The mean loss on the validation split, and the means of what else it counts."""
        size, n = self.train.batch_size, len(self._val)
        parts = spread(lambda i: self._sums(model, range(i, min(i + size, n))), range(0, n, size))
        sums: dict[str, float] = {}
        for part in parts:
            sums = {name: sums.get(name, 0.0) + value for name, value in part.items()}
        terms = sums.pop("terms")
        return {name: value / terms for name, value in sums.items()}

    def _sums(self, model: nn.Module, indices: Sequence[int]) -> dict[str, float]:
        """Loss, terms and what else is counted of some validation examples."""
        device = next(model.parameters()).device
        loss = self.loss(model, to_device(self.collate([self._val[i] for i in indices]), device))
        sums = {"loss": loss.total, "terms": loss.terms, **loss.also}
        return {name: float(value) for name, value in sums.items()}

    def data(self) -> Mapping[str, Any]:
        """The settings of the data."""
        return as_json(self.settings["data"])

    def digest(self) -> str:
        """The data set's own."""
        return str(self.dataset.digest())
