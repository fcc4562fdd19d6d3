"""Exercise 2, solved: four ways to say how well a query matches a key."""

import torch
from torch import Tensor


def dot(Q: Tensor, K: Tensor) -> Tensor:
    return Q @ K.T


def cosine(Q: Tensor, K: Tensor) -> Tensor:
    lengths = Q.norm(dim=-1)[:, None] * K.norm(dim=-1)[None, :]
    return Q @ K.T / lengths


def general(Q: Tensor, K: Tensor, W: Tensor) -> Tensor:
    return Q @ W @ K.T


def additive(Q: Tensor, K: Tensor, W_q: Tensor, W_k: Tensor, v: Tensor) -> Tensor:
    queries, keys = Q @ W_q.T, K @ W_k.T
    return torch.tanh(queries[:, None, :] + keys[None, :, :]) @ v
