"""Sentence pairs in shards, read as they are needed: a set of pairs of any size."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from sightline.data.counter_rng import Ints
from sightline.data.dataset import Problem
from sightline.data.pair_set import Pair, PairSet, choose_languages
from sightline.data.shard_examples import ShardExamples
from sightline.data.shard_rows import PAIR, sides_of
from sightline.data.shards import Shards

__all__ = ["read_pair_shards"]

_SHARE = 0.05  # of the pairs, for val and for test, as of a single file


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
    read = partial(_read, shards, languages)
    if not strict:
        for split, numbers in parts.items():
            parts[split], lacking = _whole(numbers, shards, read)
            problems += lacking
    return PairSet(
        source=place,
        source_language=languages[0],
        target_language=languages[1],
        parts={split: ShardExamples(shards, numbers, read) for split, numbers in parts.items()},
        layout=shards.layout,
        rule=rule,
        problems=tuple(problems),
    )


def _read(shards: Shards, languages: tuple[str, str], number: int) -> Pair:
    """The two sides of a pair.

    Raises:
        ValueError: If it lacks one.
    """
    sides = sides_of(shards.row(number))
    for language in languages:
        if not sides.get(language):
            there = ", ".join(sides) or "no text"
            raise ValueError(
                f"no side of a pair may be empty, {shards.name(number)!r} has no {language}, but "
                f"{there}; pack it again without it"
            )
    return Pair(*(sides[language] for language in languages))


def _whole(numbers: Ints, shards: Shards, read: Callable[[int], Pair]) -> tuple[Ints, list[Problem]]:
    """The pairs that have both sides, and the sentences for the others."""
    kept, problems = [], []
    for number in numbers.tolist():
        try:
            read(number)
        except ValueError as problem:
            problems.append(Problem("empty", shards.name(number), str(problem)))
        else:
            kept.append(number)
    return np.array(kept, np.int64), problems
