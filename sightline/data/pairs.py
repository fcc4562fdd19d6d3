"""Sentence pairs: what a translator learns from.

A folder or a zip holds the splits, ``train``, ``val`` (or ``valid``, ``dev``) and ``test`` (or ``test_2016``,
...), each in one of three forms:

=======================================  =====================================================
``train.en`` and ``train.de``             two parallel texts, a sentence a line
``train.tsv``                             source, tab, target; a first line of their names is optional
``train.jsonl``                           an object a line, ``{"en": "...", "de": "..."}``
=======================================  =====================================================

A single ``.tsv`` or ``.jsonl`` file is a set as well; its pairs are dealt to the splits by their own text.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from sightline.data.pair_files import TABLES, is_table, lines, parallel_in, split_name, texts_in
from sightline.data.pair_tables import tables
from sightline.shapes import did_you_mean

__all__ = ["Columns", "Pair", "PairSet", "hash_split", "read_columns", "read_pairs"]

_NAMED = 4  # files in a sentence
_SHARES = 20  # of a single file: one is the test split's and one is val's


class Pair(NamedTuple):
    """A sentence and its translation."""

    source: str
    target: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PairSet:
    """The splits of a set of pairs.

    Attributes:
        name: Where it comes from.
        source: The language that is read, or what the column is called.
        target: The language that is written.
        splits: The pairs of each split.
    """

    name: str
    source: str
    target: str
    splits: Mapping[str, Sequence[Pair]]

    def split(self, name: str) -> Sequence[Pair]:
        """The pairs of a split, by its name; ``test`` finds ``test_2016`` if it is the only one so called.

        Example:
            >>> PairSet(name="x", source="a", target="b", splits={"test_1": [Pair("1", "2")]}).split("test")
            [Pair(source='1', target='2')]
        """
        found = self.find(name)
        if found is not None:
            return self.splits[found]
        alike = [key for key in self.splits if key.startswith(name)]
        other = alike[0] if alike else "val" if "val" in self.splits else next(iter(self.splits), "all")
        raise ValueError(
            f"there is no split {name!r} in {self.name}; choose another, as in --split {other}, "
            f"{did_you_mean(name, self.splits)}"
        )

    def find(self, name: str) -> str | None:
        """The whole name of a split: itself, or the only one that begins so; None if there is none."""
        alike = [key for key in self.splits if key.startswith(name)]
        return name if name in self.splits else alike[0] if len(alike) == 1 else None

    def lacking(self) -> str | None:
        """What keeps a training from using the set, with a remedy; None if nothing does."""
        for name, use in (("train", "learn from"), ("val", "choose the best weights by")):
            if self.find(name) is None:
                there = ", ".join(map(repr, self.splits))
                return (
                    f"a training needs pairs to {use}, there is no split {name!r} in {self.name}, but "
                    f"{there}; put some into {name}.{self.source} and {name}.{self.target}, or {name}.tsv, "
                    "or give all pairs as one .tsv or .jsonl, which is dealt to the splits"
                )
        return None


def read_pairs(path: Path | str, *, source: str | None = None, target: str | None = None) -> PairSet:
    """Read a folder, a zip or a single table of sentence pairs; nothing is written.

    Args:
        path: The folder, the ``.zip``, the ``.tsv`` or the ``.jsonl``.
        source: The language to read from: the ending of the parallel texts, or the name of a column; of a
            table without names, what the first column is called. Default: the first of the two there are, by
            the alphabet for parallel texts, as they stand in a table.
        target: The language to translate to. Default: the other one.

    Raises:
        ValueError: If texts that should be parallel differ in length, a side is empty, a line is no pair, a
            language is missing or it is not clear which two are meant.
        OSError: If there is nothing at the path.
    """
    columns = read_columns(path, source=source, target=target)
    splits = {
        split: _paired(split, texts, columns.source, columns.target) for split, texts in columns.texts.items()
    }
    if is_table(Path(path)):
        (pairs,) = splits.values()
        splits = hash_split(pairs)
        for name, some in splits.items():
            if not some:
                raise ValueError(
                    f"a single file is dealt to train, val and test by its sentences, got none for {name} "
                    f"out of {len(pairs)}; give a folder with a file for each split"
                )
    return PairSet(name=str(path), source=columns.source, target=columns.target, splits=splits)


class Columns(NamedTuple):
    """Two languages, and the lines of each split in both, parallel or not."""

    source: str
    target: str
    texts: Mapping[str, tuple[list[str], list[str]]]


def read_columns(path: Path | str, *, source: str | None = None, target: str | None = None) -> Columns:
    """The texts that :func:`read_pairs` pairs, before it asks whether they can be paired."""
    if source is not None and source == target:
        raise ValueError(f"source and target must be two languages, got {source!r} for both")
    path = Path(path)
    files = dict(texts_in(path))
    by_file = tables({x: text for x, text in files.items() if _is_table(x)}, source=source, target=target)
    by_file |= {x: {x.rpartition(".")[2]: lines(text)} for x, text in files.items() if not _is_table(x)}
    found = {path.name: by_file[path.name]} if is_table(path) else _by_split(by_file)
    if not found:
        there = ", ".join(parallel_in(path)[:_NAMED]) or "none of them"
        raise ValueError(
            f"there are no sentence pairs in {str(path)!r}; expected train.en and train.de, train.tsv or "
            f"train.jsonl, and the same for val and test, got {there}"
        )
    languages = tuple(dict.fromkeys(name for texts in found.values() for name in texts))
    source, target = _chosen(path, languages, source, target)
    texts = {
        split: (texts[source], texts[target])
        for split, texts in found.items()
        if source in texts and target in texts
    }
    if not texts:
        raise ValueError(f"no split of {str(path)!r} has both {source!r} and {target!r}")
    return Columns(source, target, texts)


def _is_table(name: str) -> bool:
    return name.lower().endswith(TABLES)


def _by_split(by_file: Mapping[str, dict[str, list[str]]]) -> dict[str, dict[str, list[str]]]:
    """For each split the lines of each language."""
    found: dict[str, dict[str, list[str]]] = {}
    files_of: dict[tuple[str, str], str] = {}
    for name in sorted(by_file):
        split = split_name(name.rpartition(".")[0])
        for language in by_file[name]:
            before = files_of.setdefault((split, language), name)
            if before != name:
                raise ValueError(
                    f"there must be {split} in {language} once, got {before} and {name}; remove one of them"
                )
        found.setdefault(split, {}).update(by_file[name])
    return found


def _chosen(path: Path, columns: tuple[str, ...], source: str | None, target: str | None) -> tuple[str, str]:
    """Which two of the languages are meant."""
    for role, name in (("source", source), ("target", target)):
        if name is not None and name not in columns:
            raise ValueError(
                f"there is no {role} {name!r} in {str(path)!r}; name another with --{role}, "
                f"{did_you_mean(name, columns)}"
            )
    if len(columns) < 2:
        raise ValueError(
            f"pairs are of two languages, {str(path)!r} has {columns[0]} alone; add the other, beside "
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
            f"it must be clear which languages to translate, {str(path)!r} has {', '.join(columns)}; "
            "name two of them with --source and --target"
        )
    return source, target


def _paired(name: str, texts: tuple[list[str], list[str]], source: str, target: str) -> list[Pair]:
    """Pair the lines of two texts, refusing those that can't be parallel."""
    left, right = texts
    if len(left) != len(right):
        raise ValueError(
            f"parallel texts must have as many lines, {name}.{source} has {len(left)} and {name}.{target} "
            f"has {len(right)}; a line of one translates the same line of the other"
        )
    if not left:
        raise ValueError(f"{name} has no pairs: {name}.{source} and {name}.{target} are empty")
    for number, (a, b) in enumerate(zip(left, right, strict=True), 1):
        if not a or not b:
            language, full = (source, b) if not a else (target, a)
            beside = f"beside {full[:40]!r}" if full else f"and no {target}"
            raise ValueError(
                f"no side of a pair may be empty, pair {number} of {name} has no {language} {beside}; "
                "remove it from both sides"
            )
    return [Pair(a, b) for a, b in zip(left, right, strict=True)]


def hash_split(pairs: Sequence[Pair]) -> dict[str, list[Pair]]:
    """Split the pairs of a single file by their source, so that a sentence is never in two splits."""
    splits: dict[str, list[Pair]] = {"train": [], "val": [], "test": []}
    for pair in pairs:
        share = zlib.crc32(pair.source.encode()) % _SHARES
        splits[{0: "test", 1: "val"}.get(share, "train")].append(pair)
    return splits
