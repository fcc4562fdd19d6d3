"""Exercise 10, solved: greedy decoding and beam search."""

import torch
from torch import Tensor


def greedy(table: Tensor, start: int, end: int, max_length: int) -> list[int]:
    tokens: list[int] = []
    last = start
    while len(tokens) < max_length and last != end:
        last = int(table[last].argmax())
        tokens.append(last)
    return tokens


def beam(table: Tensor, start: int, end: int, max_length: int, width: int) -> list[int]:
    beams: list[tuple[float, list[int]]] = [(0.0, [])]
    for _ in range(max_length):
        longer = []
        for total, tokens in beams:
            if tokens and tokens[-1] == end:
                longer.append((total, tokens))
                continue
            row = table[tokens[-1] if tokens else start].tolist()
            longer += [(total + log, [*tokens, token]) for token, log in enumerate(row)]
        beams = sorted(longer, key=lambda one: -one[0])[:width]
        if all(tokens[-1] == end for _, tokens in beams):
            break
    return beams[0][1]
