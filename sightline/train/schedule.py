"""The learning rate of a step: a warm-up from zero, then down as the schedule says."""

import math

from sightline.train.config import TrainConfig

__all__ = ["rate", "warmup_steps"]


def warmup_steps(config: TrainConfig, total: int) -> int:
    """How many steps the warm-up takes; below 1 it is a share of all steps."""
    return round(config.warmup * total) if config.warmup < 1 else round(config.warmup)


def rate(config: TrainConfig, step: int, total: int) -> float:
    """The learning rate of a step, counted from 0, of ``total``.

        constant:      lr
        inverse_sqrt:  lr √(warmup / step)
        linear:        lr (1 - done), to ``final_lr``
        cosine:        lr (1 + cos(π done)) / 2, to ``final_lr``

    A function of the step alone: a run that goes on needs no state for it.

    Example:
        >>> config = TrainConfig(lr=1.0, warmup=2.0, schedule="linear")
        >>> [rate(config, step, 6) for step in range(6)]
        [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]
    """
    warm = warmup_steps(config, total)
    if step < warm:
        return config.lr * (step + 1) / warm
    if config.schedule == "constant":
        return config.lr
    if config.schedule == "inverse_sqrt":
        return config.lr * math.sqrt(max(1, warm) / max(1, step + 1))
    done = min(1.0, (step - warm) / max(1, total - warm))
    share = 1 - done if config.schedule == "linear" else (1 + math.cos(math.pi * done)) / 2
    return config.lr * (config.final_lr + (1 - config.final_lr) * share)
