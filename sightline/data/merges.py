"""Byte-pair merges with dropout, seeded: what the library draws from a generator that nobody can set."""

import json
import random
from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise
from math import log
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tokenizers

__all__ = ["Merges"]

_Pieces = tuple[str, ...]
_MOST_KEPT = 1 << 18  # cuts whose next merges are remembered; words repeat, so nearly all lookups hit
_SHORT = 24  # letters of a word whose cuts are remembered; one without spaces would fill the memory
_ENDLESS = 1000  # letters of a word that is none: the library cuts it, whole, in a hundredth of the time


class Merges:
    """The merges of a BPE model, applied with some of them left out (BPE-dropout, Provilkov et al. 2020).

    In every round each possible merge of a word is dropped with probability p, and the first in rank that
    is left is made; when none is left the word is done: the paper's algorithm, line by line. (The library's
    own gives dropped merges further chances, and so cuts less for the same p.) With p = 0 this is plain BPE.
    A word of more than 1000 letters is cut plainly where the library's tokenizer is at hand (:meth:`of`).

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
        self._inner: tokenizers.Tokenizer | None = None
        self._last: tuple[str, list[int]] = ("", [])  # an endless word, which is cut in many ways in a row

    @classmethod
    def of(cls, inner: "tokenizers.Tokenizer", unk: int) -> "Merges":
        """The merges of a BPE tokenizer of the library."""
        model = json.loads(inner.to_str())["model"]
        merges = cls(model["vocab"], model["merges"], unk)
        merges._inner = inner
        return merges

    def encode(self, words: Iterable[str], p: float, seed: int) -> list[int]:
        """The ids of the pieces of some words, each merge left out with probability p."""
        chance = random.Random(seed)  # noqa: S311  no secret
        # The first merge that is not dropped is the n-th with probability (1 - p) pⁿ: one draw finds it.
        scale = 1 / log(p) if p > 0 else 0.0
        ids: list[int] = []

        def draw() -> int:
            return int(log(1 - chance.random()) * scale)

        for word in words:
            if len(word) > _ENDLESS and self._inner is not None:
                ids += self._endless(word, self._inner)
                continue
            pieces = self._short(word, draw) if len(word) <= _SHORT else self._long(word, draw)
            ids += [self._vocab.get(piece, self._unk) for piece in pieces]
        return ids

    def _endless(self, word: str, inner: "tokenizers.Tokenizer") -> list[int]:
        if word != self._last[0]:
            self._last = word, [piece.id for piece in inner.model.tokenize(word)]
        return self._last[1]

    def _short(self, word: str, draw: Callable[[], int]) -> Sequence[str]:
        """Merge by what is remembered of the same cut of other words."""
        pieces: _Pieces = tuple(word)
        while options := self._options(pieces):
            n = draw()
            if n >= len(options):
                break
            pieces = options[n]
        return pieces

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

    def _long(self, word: str, draw: Callable[[], int]) -> Sequence[str]:
        """The same for any length: the possible merges wait in a heap, and pieces know their neighbours.

        A merge leaves its left piece longer and its right one empty. What it made impossible stays in the
        heap until it comes up, and is known by its pieces, which are there no more.
        """
        pieces, n = list(word), len(word)
        before, after = list(range(-1, n - 1)), list(range(1, n + 1))
        pairs = enumerate(pairwise(word))
        waiting = [(self._rank[pair], i, pair) for i, pair in pairs if pair in self._rank]
        heapify(waiting)
        possible = len(waiting)
        while possible and (skipped := draw()) < possible:
            dropped: list[tuple[int, int, tuple[str, str]]] = []
            while True:
                first = heappop(waiting)
                _, i, pair = first
                j = after[i]
                if j == n or (pieces[i], pieces[j]) != pair:
                    continue
                if len(dropped) == skipped:
                    break
                dropped.append(first)
            for one in dropped:  # they have another chance in the next round
                heappush(waiting, one)
            around = [(a, b) for a, b in ((before[i], i), (j, after[j])) if a >= 0 and b < n]
            possible -= 1 + sum((pieces[a], pieces[b]) in self._rank for a, b in around)
            pieces[i], pieces[j], after[i] = pieces[i] + pieces[j], "", after[j]
            if after[i] < n:
                before[after[i]] = i
            for a, b in ((before[i], i), (i, after[i])):
                pair = (pieces[a], pieces[b]) if a >= 0 and b < n else ("", "")
                if pair in self._rank:
                    heappush(waiting, (self._rank[pair], a, pair))
                    possible += 1
        return [piece for piece in pieces if piece]
