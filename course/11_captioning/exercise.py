"""Exercise 11: is a caption right, and did the model look at the right place?

Check it with: pytest course/11_captioning
"""

import torch
from torch import Tensor


def clipped_precision(caption: list[str], references: list[list[str]]) -> float:
    """The first part of BLEU: which share of a caption's words is in the references.

    A word counts at most as often as it is in the one reference that has it most often: "the the the" against
    "the cat" has one word right of three.

    >>> clipped_precision(["the", "cat", "the"], [["the", "cat"], ["a", "cat"]])
    0.6666666666666666
    """
    raise NotImplementedError  # your code here


def share_in_box(weights: Tensor, box: tuple[int, int, int, int]) -> float:
    """How much of a word's attention lies in a box of the image, from 0 to 1.

    weights is (rows, columns): the weight on each patch of the image; it sums to one. box is (top, left,
    bottom, right), counted in patches; bottom and right are the first that are outside.

    >>> share_in_box(torch.full((2, 2), 0.25), (0, 0, 2, 1))
    0.5
    """
    raise NotImplementedError  # your code here
