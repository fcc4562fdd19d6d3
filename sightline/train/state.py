"""Where a training is: plain values, which a checkpoint has beside its tensors."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_type_hints

from sightline.messages import shortened
from sightline.settings import check_type
from sightline.train.config import LOWER_IS_BETTER

__all__ = ["TrainState", "check_finite"]


@dataclass(kw_only=True, slots=True)
class TrainState:
    """Where a stage is, plain values all: what a checkpoint says besides its tensors.

    Attributes:
        step, epoch, batch: Steps and epochs done, and batches of the present epoch.
        sums: Loss, terms and further sums since the last row of the curve.
        best: The best score so far; ``since`` counts the evaluations after it.
        best_loss: The validation loss that came with it; of two equal scores the lower loss decides.
        done: Whether the stage has ended.
        rows: The curve of the whole run.
    """

    step: int = 0
    epoch: int = 0
    batch: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    best: float | None = None
    best_loss: float = math.inf
    since: int = 0
    done: bool = False
    rows: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def restored(cls, saved: Mapping[str, Any]) -> "TrainState":
        """Return the state that a checkpoint has; of an earlier version's a tie changes nothing.

        Raises:
            ValueError: If a value is of another type than it was.
        """
        hints = get_type_hints(cls)
        known = {name: value for name, value in saved.items() if name in hints}
        for name, value in known.items():
            check_type(name, value, hints[name])
        for row in known.get("rows", ()):
            if not all(isinstance(row.get(name), int | float) for name in ("step", "epoch")):
                raise ValueError(f"a row of the curve has a step and an epoch, got {shortened(row)}")
        return cls(**{"best_loss": -math.inf, **known})

    def is_better(self, score: float, loss: float, metric: str) -> bool:
        """Whether these are the best so far: scores of the first epochs are often all zero."""
        if math.isnan(score) or self.best is None:
            return not math.isnan(score)
        if score == self.best:
            return loss < self.best_loss
        return (score < self.best) == (metric in LOWER_IS_BETTER)


def check_finite(sums: Mapping[str, float], step: int, lr: float) -> None:
    """Refuse sums of a loss that is no number any more.

    Raises:
        ValueError: If one of them is infinite or NaN.
    """
    if not all(map(math.isfinite, sums.values())):
        raise ValueError(
            f"the loss must be a number, it was {sums['loss']} before step {step}; train again with a lower "
            f"lr than {lr}, a longer warmup or a clip"
        )
