"""The equation on six random tokens, without and with a mask, beside the figures a homework printed.

The exercise (2023.11.09, homework 2) draws q, k and v from ``manual_seed(0)`` and prints four digits of
the output and of the weights; the second time the last key of the second sequence is masked.
"""

import torch

import sightline as sl

OUTPUT = [
    [[0.2957, 0.3332, 0.0674, 0.2081], [0.2628, 0.4036, 0.0423, 0.2148], [0.3083, 0.4486, 0.2576, 0.2905]],
    [
        [-0.1859, -0.8284, -0.5916, -1.0532],
        [-0.1266, -0.8076, -0.5838, -1.1651],
        [0.1222, -0.4625, -0.4709, -0.1724],
    ],
]
WEIGHTS = [
    [[0.4537, 0.3877, 0.1586], [0.4461, 0.3433, 0.2105], [0.2678, 0.3638, 0.3684]],
    [[0.5597, 0.1483, 0.2920], [0.5515, 0.0702, 0.3784], [0.1524, 0.7299, 0.1178]],
]
MASKED_OUTPUT = [
    OUTPUT[0],
    [
        [-0.5912, -1.0937, -0.6829, -0.9884],
        [-0.6886, -1.1866, -0.7139, -1.1376],
        [0.0322, -0.4995, -0.4843, -0.0339],
    ],
]
MASKED_WEIGHTS = [
    WEIGHTS[0],
    [[0.7905, 0.2095, 0.0000], [0.8871, 0.1129, 0.0000], [0.1727, 0.8273, 0.0000]],
]


def compare(what: str, ours: torch.Tensor, figures: list) -> None:
    printed = torch.tensor(figures)
    apart = (ours - printed).abs().max().item()
    print(f"{what}: ours, then the document's; at most {apart:.6f} apart")
    for our_row, their_row in zip(ours.flatten(0, 1), printed.flatten(0, 1), strict=True):
        print(
            "  " + " ".join(f"{x:8.4f}" for x in our_row) + "   |" + " ".join(f"{x:8.4f}" for x in their_row)
        )
    assert apart < 6e-5, "more than the rounding of four digits"


torch.manual_seed(0)
q, k, v = torch.randn(2, 3, 4), torch.randn(2, 3, 4), torch.randn(2, 3, 4)

output, weights = sl.reference.scaled_dot_product_attention(q, k, v)
compare("output", output, OUTPUT)
compare("weights", weights, WEIGHTS)

mask = torch.ones(2, 1, 3)
mask[1, 0, 2:] = 0  # the last token of the second sequence is padding
output, weights = sl.reference.scaled_dot_product_attention(q, k, v, mask)
compare("masked output", output, MASKED_OUTPUT)
compare("masked weights", weights, MASKED_WEIGHTS)

# The same mask as a value, and the same output without ever holding the weights.
fused = sl.attention(q, k, v, sl.masks.padding([3, 2]))
compare("masked output, fused", fused, MASKED_OUTPUT)
