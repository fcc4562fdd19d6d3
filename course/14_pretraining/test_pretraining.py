"""The checks of exercise 14: pytest course/14_pretraining."""

import torch
import torch.nn.functional as F

from course.checks import agree, drawn

(LOGITS,) = drawn(53, (7, 5))
TOKENS = torch.tensor([3, 1, 4, 1, 0, 2, 2])
POSITIVE = "a loss is positive: minus the log-probability"


def test_causal_loss(exercise):
    right = F.cross_entropy(LOGITS[:-1], TOKENS[1:])
    agree(exercise.causal_loss(LOGITS, TOKENS), right, {
        "the guess at place t is for the token at t + 1: shift the tokens by one": (
            F.cross_entropy(LOGITS, TOKENS)
        ),
        "the other way round: the guess at place t is for the token that comes after it": (
            F.cross_entropy(LOGITS[1:], TOKENS[:-1])
        ),
        POSITIVE: -right,
    })  # fmt: skip


def test_masked_loss(exercise):
    hidden = torch.tensor([False, True, False, False, True, True, False])
    right = F.cross_entropy(LOGITS[hidden], TOKENS[hidden])
    agree(exercise.masked_loss(LOGITS, TOKENS, hidden), right, {
        "only hidden places count": F.cross_entropy(LOGITS, TOKENS),
        "the mean over the hidden places, not over all": right * 3 / 7,
        "the hidden places count, not the visible ones": F.cross_entropy(LOGITS[~hidden], TOKENS[~hidden]),
        POSITIVE: -right,
    })  # fmt: skip
    every = torch.ones(7, dtype=torch.bool)
    agree(exercise.masked_loss(LOGITS, TOKENS, every), F.cross_entropy(LOGITS, TOKENS))
