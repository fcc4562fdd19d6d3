"""Exercise 13, solved: an image as a sentence of patches."""

import torch
from torch import Tensor


def patches(image: Tensor, size: int) -> Tensor:
    channels, height, width = image.shape
    cut = image.reshape(channels, height // size, size, width // size, size)
    return cut.permute(1, 3, 0, 2, 4).reshape(-1, channels * size * size)
