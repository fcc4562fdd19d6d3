"""Exercise 9: warm-up and label smoothing.

Check it with: pytest course/09_training
"""

import torch
from torch import Tensor


def learning_rate(step: int, d_model: int, warmup: int) -> float:
    """The learning rate of the Transformer's paper at a step; steps count from 1.

        d_model ** -0.5 * min(step ** -0.5, step * warmup ** -1.5)

    >>> round(learning_rate(step=4000, d_model=512, warmup=4000), 6)
    0.000699
    """
    raise NotImplementedError  # your code here


def smoothed_cross_entropy(logits: Tensor, target: Tensor, smoothing: float) -> Tensor:
    """Cross-entropy against smoothed targets, the mean over the batch: one number.

    logits is (N, V): a score for each of V words. target is (N,): the right word. Instead of 1 for the
    right word and 0 for all others, the target is smoothing / V for every word, plus 1 - smoothing for the
    right one. The loss of an example is minus the sum of target times log-probability;
    torch.log_softmax(logits, dim=-1) gives the log-probabilities.
    """
    raise NotImplementedError  # your code here
