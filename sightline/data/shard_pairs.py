"""Sentence pairs in shards, read as they are needed: a set of pairs of any size."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import overload

from sightline.data.counter_rng import Ints
from sightline.data.dataset import Problem
from sightline.data.pair_set import Pair, PairSet, choose_languages
from sightline.data.shard_order import Blocks
from sightline.data.shard_rows import PAIR, sides_of
from sightline.data.shards import Shards

__all__ = ["ShardPairs", "read_pair_shards"]

_SHARE = 0.05  # of the pairs, for val and for test, as of a single file


class ShardPairs(Sequence[Pair]):
    """The pairs of a split; each is read when it is asked for."""

    def __init__(self, shards: Shards, numbers: Ints, languages: tuple[str, str]) -> None:
        self._shards, self._numbers, self._languages = shards, numbers, languages

    @cached_property
    def blocks(self) -> Blocks:
        """How they lie in the shards."""
        return self._shards.blocks(self._numbers)

    def __len__(self) -> int:
        """How many there are."""
        return len(self._numbers)

    @overload
    def __getitem__(self, index: int) -> Pair: ...
    @overload
    def __getitem__(self, index: slice) -> "ShardPairs": ...
    def __getitem__(self, index: int | slice) -> "Pair | ShardPairs":
        """One pair, or those of a slice, still unread.

        Raises:
            ValueError: If it lacks a side.
        """
        if isinstance(index, slice):
            return ShardPairs(self._shards, self._numbers[index], self._languages)
        number = int(self._numbers[index])
        sides = sides_of(self._shards.row(number))
        for language in self._languages:
            if not sides.get(language):
                there = ", ".join(sides) or "no text"
                raise ValueError(
                    f"no side of a pair may be empty, {self._shards.name(number)!r} has no {language}, but "
                    f"{there}; pack it again without it"
                )
        return Pair(*(sides[language] for language in self._languages))


def read_pair_shards(
    paths: Sequence[Path],
    *,
    place: str,
    source: str | None = None,
    target: str | None = None,
    seed: int = 0,
    strict: bool = True,
) -> PairSet:
    """Open tar or parquet shards of sentence pairs.

    Args:
        paths: The shards.
        place: What the user has called them.
        source, target: The languages to read and to write; None: the two there are, in their order.
        seed: Deals the pairs to splits, where no shard's name tells one.
        strict: Refuse a pair that lacks a side, when it is read. Else all pairs are looked at first, and
            those that lack one are among the problems.

    Raises:
        ValueError: If it is not clear which two languages are meant.
    """
    shards = Shards(paths, place, PAIR)
    languages = choose_languages(place, shards.languages, source, target)
    parts, rule = shards.splits(seed, _SHARE, _SHARE)
    problems = list(shards.problems)
    found = {split: ShardPairs(shards, numbers, languages) for split, numbers in parts.items()}
    if not strict:
        for split, pairs in found.items():
            found[split], lacking = _whole(pairs, shards, parts[split], languages)
            problems += lacking
    return PairSet(
        source=place,
        source_language=languages[0],
        target_language=languages[1],
        parts=found,
        layout=shards.layout,
        rule=rule,
        problems=tuple(problems),
    )


def _whole(
    pairs: ShardPairs, shards: Shards, numbers: Ints, languages: tuple[str, str]
) -> tuple[ShardPairs, list[Problem]]:
    """The pairs that have both sides, and the sentences for the others."""
    kept, problems = [], []
    for i in range(len(pairs)):
        try:
            pairs[i]
        except ValueError as problem:
            problems.append(Problem("empty", shards.name(int(numbers[i])), str(problem)))
        else:
            kept.append(i)
    return ShardPairs(shards, numbers[kept], languages), problems
