"""Exercise 6: self-attention as a module.

From ECE 57000, assignment 4, exercise 3.

Check it with: pytest course/06_self_attention
"""

import torch
from torch import Tensor, nn


class SelfAttention(nn.Module):
    """Queries, keys and values all come from the same sequence X, each by a linear layer of its own.

    Make the three layers with nn.Linear, in the order query, key, value: each draws its first weights from
    torch's random numbers, and the homework's figures depend on who draws first.

    >>> _ = torch.manual_seed(40)
    >>> layer = SelfAttention(d_in=32, d_k=512, d_v=64)
    >>> layer(torch.ones(20, 5, 32))[-1, 1, :5]
    tensor([-0.0166, -0.4199, -0.5860,  0.3721,  0.5411], grad_fn=<SliceBackward0>)
    """

    def __init__(self, d_in: int, d_k: int, d_v: int) -> None:
        super().__init__()
        raise NotImplementedError  # your code here

    def forward(self, X: Tensor) -> Tensor:
        """X is (batch, T, d_in); the output is (batch, T, d_v). Attention as in exercise 3."""
        raise NotImplementedError  # your code here


def unshuffled(Y: Tensor, order: Tensor) -> Tensor:
    """Put the words back where they were.

    For self-attention, unshuffled(layer(X[:, order]), order) is layer(X): shuffling changes nothing else.

    order is a permutation of 0 ... T - 1, and X[:, order] has word order[t] at place t. Y is (batch, T,
    width). order.argsort() is the permutation that undoes it.
    """
    raise NotImplementedError  # your code here
