"""Exercise 3: scaled dot-product attention.

    Attention(Q, K, V) = softmax(Q Kᵀ / sqrt(d_k)) V

From the homework "Introduction to Transformers continued" (2023), exercise 1, and from ECE 57000,
assignment 4, exercise 2. The first axis is the batch: several sentences that have nothing to do with each
other.

Check it with: pytest course/03_scaled_dot_product
"""

import torch
from torch import Tensor


def scaled_dot_product_attention(Q: Tensor, K: Tensor, V: Tensor) -> tuple[Tensor, Tensor]:
    """Mix the values, each query weighting them by how well it matches the keys.

    Q is (batch, T, d_k), K is (batch, S, d_k), V is (batch, S, d_v).
    Returns output (batch, T, d_v) and attention weights (batch, T, S); each row of the weights sums to one.

    For tensors with a batch axis, K.transpose(-2, -1) swaps the last two axes, and @ multiplies matrix by
    matrix. torch.softmax(scores, dim=n) makes the numbers along axis n sum to one.

    The homework prints these weights for its random input:

    >>> _ = torch.manual_seed(0)
    >>> Q, K, V = torch.randn(2, 3, 4), torch.randn(2, 3, 4), torch.randn(2, 3, 4)
    >>> output, weights = scaled_dot_product_attention(Q, K, V)
    >>> weights[0]
    tensor([[0.4537, 0.3877, 0.1586],
            [0.4461, 0.3433, 0.2105],
            [0.2678, 0.3638, 0.3684]])
    >>> output[1, 2]
    tensor([ 0.1222, -0.4625, -0.4709, -0.1724])
    """
    raise NotImplementedError  # your code here
