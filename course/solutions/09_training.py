"""Exercise 9, solved: warm-up and label smoothing."""

import torch
from torch import Tensor


def learning_rate(step: int, d_model: int, warmup: int) -> float:
    return float(d_model**-0.5 * min(step**-0.5, step * warmup**-1.5))


def smoothed_cross_entropy(logits: Tensor, target: Tensor, smoothing: float) -> Tensor:
    logs = torch.log_softmax(logits, dim=-1)
    right = logs[torch.arange(len(target)), target]
    return -((1 - smoothing) * right + smoothing * logs.mean(dim=-1)).mean()
