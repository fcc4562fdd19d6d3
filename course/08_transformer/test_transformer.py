"""The checks of exercise 8: pytest course/08_transformer."""

import torch
import torch.nn.functional as F
from torch import nn

from course.checks import agree, drawn

(X,) = drawn(29, (5, 6))


def layer_of(heads, **options):
    """torch's layer with weights that differ from where they begin."""
    torch.manual_seed(23)
    layer = nn.TransformerEncoderLayer(6, heads, 11, dropout=0.0, batch_first=True, **options)
    for parameter in layer.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return layer


def test_one_head(exercise):
    layer = layer_of(1)
    weights = dict(layer.state_dict())
    attended = layer.self_attn(X, X, X)[0]
    alone, fed = layer.norm1(attended), layer.norm1(X + attended)
    no_out = layer_of(1)
    no_out.self_attn.out_proj.weight.data, no_out.self_attn.out_proj.bias.data = torch.eye(6), torch.zeros(6)
    agree(exercise.encoder_layer(X, weights, 1), layer(X), {
        "add what went in before each norm (the residual connections)": (
            layer.norm2(layer.linear2(F.relu(layer.linear1(alone))))
        ),
        "here the norm comes after the sum, not before attention": layer_of(1, norm_first=True)(X),
        "the relu between the two linear layers is missing": (
            layer.norm2(fed + layer.linear2(layer.linear1(fed)))
        ),
        "the heads' outputs go through self_attn.out_proj before they are added": no_out(X),
    })  # fmt: skip


def test_three_heads(exercise):
    layer = layer_of(3)
    weights = dict(layer.state_dict())

    def scaled(factor):
        """The layer with its scores times a factor."""
        other = layer_of(3)
        other.self_attn.in_proj_weight.data[:6] *= factor  # those of the queries
        other.self_attn.in_proj_bias.data[:6] *= factor
        return other(X)

    agree(exercise.encoder_layer(X, weights, 3), layer(X), {
        "the scores are not divided by the root of a head's width": scaled(2**0.5),
        "the root is of a head's width, E / num_heads, not of E": scaled(3**-0.5),
    })  # fmt: skip


def test_count_parameters(exercise):
    for d, ff in ((4, 8), (512, 2048)):  # the second is the paper's
        layer = nn.TransformerEncoderLayer(d, 1, ff, batch_first=True)
        agree(exercise.count_parameters(d, ff), sum(x.numel() for x in layer.parameters()), {
            "count the biases as well as the matrices": 4 * d * d + 2 * d * ff + 4 * d,
            "two norms have a weight and a bias each: 4 * d_model numbers more": (
                4 * d * (d + 1) + 2 * d * ff + ff + d
            ),
        }, near=1e-9)  # fmt: skip
