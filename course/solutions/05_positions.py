"""Exercise 5, solved: positions as waves, and the rotation that shifts them."""

import math

import torch
from torch import Tensor


class PositionalEncoding:
    def __init__(self, d_model: int, max_len: int) -> None:
        self.d_model = d_model
        self.max_len = max_len

    def get_encoding(self) -> Tensor:
        table = torch.zeros(self.max_len, self.d_model)
        for pos in range(self.max_len):
            for i in range(self.d_model // 2):
                angle = pos / 10000 ** (2 * i / self.d_model)
                table[pos, 2 * i] = math.sin(angle)
                table[pos, 2 * i + 1] = math.cos(angle)
        return table


def add_positional_encoding(word_embeddings: Tensor, positional_encodings: Tensor) -> Tensor:
    return word_embeddings + positional_encodings


def rotation(omega: float, phi: float) -> Tensor:
    c, s = math.cos(omega * phi), math.sin(omega * phi)
    return torch.tensor([[c, s], [-s, c]])
