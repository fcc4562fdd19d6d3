"""What the loop is handed: an objective says what is learned from which batches, and how well it went.

The loop knows nothing of images, sentences or classes, and nothing of metrics: an objective brings them. So
that a killed run can go on to the bit, everything random in a batch is a function of (seed, epoch, index),
and before each step the loop seeds torch's generators from (seed, step): what a loss draws on the device
from those is repeated too. Python's and NumPy's own generators are not touched.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from sightline.train.config import TrainConfig

__all__ = ["Loss", "Objective", "Stage"]


class Loss(NamedTuple):
    """A loss before it is averaged, so that several processes or accumulated parts average rightly.

    Attributes:
        total: The sum over terms; what is differentiated.
        terms: How many it has: tokens, images; a scalar tensor on the loss's device.
        also: Further sums over the same terms, to be averaged and shown beside the loss.
        mean: What is added to the mean of the terms: a mean over other things, such as rows.
        mean_count: Over how many; of several processes each counts by its share.

    Example:
        >>> Loss(torch.tensor(6.0), torch.tensor(3)).total
        tensor(6.)
    """

    total: Tensor
    terms: Tensor
    also: Mapping[str, Tensor] = {}
    mean: Tensor | None = None
    mean_count: float = 1.0


@runtime_checkable
class Objective(Protocol):
    """One kind of thing to learn. Derive from it: what it needn't say has a default here.

    Example:
        >>> from tempfile import mkdtemp
        >>> class Ones(Objective):                                # learn to answer 1
        ...     kind = "ones"
        ...     def plan(self, epoch):
        ...         return [[0, 1], [2, 3]]
        ...     def load(self, indices, epoch):
        ...         return torch.eye(4)[list(indices)]
        ...     def loss(self, model, batch):
        ...         wrong = (model(batch) - 1).square()
        ...         return Loss(wrong.sum(), torch.tensor(wrong.numel()))
        ...     def evaluate(self, model):
        ...         return {"loss": float((model(torch.eye(4)) - 1).square().mean())}
        >>> config = sl.train.TrainConfig(epochs=2, device="cpu", tensorboard=False)
        >>> out = sl.train.fit(nn.Linear(4, 1), Ones(), config, Path(mkdtemp()), shown=False)
        >>> (out / "model.safetensors").is_file()
        True
    """

    one_shape: ClassVar[bool] = False  # whether all batches are alike, but perhaps the last of an epoch
    may_change: ClassVar[frozenset[str]] = frozenset()  # of its data's settings, when a run goes on

    @property
    def kind(self) -> str:
        """``caption``, ``translate`` or ``classify``."""
        ...

    def plan(self, epoch: int) -> Sequence[Sequence[int]]:
        """The batches of an epoch, each the indices of its examples; a function of (seed, epoch) alone.

        With several processes, or in several parts, each batch is split: a batch here is what one step of the
        optimizer sees.
        """
        ...

    def load(self, indices: Sequence[int], epoch: int) -> Any:
        """A batch on the CPU: decoded, augmented, collated. Called from threads, ahead of its use."""
        ...

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        """The loss of a batch, which has been moved to the model's device."""
        ...

    def evaluate(self, model: nn.Module) -> Mapping[str, float]:
        """Scores on the validation split, by name; the model is in eval, without autograd.

        Every process calls it, and the main one's scores are taken; :func:`sightline.train.processes.spread`
        in place of ``map`` has each do its share.
        """
        ...

    def prepare(self, device: torch.device) -> None:  # noqa: ARG002
        """Called once before the first batch: an objective may keep small data on the device."""
        return

    def compile(self, model: nn.Module) -> None:
        """Compile what the loss calls, in place; by default the model's ``forward``."""
        model.compile()

    def data(self) -> Mapping[str, Any]:
        """The ``data`` of the run's config.json, plain values: all that later commands need to know."""
        return {}

    def digest(self) -> str:
        """Names what is learned from and chosen by: a run only goes on with the same. Empty: not known."""
        return ""

    def save(self, folder: Path) -> None:  # noqa: ARG002
        """Write what later commands need beside the config and the weights, such as tokenizer.json."""
        return


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """A further stage of a run, which starts from the best weights of the one before.

    Attributes:
        name: Names its checkpoints.
        objective: What is learned.
        config: How; a stage's settings are its own.
        settings: What the run's config says of the stage; None for ``config``.

    Example:
        >>> Stage(name="second", objective=None, config=sl.train.TrainConfig(epochs=2)).name
        'second'
    """

    name: str
    objective: Objective
    config: TrainConfig
    settings: Any = None
