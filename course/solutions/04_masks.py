"""Exercise 4, solved: masks. True (or 1) means that a query may look at a key."""

import torch
from torch import Tensor


def create_mask(seq_len: int) -> Tensor:
    return torch.ones(seq_len, seq_len, dtype=torch.bool).tril()


def padding_mask(lengths: Tensor, size: int) -> Tensor:
    return torch.arange(size)[None, None, :] < lengths[:, None, None]


def attention_score(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    scores = Q @ K.transpose(-2, -1) / Q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(mask == 0, float("-inf"))
    weights = torch.softmax(scores, dim=-1)
    return weights @ V, weights
