"""Bad input to what ``sl.nn`` has of its own; torch's drop-ins say what torch says."""

import torch

import sightline as sl

X = torch.zeros(2, 5, 8)
nn = sl.nn


BAD = {
    "sl.nn.SelfAttention(d_in): zero": (lambda: nn.SelfAttention(0, 4, 4), ValueError, "d_in", "0"),
    "sl.nn.SelfAttention(d_k): a text": (lambda: nn.SelfAttention(8, "4", 4), TypeError, "d_k", "'4'"),
    "sl.nn.SelfAttention(d_v): negative": (lambda: nn.SelfAttention(8, 4, -4), ValueError, "d_v", "-4"),
    "sl.nn.SelfAttention.forward(x): another width": (
        lambda: nn.SelfAttention(4, 4, 4)(X), ValueError, "4", "8",
    ),
    "sl.nn.SelfAttention.forward(mask): other sizes": (
        lambda: nn.SelfAttention(8, 4, 4)(X, torch.ones(4, 5).bool()), ValueError, "(4, 5)",
    ),
    "sl.nn.MultiHeadSelfAttention(num_heads): zero": (
        lambda: nn.MultiHeadSelfAttention(8, 4, 4, 0), ValueError, "0",
    ),
    "sl.nn.MultiHeadSelfAttention(d_k): zero": (
        lambda: nn.MultiHeadSelfAttention(8, 0, 4, 2), ValueError, "d_k", "0",
    ),
    "sl.nn.MultiHeadSelfAttention.forward(x): another width": (
        lambda: nn.MultiHeadSelfAttention(4, 4, 4, 2)(X), ValueError, "4", "8",
    ),
}  # fmt: skip
