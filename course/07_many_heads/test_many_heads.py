"""The checks of exercise 7: pytest course/07_many_heads."""

import torch
from torch import nn

from course.checks import agree, drawn


def test_many_heads(exercise):
    (x,) = drawn(19, (2, 5, 7))

    def joined(d_k, d_v, *, last_first=True):
        torch.manual_seed(3)
        last = nn.Linear(10, 10) if last_first else None
        heads = [exercise.SelfAttention(7, d_k, d_v) for _ in range(2)]
        return last or nn.Linear(2 * d_v, 10), torch.cat([head(x) for head in heads], dim=-1)

    last, mixed = joined(3, 5)
    late, _ = joined(3, 5, last_first=False)
    wide, of_wide = joined(6, 10, last_first=False)
    torch.manual_seed(3)
    agree(exercise.MultiHeadSelfAttention(7, 6, 10, 2)(x), last(mixed), {
        "make the last linear layer before the heads": late(joined(3, 5, last_first=False)[1]),
        "each head takes an equal share of the width: d_k / num_heads and d_v / num_heads": wide(of_wide),
        "the last linear layer is missing": mixed,
    })  # fmt: skip


def test_the_figures_of_the_homework(exercise):
    torch.manual_seed(40)
    x = torch.rand(32, 10, 256)
    output = exercise.MultiHeadSelfAttention(d_in=256, d_k=512, d_v=64, num_heads=8)(x)
    agree(output.shape, (32, 10, 64))
    agree(output[-1, 1, :5], torch.tensor([0.0275, -0.1630, 0.1510, 0.3983, -0.0111]))


def test_manual_attention(exercise):
    """Against torch's module, at the homework's sizes."""
    q, k, v, w_in, w_out = drawn(17, (5, 4), (5, 4), (5, 4), (12, 4), (4, 4))

    def of_torch(w_in, w_out):
        layer = nn.MultiheadAttention(4, 1, bias=False, batch_first=True)
        layer.load_state_dict({"in_proj_weight": w_in, "out_proj.weight": w_out})
        return layer(q, k, v)

    no_root = w_in * torch.cat([torch.full((8, 1), 2**0.5), torch.ones(4, 1)])  # undoes the root of 4
    untransposed = torch.cat([w.T for w in w_in.chunk(3)])
    agree(exercise.manual_attention(q, k, v, w_in, w_out), of_torch(w_in, w_out), {
        "torch multiplies by the transposed weights: Q @ W_q.T": of_torch(untransposed, w_out.T),
        "the last projection, W_out, is missing": of_torch(w_in, torch.eye(4)),
        "the scores are not divided by the root of d": of_torch(no_root, w_out),
    })  # fmt: skip
