"""Exercise 14, solved: the two losses that a model learns a language by, without labels."""

import torch
from torch import Tensor


def causal_loss(logits: Tensor, tokens: Tensor) -> Tensor:
    logs = torch.log_softmax(logits, dim=-1)
    return -logs[torch.arange(len(tokens) - 1), tokens[1:]].mean()


def masked_loss(logits: Tensor, tokens: Tensor, hidden: Tensor) -> Tensor:
    logs = torch.log_softmax(logits, dim=-1)
    return -logs[torch.arange(len(tokens)), tokens][hidden].mean()
