"""Texts as ids, cut when they are asked for: a :class:`SegmentedCorpus` of texts that fit no memory."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from sightline.data.batches import pad, seed_of
from sightline.data.counter_rng import hashed_integers
from sightline.data.merges import Merges
from sightline.data.segmented_corpus import pretokenize
from sightline.data.tokens import UNK, Tokenizer
from sightline.shapes import Int

__all__ = ["StreamedCorpus"]

_KEPT = 1 << 17  # cuts of words that are remembered


class StreamedCorpus:
    """Some texts, cut by a BPE tokenizer a batch at a time; 16 bytes are kept of each.

    Args:
        tokenizer: Of kind ``bpe``.
        texts: What to cut; read once now, and again for each batch.
        dropout: How likely a merge is left out; 0 cuts every word one way.
        variants: Ways that each word is cut with dropout.
        seed: What they are drawn from, and what chooses among them.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        texts: Sequence[str],
        *,
        dropout: float = 0.0,
        variants: int = 16,
        seed: int = 0,
    ) -> None:
        self._tokenizer, self._texts, self._seed = tokenizer, texts, seed
        self._variants = variants if dropout else 1
        merges = Merges.of(tokenizer.inner, UNK)

        @lru_cache(_KEPT)
        def cut(word: str, variant: int) -> list[int]:
            return merges.encode([word], dropout, seed_of(seed, word, variant))

        @lru_cache(_KEPT)
        def plain(word: str) -> list[int]:
            return merges.encode([word], 0.0, 0)

        self._plain = plain
        self._cut = cut if dropout else lambda word, _: plain(word)
        ends, lengths = np.zeros(len(texts) + 1, np.int64), np.zeros(len(texts), np.int64)
        unknown = 0
        for i, text in enumerate(texts):
            words = pretokenize(tokenizer, text)
            ids = [one for word in words for one in plain(word)]
            ends[i + 1], lengths[i] = ends[i] + len(words), len(ids)
            unknown += ids.count(UNK)
        self._ends, self._lengths, self._unknown = ends, lengths, unknown

    def __len__(self) -> int:
        """How many texts there are."""
        return len(self._lengths)

    def lengths(self) -> list[int]:
        """The number of ids of each text, without dropout."""
        lengths: list[int] = self._lengths.tolist()
        return lengths

    def unknown(self) -> float:
        """The share of all ids, without dropout, that stand for no letter: UNK."""
        return self._unknown / max(1, int(self._lengths.sum()))

    def batch(
        self, indices: Sequence[int], epoch: int, *, first: int | None = None, last: int | None = None
    ) -> Int[Tensor, "B L"]:
        """The ids of some texts, padded; with dropout, as this epoch has it.

        Args:
            indices: Which texts.
            epoch: Chooses among the ways a word is cut.
            first, last: Ids to stand before and after each text.
        """
        before, after = ([] if end is None else [end] for end in (first, last))
        rows = [[*before, *self._ids(i, epoch), *after] for i in indices]
        return pad(rows) if any(rows) else torch.zeros(len(rows), 0, dtype=torch.long)

    def _ids(self, index: int, epoch: int) -> list[int]:
        words = pretokenize(self._tokenizer, self._texts[index])
        variants = [0] * len(words)
        if self._variants > 1:
            places = np.arange(self._ends[index], self._ends[index] + len(words))
            variants = (hashed_integers(places, seed_of(self._seed, "cuts", epoch)) % self._variants).tolist()
        return [
            one for word, variant in zip(words, variants, strict=True) for one in self._cut(word, variant)
        ]
