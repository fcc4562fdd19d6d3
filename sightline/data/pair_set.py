"""Sentence pairs in splits: what a translator learns from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from sightline.data.dataset import ALL, STATED, Problem, digest_of, find_split, in_order, missing_split
from sightline.shapes import did_you_mean

__all__ = ["Pair", "PairSet", "choose_languages"]


class Pair(NamedTuple):
    """A sentence and its translation."""

    source: str
    target: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PairSet:
    """Sentence pairs, split: a :class:`~sightline.data.dataset.Dataset`.

    Attributes:
        source: The folder, the file, or the embedded set's name.
        source_language: The language that is read, or what the column is called.
        target_language: The language that is written.
        parts: The pairs of each split.
        layout: Which of the formats it has.
        rule: How the splits came about.
        problems: What could not be used, and why.
    """

    source: str
    source_language: str
    target_language: str
    parts: Mapping[str, Sequence[Pair]]
    layout: str = ""
    rule: str = STATED
    problems: Sequence[Problem] = ()

    def splits(self) -> dict[str, int]:
        """How many pairs each split has: train, val and test first."""
        return in_order({name: len(part) for name, part in self.parts.items()})

    def split(self, name: str) -> Sequence[Pair]:
        """The pairs of a split, by its name; ``test`` finds ``test_2016`` if it is the only one so called.

        Example:
            >>> parts = {"test_1": [Pair("1", "2")]}
            >>> PairSet(source="x", source_language="a", target_language="b", parts=parts).split("test")
            [Pair(source='1', target='2')]
        """
        found = find_split(name, self.parts)
        if found is not None:
            return self.parts[found]
        if name != ALL:
            raise missing_split(name, self.splits(), self.source, remedy=self._remedy(name))
        return [pair for split in self.parts.values() for pair in split]

    def digest(self) -> str:
        """Names the sentences of train and val."""
        return digest_of(chain(self.split("train"), self.split("val")))

    def lacking(self) -> str | None:
        """What keeps a training from using the set, with a remedy; None if nothing does."""
        for name, use in (("train", "learn from"), ("val", "choose the best weights by")):
            if find_split(name, self.parts) is None:
                there = ", ".join(map(repr, self.parts))
                return (
                    f"a training needs pairs to {use}, there is no split {name!r} in {self.source}, but "
                    f"{there}; {self._remedy(name)}"
                )
        return None

    def _remedy(self, name: str) -> str:
        return (
            f"put some into {name}.{self.source_language} and {name}.{self.target_language}, or {name}.tsv, "
            "or give all pairs as one file, which is dealt to the splits"
        )


def choose_languages(
    place: str, columns: Sequence[str], source: str | None, target: str | None
) -> tuple[str, str]:
    """Which two of the languages of a set are meant.

    Raises:
        ValueError: If one is not there, or it is not clear.
    """
    for role, name in (("source", source), ("target", target)):
        if name is not None and name not in columns:
            raise ValueError(
                f"there is no {role} {name!r} in {place!r}; name another with --{role}, "
                f"{did_you_mean(name, columns)}"
            )
    if len(columns) < 2:
        raise ValueError(
            f"pairs are of two languages, {place!r} has {columns[0]} alone; add the other, beside "
            "train.en as train.de, in a table as a second column"
        )
    if source is None and target is None and len(columns) == 2:
        return columns[0], columns[1]
    others = [name for name in columns if name not in (source, target)]
    if source is None and len(others) == 1:
        source = others[0]
    if target is None and len(others) == 1:
        target = others[0]
    if source is None or target is None:
        raise ValueError(
            f"it must be clear which languages to translate, {place!r} has {', '.join(columns)}; "
            "name two of them with --source and --target"
        )
    return source, target
