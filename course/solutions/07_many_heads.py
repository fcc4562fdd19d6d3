"""Exercise 7, solved: many heads."""

import torch
from torch import Tensor, nn


class SelfAttention(nn.Module):
    def __init__(self, d_in: int, d_k: int, d_v: int) -> None:
        super().__init__()
        self.Wq = nn.Linear(d_in, d_k)
        self.Wk = nn.Linear(d_in, d_k)
        self.Wv = nn.Linear(d_in, d_v)

    def forward(self, X: Tensor) -> Tensor:
        Q, K, V = self.Wq(X), self.Wk(X), self.Wv(X)
        scores = Q @ K.transpose(-2, -1) / Q.shape[-1] ** 0.5
        return torch.softmax(scores, dim=-1) @ V


class MultiHeadSelfAttention(nn.Module):
    def __init__(self, d_in: int, d_k: int, d_v: int, num_heads: int) -> None:
        super().__init__()
        self.Wo = nn.Linear(d_v, d_v)
        self.heads = nn.ModuleList(
            SelfAttention(d_in, d_k // num_heads, d_v // num_heads) for _ in range(num_heads)
        )

    def forward(self, X: Tensor) -> Tensor:
        return self.Wo(torch.cat([head(X) for head in self.heads], dim=-1))


def manual_attention(Q: Tensor, K: Tensor, V: Tensor, W_in: Tensor, W_out: Tensor) -> tuple[Tensor, Tensor]:
    W_q, W_k, W_v = W_in.chunk(3)
    q, k, v = Q @ W_q.T, K @ W_k.T, V @ W_v.T
    attention = torch.softmax(q @ k.T / q.shape[-1] ** 0.5, dim=-1)
    return attention @ v @ W_out.T, attention
