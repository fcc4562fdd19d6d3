"""Exercise 13: an image as a sentence of patches.

From the lecture notes "Attention-Based Models", example 1.2: an image of 224 x 224 becomes 196 x 768.

Check it with: pytest course/13_vision
"""

import torch
from torch import Tensor


def patches(image: Tensor, size: int) -> Tensor:
    """Cut an image (C, height, width) into patches of size x size: a tensor (P, C * size * size).

    Patches are read as words of a page: left to right, then the next row of patches. Within a patch come all
    numbers of the first channel, row by row, then those of the second, and so on.

    >>> patches(torch.arange(16.0).reshape(1, 4, 4), 2)
    tensor([[ 0.,  1.,  4.,  5.],
            [ 2.,  3.,  6.,  7.],
            [ 8.,  9., 12., 13.],
            [10., 11., 14., 15.]])
    >>> patches(torch.zeros(3, 224, 224), 16).shape
    torch.Size([196, 768])
    """
    raise NotImplementedError  # your code here
