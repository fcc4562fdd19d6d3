"""Texts as ids, ready to be taken in batches: every word is cut once, with BPE dropout in several ways.

BPE dropout (Provilkov et al., 2020) cuts a word anew every time it is read. To do that while a GPU waits
would be slow; here each word of the corpus is cut into ``variants`` ways before the training begins, and
which of them is taken is a hash of (seed, epoch, place in the corpus). A batch is a few array operations.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sightline.data.batches import seed_of
from sightline.data.counter_rng import hashed_integers
from sightline.data.merges import Merges
from sightline.data.tokens import PAD, UNK, Tokenizer
from sightline.shapes import Int

__all__ = ["SegmentedCorpus"]

_Ids = NDArray[np.int64]


class SegmentedCorpus:
    """Some texts, cut by a BPE tokenizer.

    Args:
        tokenizer: Of kind ``bpe``.
        texts: What to cut.
        dropout: How likely a merge is left out; 0 cuts every word one way.
        variants: Ways that each word is cut with dropout.
        seed: What they are drawn from, and what chooses among them.

    Example:
        >>> cuts = SegmentedCorpus(Tokenizer.train(["ab ab c"], kind="bpe", vocab_size=20), ["ab c", "c"])
        >>> [row.tolist() for row in cuts.batch([0, 1], epoch=0)] == [[*cuts[0]], [*cuts[1], PAD]]
        True
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
        if tokenizer.kind != "bpe":
            raise ValueError(
                f"only a BPE tokenizer can be cut in advance, got one of kind {tokenizer.kind!r}"
            )
        self._seed = seed
        words: dict[str, int] = {}
        numbers, ends = [], [0]
        for text in texts:
            numbers += [words.setdefault(word, len(words)) for word in _pretokenize(tokenizer, text)]
            ends.append(len(numbers))
        self._words = np.array(numbers, np.int64)
        self._ends = np.array(ends, np.int64)
        merges = Merges.of(tokenizer.inner, UNK)
        self._plain = _Table([merges.encode([word], 0.0, 0) for word in words], 1)
        self._dropped = self._plain
        if dropout:
            self._dropped = _Table(
                [
                    merges.encode([word], dropout, seed_of(seed, word, i))
                    for word in words
                    for i in range(variants)
                ],
                variants,
            )

    def __len__(self) -> int:
        """How many texts there are."""
        return len(self._ends) - 1

    def __getitem__(self, index: int) -> list[int]:
        """The ids of a text, without dropout."""
        row: list[int] = self._plain.taken(self._words[self._ends[index] : self._ends[index + 1]]).tolist()
        return row

    def lengths(self) -> list[int]:
        """The number of ids of each text, without dropout."""
        total = np.concatenate([[0], np.cumsum(self._plain.counts[self._words])])
        lengths: list[int] = (total[self._ends[1:]] - total[self._ends[:-1]]).tolist()
        return lengths

    def unknown(self) -> float:
        """The share of all ids, without dropout, that stand for no letter: UNK."""
        often = np.bincount(self._words, minlength=len(self._plain.counts))
        row = np.repeat(np.arange(len(often)), self._plain.counts)
        total = int((often * self._plain.counts).sum())
        return float(often[row[self._plain.pieces == UNK]].sum() / max(1, total))

    def batch(
        self, indices: Sequence[int], epoch: int, *, first: int | None = None, last: int | None = None
    ) -> Int[Tensor, "B L"]:
        """The ids of some texts, padded; with dropout, as this epoch has it.

        Args:
            indices: Which texts.
            epoch: Chooses among the ways a word is cut.
            first, last: Ids to stand before and after each text.
        """
        chosen = np.asarray(indices, np.int64)
        places, row = _ranges(self._ends[chosen], self._ends[chosen + 1] - self._ends[chosen])
        table = self._dropped
        cut = self._words[places] * table.variants
        if table.variants > 1:
            cut += hashed_integers(places, seed_of(self._seed, "cuts", epoch)) % table.variants
        counts = table.counts[cut]
        pieces, of = _ranges(table.starts[cut], counts)
        row = row[of]
        lengths = np.bincount(row, minlength=len(chosen))
        before, after = first is not None, last is not None
        ids = np.full((len(chosen), int(lengths.max(initial=0)) + before + after), PAD, np.int64)
        column = np.arange(len(row)) - (np.cumsum(lengths) - lengths)[row] + before
        ids[row, column] = table.pieces[pieces]
        if first is not None:
            ids[:, 0] = first
        if last is not None:
            ids[np.arange(len(chosen)), lengths + before] = last
        return torch.from_numpy(ids)


class _Table:
    """Rows of different length, one after the other in one array."""

    def __init__(self, rows: Sequence[Sequence[int]], variants: int) -> None:
        self.variants = variants
        self.counts: _Ids = np.array([len(row) for row in rows], np.int64)
        self.starts: _Ids = np.cumsum(self.counts) - self.counts
        self.pieces: _Ids = np.array([i for row in rows for i in row], np.int64)

    def taken(self, rows: _Ids) -> _Ids:
        pieces, _ = _ranges(self.starts[rows], self.counts[rows])
        return self.pieces[pieces]


def _pretokenize(tokenizer: Tokenizer, text: str) -> list[str]:
    """The words that BPE works on, one by one."""
    inner = tokenizer.inner
    return [word for word, _ in inner.pre_tokenizer.pre_tokenize_str(inner.normalizer.normalize_str(text))]


def _ranges(starts: _Ids, counts: _Ids) -> tuple[_Ids, _Ids]:
    """All of ``start .. start + count - 1``, one range after the other; and which range each belongs to."""
    which = np.repeat(np.arange(len(counts)), counts)
    within = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
    return starts[which] + within, which
