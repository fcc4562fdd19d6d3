"""How a model is trained, whichever it is."""

import dataclasses
import math
import re
from dataclasses import dataclass

from sightline.settings import check, setting

__all__ = ["LOWER_IS_BETTER", "MAIN", "MAY_CHANGE", "TrainConfig", "with_min_steps"]

MAIN = "main"  # the first stage of a run

SCHEDULES = ("constant", "cosine", "inverse_sqrt", "linear")
PRECISIONS = ("auto", "bf16", "fp16", "no")
LOWER_IS_BETTER = frozenset({"ece", "loss", "perplexity"})
KEEP = ("best", "last")
SHARDING = ("none", "fsdp")
# When a run goes on: with more epochs or steps it trains longer.
MAY_CHANGE = frozenset(
    {"device", "epochs", "log_every", "min_steps", "sharding", "steps", "tensorboard", "threads"}
)
_DEVICE = re.compile(r"auto|cpu|cuda(:[0-9]+)?")


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig:
    """Settings of the loop; each is also a flag of ``sightline train``.

    Example:
        >>> TrainConfig(epochs=3).schedule
        'cosine'
        >>> TrainConfig(epochs=-1)
        Traceback (most recent call last):
        ValueError: epochs must be at least 1, got -1
    """

    epochs: int = setting(10, "Passes through the training split.", at_least=1, largest=10**9)
    steps: int | None = setting(
        None,
        "Stop after this many steps, whatever the epochs; None: all epochs.",
        at_least=1,
        largest=10**12,
        advanced=True,
    )
    min_steps: int | None = setting(
        None,
        "Of few examples, go through them more often than epochs says, to make so many steps; None: never.",
        at_least=1,
        largest=10**9,
        advanced=True,
    )
    batch_size: int = setting(64, "Examples of a step, over all processes.", at_least=1, largest=10**9)
    accumulate: int = setting(
        1,
        "Parts that a batch is computed in, to need less memory; the same result.",
        at_least=1,
        largest=10**6,
        advanced=True,
    )
    lr: float = setting(5e-4, "Largest learning rate, after the warm-up.", above=0)
    schedule: str = setting(
        "cosine",
        "How it falls afterwards: constant, cosine, inverse_sqrt or linear.",
        choices=SCHEDULES,
        advanced=True,
    )
    pretrained_lr: float = setting(
        1.0,
        "Share of the rate at which a pretrained encoder learns, where it is trained along.",
        above=0,
        advanced=True,
    )
    warmup: float = setting(
        0.05,
        "Steps until the largest rate is reached; below 1, a share of all steps.",
        at_least=0,
        advanced=True,
    )
    final_lr: float = setting(
        0.0, "Where cosine and linear end, as a share of the largest rate.", at_least=0, advanced=True
    )
    weight_decay: float = setting(
        0.01, "Decay of matrices, not of biases and norms (AdamW).", at_least=0, advanced=True
    )
    beta2: float = setting(
        0.98, "How slowly AdamW forgets the size of gradients.", at_least=0, below=1, advanced=True
    )
    clip: float | None = setting(
        1.0, "Longest gradient; longer ones are shortened. None: never.", above=0, advanced=True
    )
    label_smoothing: float = setting(
        0.0, "Probability spread from the right answer over all.", at_least=0, below=1, advanced=True
    )
    ema: float | None = setting(
        None,
        "Evaluate and keep a moving mean of the weights with this decay.",
        at_least=0,
        below=1,
        advanced=True,
    )
    average_last: int = setting(
        0,
        "At the end try the mean of the weights after each of the last so many epochs too.",
        at_least=0,
        largest=10**6,
        advanced=True,
    )
    precision: str = setting(
        "auto",
        "Mixed precision: no, bf16 or fp16; auto is bf16 on a GPU that has it, else no.",
        choices=PRECISIONS,
        advanced=True,
    )
    device: str = setting("auto", "Where to train: cpu, cuda or cuda:1; auto takes a GPU if there is one.")
    sharding: str = setting(
        "none",
        "On several processes: none (DDP, each holds all weights), or fsdp (FSDP2, each a part of them).",
        choices=SHARDING,
        advanced=True,
    )
    compile: bool = setting(
        False, "Compile the model with torch.compile: slower to start, then faster.", advanced=True
    )
    metric: str = setting("loss", "The score on the validation split that chooses which weights are kept.")
    keep: str = setting("best", "Which weights are kept: best (by metric) or last.", choices=KEEP)
    evaluate_every: int = setting(
        1, "Epochs between evaluations; the last epoch is always evaluated.", at_least=1, advanced=True
    )
    patience: int | None = setting(
        None, "Stop after so many evaluations without a better one; None: never.", at_least=1, advanced=True
    )
    save_every: int = setting(
        1, "Epochs between checkpoints; the last epoch always makes one.", at_least=1, advanced=True
    )
    save_steps: int | None = setting(
        None, "Steps between further checkpoints inside an epoch.", at_least=1, advanced=True
    )
    log_every: int = setting(50, "Steps between rows of metrics.csv.", at_least=1, advanced=True)
    threads: int = setting(
        2, "Threads that load batches ahead of their use.", at_least=0, largest=256, advanced=True
    )
    tensorboard: bool = setting(True, "Write curves for TensorBoard to the run's logs folder.", advanced=True)
    seed: int = setting(0, "Fixes everything that is random.", at_least=0)

    def __post_init__(self) -> None:
        check(self)
        if not _DEVICE.fullmatch(self.device):
            raise ValueError(
                f"unknown device {self.device!r}, expected 'auto', 'cpu', 'cuda' or a numbered GPU such as "
                "'cuda:1'"
            )


def with_min_steps(config: TrainConfig, n_batches: int) -> TrainConfig:
    """The settings with as many epochs as ``min_steps`` asks for; intervals in epochs grow alike.

    Example:
        >>> with_min_steps(TrainConfig(epochs=10, min_steps=600), 3).epochs  # 10 epochs make 30 steps
        200
    """
    if config.min_steps is None or config.steps is not None or config.epochs * n_batches >= config.min_steps:
        return config
    epochs = math.ceil(config.min_steps / n_batches)
    factor = epochs // config.epochs
    return dataclasses.replace(
        config,
        epochs=epochs,
        evaluate_every=config.evaluate_every * factor,
        save_every=config.save_every * factor,
    )
