"""Sentence pairs in shards: their texts are read into memory, as those of a table are."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sightline.data.dataset import Problem
from sightline.data.pair_set import Pair, PairSet, choose_languages
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
    """Read tar or parquet shards of sentence pairs.

    Args:
        paths: The shards.
        place: What the user has called them.
        source, target: The languages to read and to write; None: the two there are, in their order.
        seed: Deals the pairs to splits, where no shard's name tells one.
        strict: Refuse a pair that lacks a side. Else those that lack one are among the problems.

    Raises:
        ValueError: If it is not clear which two languages are meant, or a pair lacks a side.
    """
    shards = Shards(paths, place, PAIR)
    languages = choose_languages(place, shards.languages, source, target)
    numbers, rule = shards.splits(seed, _SHARE, _SHARE)
    problems = list(shards.problems)
    pairs: dict[int, Pair] = {}
    for number, row in shards.rows():
        try:
            pairs[number] = _pair(row, languages, shards.name(number))
        except ValueError as problem:
            if strict:
                raise
            problems.append(Problem("empty", shards.name(number), str(problem)))
    return PairSet(
        source=place,
        source_language=languages[0],
        target_language=languages[1],
        parts={split: [pairs[i] for i in part.tolist() if i in pairs] for split, part in numbers.items()},
        layout=shards.layout,
        rule=rule,
        problems=tuple(problems),
    )


def _pair(row: Mapping[str, Any], languages: tuple[str, str], name: str) -> Pair:
    """The two sides of a pair.

    Raises:
        ValueError: If it lacks one.
    """
    sides = sides_of(row)
    for language in languages:
        if not sides.get(language):
            there = ", ".join(sides) or "no text"
            raise ValueError(
                f"no side of a pair may be empty, {name!r} has no {language}, but {there}; leave it out"
            )
    return Pair(*(sides[language] for language in languages))
