"""Show, attend and tell (Xu et al., 2015): an LSTM that looks at the picture before every word.

    weights = softmax(additive(h, memory))           where to look, judged from what was said so far
    context = sigmoid(gate h) * (weights @ memory)   and how much of it to take in
    h, c    = LSTM([word, context], h, c)
    logits  = readout([h, context, word])

Its regulariser asks that every part of the picture be looked at about once in a caption: what each cell
received, summed over the words, should be near one (the "doubly stochastic" attention of the paper).
"""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.attention.additive import additive_scores
from sightline.attention.scores import Additive
from sightline.models.recurrence import RecurrentState
from sightline.models.steps import keys_and_values
from sightline.shapes import Float, Int

__all__ = ["RecurrentDecoder", "RecurrentState"]


class RecurrentDecoder(nn.Module):
    """An LSTM decoder with additive attention over the picture.

    Args:
        vocab_size: Words it knows, V.
        d_model: Width of the memory and of the words, E.
        d_hidden: Width of the LSTM and of the score's hidden layer.
        dropout: On words, memory and readout.
        tied: Whether the words it reads and the words it writes share their vectors.
        pad: The id of padding.
    """

    def __init__(
        self, *, vocab_size: int, d_model: int, d_hidden: int, dropout: float, tied: bool, pad: int
    ) -> None:
        super().__init__()
        self.pad = pad
        self.words = nn.Embedding(vocab_size, d_model)
        nn.init.normal_(self.words.weight, std=d_model**-0.5)
        self.first = nn.Linear(d_model, 2 * d_hidden)
        self.score = Additive(d_hidden, d_model, d_hidden)
        self.gate = nn.Linear(d_hidden, d_model)
        self.cell = nn.LSTMCell(2 * d_model, d_hidden)
        self.readout = nn.Linear(d_hidden + 2 * d_model, d_model)
        self.bias = nn.Parameter(torch.zeros(vocab_size))
        self.output = None if tied else nn.Linear(d_model, vocab_size, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, memory: Float[Tensor, "B P C"], ids: Int[Tensor, "N T"]
    ) -> tuple[Float[Tensor, "N T V"], Float[Tensor, "N P"]]:
        """The logits after each of the ids, and what each cell received over all of them but padding.

        N is a multiple of B, the captions of a picture side by side; C is E, or 2 E where keys are made of
        something else than what is seen.
        """
        memory = self.dropout(memory)
        words = self.dropout(self._embedded(ids))  # (N, T, E)
        state = self._initial_state(memory, look=True).branch(ids.size(0) // memory.size(0))
        outputs, contexts, looks = [], [], []
        for t in range(ids.size(1)):
            context, state = self._advance(state, words[:, t])
            outputs.append(state.rows[0])
            contexts.append(context)
            looks.append(state.attention_weights)
        features = self._read_out(torch.stack(outputs, 1), torch.stack(contexts, 1), words)
        logits = self._logits(self.dropout(features))
        weights = torch.cat([x for x in looks if x is not None], dim=1)  # (N, T, P)
        real = (ids != self.pad).to(weights.dtype)
        return logits, (weights * real.unsqueeze(-1)).sum(1)

    @torch.no_grad()
    def start(self, memory: Float[Tensor, "B P C"], *, look: bool = False) -> RecurrentState:
        """The state before the first word."""
        return self._initial_state(memory, look=look)

    @torch.no_grad()
    def step(
        self, state: RecurrentState, ids: Int[Tensor, " N"]
    ) -> tuple[Float[Tensor, "N V"], RecurrentState]:
        """The log-probabilities of the word after ``ids``; as in eval, nothing is dropped."""
        words = self._embedded(ids)
        context, state = self._advance(state, words)
        logits = self._logits(self._read_out(state.rows[0], context, words))
        return logits.log_softmax(-1, torch.promote_types(logits.dtype, torch.float32)), state

    def _initial_state(self, memory: Float[Tensor, "B P C"], *, look: bool) -> RecurrentState:
        key_memory, memory = keys_and_values(memory, self.words.embedding_dim)
        h, c = self.first(memory.mean(1)).tanh().chunk(2, dim=-1)
        keys = F.linear(key_memory, self.score.W)  # once, not with every word
        return RecurrentState(rows=(h, c), inputs=(memory, keys), look=look)

    def _advance(
        self, state: RecurrentState, words: Float[Tensor, "N E"]
    ) -> tuple[Float[Tensor, "N E"], RecurrentState]:
        """Attend, gate the context, and run the LSTM for one word."""
        h, c = state.rows
        memory, keys = state.inputs
        queries = F.linear(h, self.score.V).unflatten(0, (-1, state.width))  # (B, K, d_attn)
        scores = additive_scores(queries, keys, self.score.v)
        weights = scores.softmax(-1)  # (B, K, P)
        context = (weights @ memory).flatten(0, 1)  # (N, E)
        context = self.gate(h).sigmoid() * context
        h, c = self.cell(torch.cat([words, context], dim=-1), (h, c))
        attention_weights = weights.flatten(0, 1).unsqueeze(1) if state.look else None
        return context, replace(state, rows=(h, c), attention_weights=attention_weights)

    def _embedded(self, ids: Tensor) -> Tensor:
        return self.words(ids) * self.words.embedding_dim**0.5

    def _read_out(self, h: Tensor, context: Tensor, words: Tensor) -> Tensor:
        return self.readout(torch.cat([h, context, words], dim=-1)).tanh()

    def _logits(self, x: Tensor) -> Tensor:
        weight = self.words.weight if self.output is None else self.output.weight
        return F.linear(x, weight, self.bias)
