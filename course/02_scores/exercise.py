"""Exercise 2: four ways to say how well a query matches a key.

Q has T queries as its rows, each with D numbers: its shape is (T, D). K has S keys as its rows: (S, D). Each
function returns all scores at once, a tensor (T, S): row t has the scores of query t with every key.

Write them without loops: Q @ K.T is the matrix product that makes all dot products at once.

Check it with: pytest course/02_scores
"""

import torch
from torch import Tensor


def dot(Q: Tensor, K: Tensor) -> Tensor:
    """The dot product of every query with every key.

    >>> dot(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0], [0.0, 1.0]]))
    tensor([[11.,  2.]])
    """
    raise NotImplementedError  # your code here


def cosine(Q: Tensor, K: Tensor) -> Tensor:
    """The cosine of the angle between them: the dot product divided by both lengths.

    The length of a vector x is the root of the sum of its squares: x.norm(dim=-1).

    >>> cosine(torch.tensor([[0.0, 2.0]]), torch.tensor([[0.0, 5.0], [3.0, 0.0]]))
    tensor([[1., 0.]])
    """
    raise NotImplementedError  # your code here


def general(Q: Tensor, K: Tensor, W: Tensor) -> Tensor:
    """A dot product with a matrix between: q W k for every pair.

    W has the shape (width of a query, width of a key). The two widths may differ; W is what is learned.
    """
    raise NotImplementedError  # your code here


def additive(Q: Tensor, K: Tensor, W_q: Tensor, W_k: Tensor, v: Tensor) -> Tensor:
    """A small neural network for every pair: v . tanh(W_q q + W_k k).

    W_q is (R, width of a query), W_k is (R, width of a key), v has R numbers. An axis of size 1 is repeated
    where it meets a larger one (broadcasting): (T, 1, R) + (1, S, R) gives (T, S, R).
    """
    raise NotImplementedError  # your code here
