"""Exercise 12: one step of a translator with attention, and how good an alignment is.

From the lecture notes "Attention-Based Models", definition 1.2, equations (5) to (7).

Check it with: pytest course/12_translation
"""

import torch
from torch import Tensor


def attention_step(state: Tensor, encoder_states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What the decoder reads of the source at one step: (scores, weights, context).

    state is (h,): the decoder's state, the query. encoder_states is (S, h): one state for each source word;
    they are keys and values at once. The score is the dot product (without a root, as in the notes), the
    weights are the softmax of the scores, the context is the weighted sum of the encoder's states.
    """
    raise NotImplementedError  # your code here


def alignment_error_rate(
    found: list[tuple[int, int]], sure: list[tuple[int, int]], possible: list[tuple[int, int]]
) -> float:
    """How far the found links between words are from those that people drew; 0 is perfect.

        AER = 1 - (|found and sure| + |found and possible|) / (|found| + |sure|)

    A link is a pair (place in the source, place in the target). A sure link is possible, too, whether or
    not it is in the list of possible ones.

    >>> alignment_error_rate([(0, 0), (1, 2)], sure=[(0, 0)], possible=[(1, 1)])
    0.33333333333333337
    """
    raise NotImplementedError  # your code here
