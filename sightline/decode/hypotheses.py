"""What a search found, and the tree of tries that it is read from."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from sightline.data.tokens import PAD
from sightline.shapes import Float, Int

__all__ = ["Detokenizer", "Hypotheses", "HypothesisTree"]


@runtime_checkable
class Detokenizer(Protocol):
    """Something that turns ids into text."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of some ids."""
        ...


@dataclass(frozen=True, eq=False)
class Hypotheses:
    """What was decoded: K sequences for each of B inputs, the best first.

    Attributes:
        ids: The tokens, without the first and the last special one, padded with PAD; L is the number of
            steps taken, at least the longest length.
        lengths: How many tokens each has.
        scores: The log-probability of each, its end included; of a beam divided by its length to the power
            of alpha. Minus infinity where there was no K-th sequence.
        attention_weights: With which each token was chosen; None unless the state was started to look.
    """

    ids: Int[Tensor, "B K L"]
    lengths: Int[Tensor, "B K"]
    scores: Float[Tensor, "B K"]
    attention_weights: Float[Tensor, "B K L H S"] | None = None

    def lists(self) -> list[list[list[int]]]:
        """The sequences as plain lists of ids, K for each input."""
        lengths = self.lengths.tolist()
        return [
            [ids[:length] for ids, length in zip(of_input, upto, strict=True)]
            for of_input, upto in zip(self.ids.tolist(), lengths, strict=True)
        ]

    def texts(self, words: Detokenizer) -> list[str]:
        """The best sequence of each input as text, by a tokenizer."""
        return [words.decode(of_input[0]) for of_input in self.lists()]

    def cpu(self) -> "Hypotheses":
        """The same in the computer's own memory."""
        attention_weights = None if self.attention_weights is None else self.attention_weights.cpu()
        return replace(
            self,
            ids=self.ids.cpu(),
            lengths=self.lengths.cpu(),
            scores=self.scores.cpu(),
            attention_weights=attention_weights,
        )


@dataclass(eq=False)
class HypothesisTree:
    """All that a search tried: for each step, which row each of the K new rows continues, and with what.

    Rows are numbered within their input. Before the first step there is one.
    """

    parents: list[Int[Tensor, "B K"]] = field(default_factory=list)
    tokens: list[Int[Tensor, "B K"]] = field(default_factory=list)
    attention_weights: list[Float[Tensor, "B W H S"]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.tokens)

    def grow(
        self, parents: Int[Tensor, "B K"], tokens: Int[Tensor, "B K"], attention_weights: Tensor | None
    ) -> None:
        """Note a step; ``attention_weights`` is that of the rows before it, (B * W, H, S)."""
        self.parents.append(parents)
        self.tokens.append(tokens)
        if attention_weights is not None:
            self.attention_weights.append(attention_weights.unflatten(0, (parents.size(0), -1)))

    def read(
        self, lengths: Int[Tensor, "B M"], rows: Int[Tensor, "B M"], scores: Float[Tensor, "B M"]
    ) -> Hypotheses:
        """Follow hypotheses back from where they ended: ``rows`` after ``lengths`` tokens."""
        ids, looks = [], []
        for t in reversed(range(len(self))):
            after = lengths <= t
            token = self.tokens[t].gather(1, rows).masked_fill(after, PAD)
            parent = self.parents[t].gather(1, rows)
            if self.attention_weights:
                look = self.attention_weights[t]
                index = parent[..., None, None].expand(-1, -1, *look.shape[2:])
                looks.append(look.gather(1, index) * ~after[..., None, None])
            rows = rows.where(after, parent)
            ids.append(token)
        return Hypotheses(
            ids=torch.stack(ids[::-1], dim=-1),
            lengths=lengths,
            scores=scores,
            attention_weights=torch.stack(looks[::-1], dim=2) if looks else None,
        )
