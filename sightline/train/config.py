"""How a model is trained, whichever it is."""

import math
from dataclasses import dataclass
from typing import Any

from sightline.settings import setting
from sightline.shapes import did_you_mean

__all__ = ["LOWER_IS_BETTER", "MAY_CHANGE", "TrainConfig"]

SCHEDULES = ("constant", "cosine", "inverse_sqrt", "linear")
PRECISIONS = ("auto", "bf16", "fp16", "no")
DEVICES = ("auto", "cpu", "cuda")
LOWER_IS_BETTER = frozenset({"ece", "loss", "perplexity"})
MAY_CHANGE = frozenset({"device", "log_every", "tensorboard", "threads"})  # when a run goes on


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig:
    """Settings of the loop; each is also a flag of ``sightline train``."""

    epochs: int = setting(10, "How often the training split is gone through.")
    steps: int | None = setting(None, "Stop after this many steps, whatever the epochs; None: all epochs.")
    batch_size: int = setting(64, "Examples that one step of the optimizer sees, over all processes.")
    accumulate: int = setting(1, "Parts that a batch is computed in, to need less memory; the same result.")
    lr: float = setting(5e-4, "The largest learning rate, reached after the warm-up.")
    schedule: str = setting("cosine", "How it falls afterwards: constant, cosine, inverse_sqrt or linear.")
    pretrained_lr: float = setting(
        1.0, "Share of the rate at which a pretrained encoder learns, where it is trained along."
    )
    warmup: float = setting(0.05, "Steps until the largest rate is reached; below 1, a share of all steps.")
    final_lr: float = setting(0.0, "Where cosine and linear end, as a share of the largest rate.")
    weight_decay: float = setting(0.01, "Decay of matrices, not of biases and norms (AdamW).")
    beta2: float = setting(0.98, "How slowly AdamW forgets the size of gradients.")
    clip: float | None = setting(1.0, "Longest gradient; longer ones are shortened. None: never.")
    label_smoothing: float = setting(0.0, "Probability taken from the right answer and spread over all.")
    ema: float | None = setting(None, "Evaluate and keep a moving mean of the weights with this decay.")
    average_last: int = setting(
        0, "At the end try the mean of the weights after each of the last so many epochs too."
    )
    precision: str = setting(
        "auto", "Mixed precision: no, bf16 or fp16; auto is bf16 on a GPU that has it, else no."
    )
    device: str = setting("auto", "Where to train: cpu or cuda; auto takes a GPU if there is one.")
    compile: bool = setting(False, "Compile the model with torch.compile: slower to start, then faster.")
    metric: str = setting("loss", "The score on the validation split that chooses which weights are kept.")
    evaluate_every: int = setting(1, "Epochs between evaluations; the last epoch is always evaluated.")
    patience: int | None = setting(None, "Stop after so many evaluations without a better one; None: never.")
    save_every: int = setting(1, "Epochs between checkpoints; the last epoch always makes one.")
    save_steps: int | None = setting(None, "Steps between further checkpoints inside an epoch.")
    log_every: int = setting(50, "Steps between rows of metrics.csv.")
    threads: int = setting(2, "Threads that load batches ahead of their use.")
    tensorboard: bool = setting(True, "Write curves for TensorBoard to the run's logs folder.")
    seed: int = setting(0, "Fixes everything that is random.")

    def __post_init__(self) -> None:
        for name in (
            "epochs",
            "batch_size",
            "accumulate",
            "evaluate_every",
            "save_every",
            "log_every",
            "steps",
            "patience",
            "save_steps",
        ):
            _at_least(name, getattr(self, name), 1)
        for name in ("lr", "clip", "pretrained_lr"):
            _positive(name, getattr(self, name))
        for name in ("warmup", "weight_decay", "threads", "average_last", "seed", "final_lr"):
            _at_least(name, getattr(self, name), 0)
        for name in ("label_smoothing", "ema", "beta2"):
            _share(name, getattr(self, name))
        for name, known in (("schedule", SCHEDULES), ("precision", PRECISIONS), ("device", DEVICES)):
            value = getattr(self, name)
            if value not in known:
                raise ValueError(f"unknown {name} {value!r}, {did_you_mean(value, known)}")


def _at_least(name: str, value: Any, least: int) -> None:
    if value is not None and not (math.isfinite(value) and value >= least):
        raise ValueError(f"{name} must be at least {least}, got {value}")


def _positive(name: str, value: Any) -> None:
    if value is not None and not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a positive number, got {value}")


def _share(name: str, value: Any) -> None:
    if value is not None and not 0 <= value < 1:
        raise ValueError(f"{name} must be at least 0 and below 1, got {value}")
