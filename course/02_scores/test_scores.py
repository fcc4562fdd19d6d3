"""The checks of exercise 2: pytest course/02_scores."""

import torch
import torch.nn.functional as F

from course.checks import agree, drawn

TRANSPOSED = "rows are queries and columns are keys: the result is transposed"
Q, K = drawn(2, (3, 5), (7, 5))
Q1, K1 = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0], [-1.0, 0.5]])


def test_dot(exercise):
    agree(exercise.dot(Q1, K1), torch.tensor([[11.0, 0.0]]), {
        TRANSPOSED: torch.tensor([[11.0], [0.0]]),
        "* multiplies number by number and adds nothing up: the matrix product is @": Q1 * K1,
    })  # fmt: skip
    agree(exercise.dot(Q, K), torch.stack([torch.stack([(q * k).sum() for k in K]) for q in Q]))


def test_cosine(exercise):
    expected = F.cosine_similarity(Q[:, None], K[None], dim=-1)
    agree(exercise.cosine(Q, K), expected, {
        TRANSPOSED: expected.T,
        "the dot product is not divided by the lengths yet": Q @ K.T,
        "divide by the length of the key as well as that of the query": Q @ K.T / Q.norm(dim=-1)[:, None],
        "divide by the length of the query as well as that of the key": Q @ K.T / K.norm(dim=-1),
        "each vector has its own length: norm needs dim=-1": Q @ K.T / (Q.norm() * K.norm()),
    })  # fmt: skip


def test_general(exercise):
    """Queries of width 5, keys of width 2."""
    K, W = drawn(3, (7, 2), (5, 2))
    expected = torch.einsum("td,de,se->ts", Q, W, K)
    agree(exercise.general(Q, K, W), expected, {TRANSPOSED: expected.T})


def test_additive(exercise):
    K, W_q, W_k, v = drawn(4, (7, 2), (11, 5), (11, 2), (11,))
    expected = torch.stack([torch.stack([v @ torch.tanh(W_q @ q + W_k @ k) for k in K]) for q in Q])
    agree(exercise.additive(Q, K, W_q, W_k, v), expected, {
        TRANSPOSED: expected.T,
        "the tanh is missing: without it the network is linear": (Q @ W_q.T @ v)[:, None] + K @ W_k.T @ v,
    })  # fmt: skip
