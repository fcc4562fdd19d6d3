"""The sequences that a search found, and the tree of prefixes they are read from."""

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol, SupportsIndex, runtime_checkable

import torch
from torch import Tensor

from sightline.data.tokens import PAD
from sightline.shapes import Bool, Float, Int

__all__ = ["Detokenizer", "Hypotheses", "HypothesisTree"]


@runtime_checkable
class Detokenizer(Protocol):
    """Something that turns ids into text."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of some ids."""
        ...


@dataclass(frozen=True, eq=False)
class Hypotheses:
    """Decoded sequences: K for each of B inputs, the best first.

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
        """A copy in the memory of the host."""
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
    """The prefixes of a search: for each step, the row that each of the K new rows continues, and its token.

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


_EVERY = 8  # steps between two questions to a GPU


def may_synchronise(device: torch.device, t: int) -> bool:
    """Whether to ask after step ``t`` if all is done: a GPU in some steps only, and never while recorded."""
    if device.type != "cuda":
        return True
    return t % _EVERY == _EVERY - 1 and not torch.cuda.is_current_stream_capturing()


def all_done(done: Bool[Tensor, "..."], t: int) -> bool:
    """Whether all is done after step ``t``, where that may be asked."""
    return may_synchronise(done.device, t) and bool(done.all())


class LengthLimits(NamedTuple):
    """The most tokens that each input may get.

    Attributes:
        most: The largest of them: so many steps are taken at most.
        steps: All of them, known to the host: in other steps nothing has to be closed.
        each: One for each input, on its device.
    """

    most: int
    steps: frozenset[int]
    each: Int[Tensor, " B"]


def limits(max_length: SupportsIndex | Sequence[int], n: int, device: torch.device) -> LengthLimits:
    """The same limit for all of ``n`` inputs, or one for each.

    Raises:
        ValueError: If a search might not take a step, or there is not one limit for each input.
    """
    alike = not isinstance(max_length, Sequence)
    given = tuple(map(operator.index, max_length if isinstance(max_length, Sequence) else (max_length,)))
    if not alike and len(given) != n:
        raise ValueError(
            f"max_length must be one number, or one for each input, got {len(given)} for {n} inputs"
        )
    if min(given, default=1) < 1:
        raise ValueError(f"max_length must be at least 1 token, got {min(given)}")
    each = column_index(given, device)
    return LengthLimits(max(given, default=1), frozenset(given), each.expand(n) if alike else each)


def column_index(ids: tuple[int, ...], device: torch.device) -> Int[Tensor, " F"]:
    """Some ids as an index, written on the device: a copy from the host can't be recorded."""
    index = torch.zeros(len(ids), dtype=torch.long, device=device)
    for i, number in enumerate(ids):
        index[i].fill_(number)
    return index
