"""The checks of exercise 6: pytest course/06_self_attention."""

import torch
import torch.nn.functional as F
from torch import nn

from course.checks import agree, drawn


def by_hand(x, order="qkv", scale=None, bias=True):
    """What a layer with d_k = 3 and d_v = 11 answers after torch.manual_seed(1), made in some order."""
    torch.manual_seed(1)
    maps = {name: nn.Linear(x.shape[-1], 11 if name == "v" else 3, bias=bias) for name in order}
    return F.scaled_dot_product_attention(*(maps[name](x) for name in "qkv"), scale=scale)


def test_the_layer(exercise):
    (x,) = drawn(13, (2, 5, 7))
    torch.manual_seed(1)
    layer = exercise.SelfAttention(7, 3, 11)
    agree(layer(x), by_hand(x), {
        "make the linear layers in the order query, key, value": by_hand(x, "kqv"),
        "make the linear layers in the order query, key, value, not value first": by_hand(x, "vkq"),
        "the scores are not divided by the root of d_k": by_hand(x, scale=1.0),
        "the homework's linear layers have biases": by_hand(x, bias=False),
    })  # fmt: skip


def test_the_figures_of_the_homework(exercise):
    torch.manual_seed(40)
    output = exercise.SelfAttention(d_in=32, d_k=512, d_v=64)(torch.ones(20, 5, 32))
    agree(output.shape, (20, 5, 64))
    agree(output[-1, 1, :5], torch.tensor([-0.0166, -0.4199, -0.5860, 0.3721, 0.5411]))


def test_unshuffled(exercise):
    order = torch.tensor([3, 0, 4, 1, 2])
    (x,) = drawn(13, (1, 5, 2))
    agree(exercise.unshuffled(x[:, order], order), x, {
        "that shuffles a second time; order.argsort() undoes it": x[:, order][:, order],
        "the words are still shuffled": x[:, order],
    })  # fmt: skip
