"""What the loop is handed: a task says what is learned from which batches, and how well it went.

The loop knows nothing of images, sentences or classes, and nothing of metrics: a task brings them. So that
a killed run can go on to the bit, everything random in a batch is a function of (seed, epoch, index).
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from torch import Tensor, nn

__all__ = ["Loss", "Task"]


class Loss(NamedTuple):
    """A loss before it is averaged, so that several processes or accumulated parts average rightly.

    Attributes:
        total: The sum over terms; what is differentiated.
        terms: How many it has: tokens, images.
    """

    total: Tensor
    terms: Tensor


class Task(Protocol):
    """One kind of thing to learn."""

    @property
    def kind(self) -> str:
        """``caption``, ``translate`` or ``classify``."""
        ...

    def plan(self, epoch: int) -> Sequence[Sequence[int]]:
        """The batches of an epoch, each the indices of its examples; a function of (seed, epoch) alone.

        With several processes each takes its share of every batch.
        """
        ...

    def load(self, indices: Sequence[int], epoch: int) -> Any:
        """A batch on the CPU: decoded, augmented, collated. Called from threads, ahead of its use."""
        ...

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        """The loss of a batch, which has been moved to the model's device."""
        ...

    def evaluate(self, model: nn.Module) -> Mapping[str, float]:
        """Scores on the validation split, by name."""
        ...
