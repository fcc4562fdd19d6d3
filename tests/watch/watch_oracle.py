"""What the tests of ``watch`` have in common: models to watch, and what their weights must be."""

import warnings

import torch
import torch.nn.functional as F
from torch import nn

from tests.look.look_oracle import matrix, randn

E, H, B, T, S = 12, 3, 2, 5, 7


def run(model, *args, backward=True, **kwargs):
    """Output and gradients, the same dice each time."""
    torch.manual_seed(3)
    model.zero_grad()
    args = [x.detach().clone().requires_grad_(backward) if x.is_floating_point() else x for x in args]
    if len(args) == 3 and args[0].shape == args[1].shape == args[2].shape:
        args = [args[0]] * 3
    out = model(*args, **kwargs)
    out = out[0] if isinstance(out, tuple) else out
    if not backward:
        return [out]
    out.square().sum().backward()
    return [out.detach(), *(x.grad for x in args), *(p.grad for p in model.parameters())]


def same(a, b):
    return all((x is None and y is None) or torch.equal(x, y) for x, y in zip(a, b, strict=True))


def mha_matrix(module, query, key, added=None):
    """The weights of an nn.MultiheadAttention, (B, H, T, S), from its parameters; batch first."""
    w_q, w_k, _ = module.in_proj_weight.double().chunk(3)
    b_q, b_k, _ = module.in_proj_bias.double().chunk(3)
    q, k = F.linear(query.double(), w_q, b_q), F.linear(key.double(), w_k, b_k)
    if module.bias_k is not None:
        k = torch.cat([k, module.bias_k.double().expand(k.size(0), 1, -1)], 1)
    if module.add_zero_attn:
        k = torch.cat([k, torch.zeros(k.size(0), 1, k.size(2))], 1)
    q, k = (x.unflatten(-1, (module.num_heads, -1)).transpose(1, 2) for x in (q, k))
    return matrix(q, k, added)


def transformers(nn):
    options = {"dim_feedforward": 5, "batch_first": True}
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(E, H, **options), 2, enable_nested_tensor=False
    )
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(E, H, **options), 2)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "enable_nested_tensor is True")  # no even number of heads
        both = nn.Transformer(E, H, 2, 2, **options)
    source, target = randn(B, S, E, seed=1, dtype=torch.float32), randn(B, T, E, seed=2, dtype=torch.float32)
    tower = [f"layers.{i}.self_attn" for i in range(2)]
    decoding = [f"layers.{i}.{kind}" for i in range(2) for kind in ("self_attn", "multihead_attn")]
    return {
        "encoder": (encoder, (source,), tower),
        "decoder": (decoder, (target, source), decoding),
        "both": (
            both,
            (source, target),
            [f"encoder.{n}" for n in tower] + [f"decoder.{n}" for n in decoding],
        ),
    }


class Sdpa(nn.Module):
    def __init__(self, bias=None, **options):
        super().__init__()
        self.options = options
        self.bias = None if bias is None else nn.Parameter(bias)

    def forward(self, q, k, v):
        mask = self.options | ({} if self.bias is None else {"attn_mask": self.bias})
        return F.scaled_dot_product_attention(q, k, v, **mask)
