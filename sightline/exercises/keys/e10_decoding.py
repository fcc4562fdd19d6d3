"""Exercise 10: greedy decoding and beam search.

The model is a table here: table[a, b] is the log-probability that token b comes after token a. A sentence
begins with the token `start` and is over when `end` was written. Return the tokens after `start`, with
`end` if it was reached, as a list of whole numbers; write at most max_length of them.
"""

import torch
from torch import Tensor


def greedy(table: Tensor, start: int, end: int, max_length: int) -> list[int]:
    """Always take the likeliest next token.

    >>> table = torch.tensor([[0.0, 0.6, 0.4], [0.0, 0.1, 0.9], [0.0, 0.0, 1.0]]).log()
    >>> greedy(table, start=0, end=2, max_length=5)
    [1, 2]
    """
    # solution
    tokens: list[int] = []
    last = start
    while len(tokens) < max_length and last != end:
        last = int(table[last].argmax())
        tokens.append(last)
    return tokens
    # end


def beam(table: Tensor, start: int, end: int, max_length: int, width: int) -> list[int]:
    """Keep the `width` likeliest beginnings at every step; return the likeliest sentence of the last step.

    The log-probability of a beginning is the sum of those of its tokens. A finished beginning (one that wrote
    `end`) stays as it is and takes part in the choice. Stop when all are finished or max_length is reached.
    """
    # solution
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
    # end
