"""A model whose probabilities are a hash of what was said: the search can be checked by trying everything."""

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor

BOS, EOS = 1, 2


@dataclass(frozen=True, eq=False)
class ToyState:
    """The input of each row and what was said so far; the simplest state there is."""

    inputs: Tensor  # (N,)
    said: Tensor  # (N, T)
    look: bool = False

    def __len__(self):
        return self.inputs.size(0)

    @property
    def device(self):
        return self.inputs.device

    @property
    def attention_weights(self):
        if not self.look or self.said.size(1) == 0:
            return None
        seen = self.said.double().cumsum(1)[:, -1] + self.inputs  # a number that only this past has, nearly
        return torch.stack([seen, -seen], -1)[:, None, :].float()  # (N, 1, 2)

    def select(self, rows):
        return ToyState(self.inputs[rows], self.said[rows], self.look)


class Toy:
    """log p(next | input, said) is random, and the same every time it is asked for."""

    def __init__(self, vocab_size, *, end=0.0):
        self.vocab_size, self.end = vocab_size, end

    def start(self, n, *, look=False):
        return ToyState(torch.arange(n), torch.zeros(n, 0, dtype=torch.long), look)

    def step(self, state, ids):
        said = torch.cat([state.said, ids[:, None]], 1)
        rows = []
        for number, past in zip(state.inputs.tolist(), said.tolist(), strict=True):
            generator = torch.Generator().manual_seed(hash((number, *past)) % (1 << 40))
            logits = torch.randn(self.vocab_size, generator=generator)
            logits[EOS] += self.end
            rows.append(logits.log_softmax(-1))
        return torch.stack(rows), ToyState(state.inputs, said, state.look)


def log_probability(model, number, tokens):
    """Of a whole sequence, its end included if it has one."""
    state = ToyState(torch.tensor([number]), torch.zeros(1, 0, dtype=torch.long))
    total, before = 0.0, BOS
    for token in tokens:
        log_probs, state = model.step(state, torch.tensor([before]))
        total += log_probs[0, token].item()
        before = token
    return total


def everything(model, number, words, longest, alpha):
    """All sequences with their scores, the best first: those that end, and those cut off at the longest."""
    found = []
    for length in range(longest + 1):
        for body in itertools.product(words, repeat=length):
            tokens = [*body, EOS] if length < longest else [*body]
            score = log_probability(model, number, tokens) / max(1, len(tokens)) ** alpha
            found.append((score, list(body)))
    return sorted(found, reverse=True)
