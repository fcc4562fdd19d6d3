"""Exercise 5: positions as waves, and the rotation that shifts them.

From ECE 57000, assignment 4, exercise 1, and the slides of "Assignment 2: attention mechanism in
transformer".

Check it with: pytest course/05_positions
"""

import math

import torch
from torch import Tensor


class PositionalEncoding:
    """A table of positions: row pos has d_model numbers.

        PE[pos, 2i]     = sin(pos / 10000 ** (2i / d_model))
        PE[pos, 2i + 1] = cos(pos / 10000 ** (2i / d_model))

    i counts the pairs of a sine and a cosine: 0, 1, 2, ... d_model / 2 - 1. Positions begin at 0.

    The homework prints, for a width of 128:

    >>> table = PositionalEncoding(d_model=128, max_len=10).get_encoding()
    >>> 0.4 + table[:4, 3]
    tensor([ 1.4000,  1.0479,  0.2396, -0.4558])
    """

    def __init__(self, d_model: int, max_len: int) -> None:
        self.d_model = d_model
        self.max_len = max_len

    def get_encoding(self) -> Tensor:
        """The table, a tensor (max_len, d_model)."""
        raise NotImplementedError  # your code here


def add_positional_encoding(word_embeddings: Tensor, positional_encodings: Tensor) -> Tensor:
    """Add the table, (T, d_model), to every sentence of a batch, (batch, T, d_model)."""
    raise NotImplementedError  # your code here


def rotation(omega: float, phi: float) -> Tensor:
    """The 2 x 2 matrix M that moves a pair of sine and cosine on by phi positions, whatever the position t:

        M @ [sin(omega t), cos(omega t)] = [sin(omega (t + phi)), cos(omega (t + phi))]

    Remember: sin(a + b) = sin a cos b + cos a sin b, and cos(a + b) = cos a cos b - sin a sin b.
    """
    raise NotImplementedError  # your code here
