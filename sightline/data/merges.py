"""Byte-pair merges with dropout, seeded: what the library draws from a generator that nobody can set."""

import random
from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import log

__all__ = ["Merges"]

_Pieces = tuple[str, ...]
_MOST_KEPT = 1 << 18  # cuts whose next merges are remembered; words repeat, so nearly all lookups hit


class Merges:
    """The merges of a BPE model, applied with some of them left out (BPE-dropout, Provilkov et al. 2020).

    In every round each possible merge of a word is dropped with probability p, and the first in rank that
    is left is made; when none is left the word is done: the paper's algorithm, line by line. (The library's
    own gives dropped merges further chances, and so cuts less for the same p.) With p = 0 this is plain BPE.

    Example:
        >>> merges = Merges({"<unk>": 3, "a": 4, "b": 5, "ab": 6}, [("a", "b")], unk=3)
        >>> merges.encode(["abab"], 0.0, seed=7)
        [6, 6]
        >>> sorted({tuple(merges.encode(["ab"], 0.5, seed=s)) for s in range(20)})
        [(4, 5), (6,)]
    """

    def __init__(self, vocab: dict[str, int], merges: Iterable[Sequence[str]], unk: int) -> None:
        self._vocab = vocab
        self._unk = unk
        self._rank = {(pair[0], pair[1]): rank for rank, pair in enumerate(merges)}
        self._next: dict[_Pieces, list[_Pieces]] = {}

    def encode(self, words: Iterable[str], p: float, seed: int) -> list[int]:
        """The ids of the pieces of some words, each merge left out with probability p."""
        chance = random.Random(seed)  # noqa: S311  no secret
        # The first merge that is not dropped is the n-th with probability (1 - p) pⁿ: one draw finds it.
        scale = 1 / log(p) if p > 0 else 0.0
        ids: list[int] = []
        for word in words:
            pieces: _Pieces = tuple(word)
            while options := self._options(pieces):
                n = int(log(1 - chance.random()) * scale)
                if n >= len(options):
                    break
                pieces = options[n]
            ids += [self._vocab.get(piece, self._unk) for piece in pieces]
        return ids

    def _options(self, pieces: _Pieces) -> list[_Pieces]:
        """What one merge can make of the pieces, in the order of the merges' ranks, left before right."""
        options = self._next.get(pieces)
        if options is None:
            ranked = sorted(
                (self._rank[pair], i) for i, pair in enumerate(pairwise(pieces)) if pair in self._rank
            )
            options = [(*pieces[:i], pieces[i] + pieces[i + 1], *pieces[i + 2 :]) for _, i in ranked]
            if len(self._next) >= _MOST_KEPT:
                self._next.clear()
            self._next[pieces] = options
        return options
