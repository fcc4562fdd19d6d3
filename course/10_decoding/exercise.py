"""Exercise 10: greedy decoding and beam search.

The model is a table here: table[a, b] is the log-probability that token b comes after token a. A sentence
begins with the token `start` and is over when `end` was written. Return the tokens after `start`, with
`end` if it was reached, as a list of whole numbers; write at most max_length of them.

Check it with: pytest course/10_decoding
"""

import torch
from torch import Tensor


def greedy(table: Tensor, start: int, end: int, max_length: int) -> list[int]:
    """Always take the likeliest next token.

    >>> table = torch.tensor([[0.0, 0.6, 0.4], [0.0, 0.1, 0.9], [0.0, 0.0, 1.0]]).log()
    >>> greedy(table, start=0, end=2, max_length=5)
    [1, 2]
    """
    raise NotImplementedError  # your code here


def beam(table: Tensor, start: int, end: int, max_length: int, width: int) -> list[int]:
    """Keep the `width` likeliest beginnings at every step; return the likeliest sentence of the last step.

    The log-probability of a beginning is the sum of those of its tokens. A finished beginning (one that wrote
    `end`) stays as it is and takes part in the choice. Stop when all are finished or max_length is reached.
    """
    raise NotImplementedError  # your code here
