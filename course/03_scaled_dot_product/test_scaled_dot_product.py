"""The checks of exercise 3: pytest course/03_scaled_dot_product."""

import torch
import torch.nn.functional as F

from course.checks import agree, drawn


def attend(Q, K, V, divide, dim=-1):
    weights = torch.softmax(Q @ K.mT / divide, dim=dim)
    return weights @ V, weights


def test_the_figures_of_the_homework(exercise):
    torch.manual_seed(0)
    Q, K, V = torch.randn(2, 3, 4), torch.randn(2, 3, 4), torch.randn(2, 3, 4)
    answer = exercise.scaled_dot_product_attention(Q, K, V)
    output, weights = attend(Q, K, V, 2.0)
    agree(answer, (output, weights), {
        "return both: the output first, then the weights": output,
        "the output comes first, then the weights": (weights, output),
        "the scores are not divided by the root of d_k": attend(Q, K, V, 1.0),
        "divide by the root of d_k, not by d_k itself": attend(Q, K, V, 4.0),
        "divide by the root: dividing by 1 / sqrt(d_k) multiplies by it": attend(Q, K, V, 0.5),
        "the root is of d_k, the width of a key, not of the number of words": attend(Q, K, V, 3**0.5),
        "the softmax runs over the queries: a query's weights sum to one (dim=-1)": attend(Q, K, V, 2.0, 1),
        "the softmax runs over the batch: a query's weights sum to one (dim=-1)": attend(Q, K, V, 2.0, 0),
    })  # fmt: skip
    printed = [[0.4537, 0.3877, 0.1586], [0.4461, 0.3433, 0.2105], [0.2678, 0.3638, 0.3684]]
    agree(answer[1][0], torch.tensor(printed))
    agree(answer[0][1, 2], torch.tensor([0.1222, -0.4625, -0.4709, -0.1724]))


def test_seven_keys_and_values_of_another_width(exercise):
    Q, K, V = drawn(5, (2, 3, 5), (2, 7, 5), (2, 7, 11))
    output, weights = exercise.scaled_dot_product_attention(Q, K, V)
    agree(weights, attend(Q, K, V, 5**0.5)[1], {
        "that divides by 2 whatever the width: take the root of Q.shape[-1]": attend(Q, K, V, 2.0)[1],
        "the root is of d_k, the width of a key, not of a value": attend(Q, K, V, 11**0.5)[1],
    })  # fmt: skip
    agree(output, F.scaled_dot_product_attention(Q, K, V))


def test_large_numbers(exercise):
    Q, K, V = (30 * x for x in drawn(6, (1, 2, 5), (1, 3, 5), (1, 3, 5)))
    agree(exercise.scaled_dot_product_attention(Q, K, V)[0], F.scaled_dot_product_attention(Q, K, V))
