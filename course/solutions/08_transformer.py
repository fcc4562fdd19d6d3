"""Exercise 8, solved: an encoder layer of the Transformer, from its state dict."""

import torch
import torch.nn.functional as F
from torch import Tensor


def encoder_layer(x: Tensor, weights: dict[str, Tensor], num_heads: int) -> Tensor:
    E = x.shape[-1]
    qkv = F.linear(x, weights["self_attn.in_proj_weight"], weights["self_attn.in_proj_bias"])
    heads = [part.unflatten(-1, (num_heads, E // num_heads)).transpose(0, 1) for part in qkv.chunk(3, dim=-1)]
    q, k, v = heads  # (h, T, E / h)
    mixed = torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, dim=-1) @ v
    joined = mixed.transpose(0, 1).flatten(-2)
    attended = F.linear(joined, weights["self_attn.out_proj.weight"], weights["self_attn.out_proj.bias"])
    x = F.layer_norm(x + attended, (E,), weights["norm1.weight"], weights["norm1.bias"])
    hidden = F.relu(F.linear(x, weights["linear1.weight"], weights["linear1.bias"]))
    changed = F.linear(hidden, weights["linear2.weight"], weights["linear2.bias"])
    return F.layer_norm(x + changed, (E,), weights["norm2.weight"], weights["norm2.bias"])


def count_parameters(d_model: int, d_ff: int) -> int:
    attention = 4 * d_model * d_model + 4 * d_model
    feed_forward = 2 * d_model * d_ff + d_ff + d_model
    return attention + feed_forward + 4 * d_model
