"""Exercise 14: the two losses that a model learns a language by, without labels.

The text itself is the teacher: guess the next token from those before (causal), or hidden tokens from all
others (masked). A loss is minus the log-probability of the right token, the mean over all guesses.

Check it with: pytest course/14_pretraining
"""

import torch
from torch import Tensor


def causal_loss(logits: Tensor, tokens: Tensor) -> Tensor:
    """Guess the next token.

    logits is (T, V): at place t, a score for each of V tokens, made from tokens 0 to t. tokens is (T,). The
    guess at place t is for the token at t + 1; the last place has nothing to guess.
    """
    raise NotImplementedError  # your code here


def masked_loss(logits: Tensor, tokens: Tensor, hidden: Tensor) -> Tensor:
    """Guess the hidden tokens.

    hidden is (T,), True where the token was hidden from the model. The guess at place t is for the token at
    t, and only hidden places count.
    """
    raise NotImplementedError  # your code here
