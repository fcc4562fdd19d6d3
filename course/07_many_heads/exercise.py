"""Exercise 7: many heads.

From ECE 57000, assignment 4, exercise 4, and the homework of week 8 of "Advanced Data Analysis" (2023).

Check it with: pytest course/07_many_heads
"""

import torch
from torch import Tensor, nn


class SelfAttention(nn.Module):
    """Exercise 6, solved."""

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
    """num_heads self-attentions side by side, and a linear layer that mixes what they found.

    Each head has queries and keys of width d_k / num_heads and values of width d_v / num_heads. Their
    outputs are put side by side, (batch, T, d_v), and go through one nn.Linear(d_v, d_v). Make that layer
    first, then the heads, in an nn.ModuleList: the homework's figures depend on who draws random numbers
    first.

    >>> _ = torch.manual_seed(40)
    >>> X = torch.rand(32, 10, 256)
    >>> layer = MultiHeadSelfAttention(d_in=256, d_k=512, d_v=64, num_heads=8)
    >>> layer(X)[-1, 1, :5]
    tensor([ 0.0275, -0.1630,  0.1510,  0.3983, -0.0111], grad_fn=<SliceBackward0>)
    """

    def __init__(self, d_in: int, d_k: int, d_v: int, num_heads: int) -> None:
        super().__init__()
        raise NotImplementedError  # your code here

    def forward(self, X: Tensor) -> Tensor:
        raise NotImplementedError  # your code here


def manual_attention(Q: Tensor, K: Tensor, V: Tensor, W_in: Tensor, W_out: Tensor) -> tuple[Tensor, Tensor]:
    """What nn.MultiheadAttention(d, num_heads=1, bias=False) does, by hand: (output, attention).

    Q, K and V are (T, d), without a batch. W_in is (3 d, d): the matrices of queries, keys and values, one
    below the other; W_in.chunk(3) takes them apart. W_out is (d, d). torch multiplies by transposed
    weights: a projection is Q @ W_q.T.
    """
    raise NotImplementedError  # your code here
