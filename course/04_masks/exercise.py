"""Exercise 4: masks. True (or 1) means that a query may look at a key.

From ECE 57000, assignment 4, exercise 2, task 2, and the homework "Introduction to Transformers continued"
(2023), exercise 2.

Check it with: pytest course/04_masks
"""

import torch
from torch import Tensor


def create_mask(seq_len: int) -> Tensor:
    """The causal mask: a boolean tensor (seq_len, seq_len), True where query t may look at key s.

    A query may look at itself and at what came before it, never at the future.

    >>> create_mask(3)
    tensor([[ True, False, False],
            [ True,  True, False],
            [ True,  True,  True]])
    """
    raise NotImplementedError  # your code here


def padding_mask(lengths: Tensor, size: int) -> Tensor:
    """The padding mask: a boolean tensor (batch, 1, size), True at the real keys of each sentence.

    Sentences of a batch are filled up to the same size. lengths[b] says how many words of sentence b are
    real. The axis of size 1 stands for the queries: the mask is the same for all of them.

    >>> padding_mask(torch.tensor([3, 1]), 4)
    tensor([[[ True,  True,  True, False]],
    <BLANKLINE>
            [[ True, False, False, False]]])
    """
    raise NotImplementedError  # your code here


def attention_score(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Attention as in exercise 3, under a mask: forbidden keys get the weight 0, and each row sums to one.

    Forbidden scores become -inf before the softmax, because exp(-inf) is 0. mask may hold True and False,
    or 1.0 and 0.0; mask == 0 is True where it is forbidden either way. scores.masked_fill(m, x) puts x
    where m is True. Without a mask every query may look everywhere. Returns output and weights.

    The homework prints these weights for its random input, the last word of the second sentence masked:

    >>> _ = torch.manual_seed(0)
    >>> Q, K, V = torch.randn(2, 3, 4), torch.randn(2, 3, 4), torch.randn(2, 3, 4)
    >>> mask = torch.ones(2, 1, 3)
    >>> mask[1, 0, 2:] = 0
    >>> output, weights = attention_score(Q, K, V, mask)
    >>> weights[1]
    tensor([[0.7905, 0.2095, 0.0000],
            [0.8871, 0.1129, 0.0000],
            [0.1727, 0.8273, 0.0000]])
    """
    raise NotImplementedError  # your code here
