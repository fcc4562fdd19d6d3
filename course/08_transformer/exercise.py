"""Exercise 8: an encoder layer of the Transformer, from its state dict.

A state dict maps names to tensors: all that a layer has learned. Here it is that of
torch.nn.TransformerEncoderLayer. With these tensors and a few lines you get the numbers that torch gets.

Check it with: pytest course/08_transformer
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def encoder_layer(x: Tensor, weights: dict[str, Tensor], num_heads: int) -> Tensor:
    """One encoder layer. x is (T, E): a sentence of T words, without a batch.

    1. many heads: q, k, v = x times self_attn.in_proj_weight (3 E, E) plus self_attn.in_proj_bias (3 E), cut
       in three; head n has the columns n * E / h up to (n + 1) * E / h of each, where h = num_heads; the
       heads side by side go through self_attn.out_proj.weight and .bias
    2. add x, then the norm: F.layer_norm(sum, (E,), norm1.weight, norm1.bias)
    3. the feed-forward network: linear1.weight and .bias, F.relu, linear2.weight and .bias
    4. add what went into it, then norm2.weight and norm2.bias

    F.linear(x, weight, bias) is x @ weight.T + bias.
    """
    raise NotImplementedError  # your code here


def count_parameters(d_model: int, d_ff: int) -> int:
    """How many numbers such a layer learns, biases and norms included.

    d_model is the width E, d_ff the width inside the feed-forward network.
    """
    raise NotImplementedError  # your code here
