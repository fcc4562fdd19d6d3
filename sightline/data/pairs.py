"""Reading sentence pairs.

A folder or a zip holds the splits, ``train``, ``val`` (or ``valid``, ``dev``) and ``test`` (or ``test_2016``,
...), each in one of these forms:

=======================================  =====================================================
``train.en`` and ``train.de``             two parallel texts, a sentence a line
``train.tsv``, ``train.csv``              source and target; a first line of their names is optional
``train.txt``                             Tatoeba's lines: text, tab, translation, tab, attribution
``train.jsonl``, ``train.json``           ``{"en": "...", "de": "..."}``, as such or under ``translation``
``train-00000-of-00002.parquet``          the same columns
=======================================  =====================================================

A single table is a set as well, and so are two parallel texts alone, ``corpus.en`` and ``corpus.de``: their
pairs are dealt to the splits by their own text.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from sightline.data.dataset import STATED, Deal, Problem, check_deal, hash_split
from sightline.data.pair_files import TABLES, PairFile, columns_of, find_pair_files, parallel_names
from sightline.data.pair_set import Pair, PairSet, choose_languages
from sightline.data.shard_files import find_shards
from sightline.data.shard_pairs import read_pair_shards
from sightline.data.sources import files_of

__all__ = ["Columns", "Pair", "PairSet", "read_columns", "read_pairs"]

_NAMED = 4  # files in a sentence
_SHARE = 0.05  # of a single file, for val and for test
_RATIO = 3.0  # one side so many times as long as the other
_SHORT = 20  # letters; shorter ones may well differ that much


def read_pairs(
    path: Path | str,
    *,
    source: str | None = None,
    target: str | None = None,
    deal: Deal = "hash",
    seed: int = 0,
    strict: bool = True,
) -> PairSet:
    """Read a folder, a zip or a single table of sentence pairs; nothing is written.

    Args:
        path: The folder, the ``.zip``, or a table: ``.tsv``, ``.csv``, ``.txt``, ``.jsonl``, ``.json``,
            ``.parquet``; or shards by their folder or a pattern, which are read as a training goes.
        source: The language to read from: the ending of the parallel texts, or the name of a column; of a
            table without names, what the first column is called. Default: the first of the two there are, by
            the alphabet for parallel texts, as they stand in a table.
        target: The language to translate to. Default: the other one.
        deal: How a single table is dealt: by the hash of each source, or as version 0.1 did.
        seed: Of the hash.
        strict: Refuse what can't be paired. Else it is among the ``problems`` of the set, with what looks
            odd, as long as one pair is left.

    Raises:
        ValueError: If texts that should be parallel differ in length, a side is empty, a line is no pair, a
            language is missing or it is not clear which two are meant.
        OSError: If there is nothing at the path.
    """
    check_deal(deal)
    if (shards := find_shards(path)) is not None:
        return read_pair_shards(
            shards, place=str(path), source=source, target=target, seed=seed, strict=strict
        )
    columns = read_columns(path, source=source, target=target)
    if strict:
        _check_paired(columns)
    parts, problems = _paired(columns)
    if not strict:
        problems += [problem for name, pairs in parts.items() for problem in _odd(name, pairs)]
        if not any(pair.source and pair.target for pairs in parts.values() for pair in pairs):
            first = problems[0].sentence if problems else "it has none"
            raise ValueError(f"not one pair of {str(path)!r} can be used; the first problem: {first}")
    rule = STATED
    if columns.single:
        (pairs,) = parts.values()
        parts = _dealt(pairs, deal, seed)
        rule = "dealt by a hash of each source, as a training does with a single file"
        for name, some in parts.items():
            if strict and not some:
                raise ValueError(
                    f"a single file is dealt to train, val and test by its sentences, got none for {name} "
                    f"out of {len(pairs)}; give a folder with a file for each split"
                )
    return PairSet(
        source=str(path),
        source_language=columns.source,
        target_language=columns.target,
        parts=parts,
        layout=columns.layout,
        rule=rule,
        problems=tuple(problems),
    )


class Columns(NamedTuple):
    """Two languages, and the lines of each split in both, parallel or not.

    Attributes:
        source, target: The languages.
        texts: The lines of each split, or of the only file under its own name.
        layout: What kind of files they are.
        single: Whether it is one table, or one text in two languages, that has the name of no split.
    """

    source: str
    target: str
    texts: Mapping[str, tuple[list[str], list[str]]]
    layout: str
    single: bool


def read_columns(path: Path | str, *, source: str | None = None, target: str | None = None) -> Columns:
    """The texts that :func:`read_pairs` pairs, before it asks whether they can be paired."""
    if source is not None and source == target:
        raise ValueError(f"source and target must be two languages, got {source!r} for both")
    path = Path(path)
    files = find_pair_files(path)
    if not files:
        tables = [name for name in files_of(path).names() if name.lower().endswith(TABLES)]
        there = ", ".join([*parallel_names(path), *tables][:_NAMED]) or "none of them"
        if tables and path.is_dir():
            there += f"; one table can be given by itself, as {str(path / tables[0])!r}"
        raise ValueError(
            f"there are no sentence pairs in {str(path)!r}; expected train.en and train.de, train.tsv, "
            f"train.csv, train.jsonl or train.parquet, and the same for val and test, got {there}"
        )
    by_file = columns_of(files, source=source, target=target)
    single = all(file.split is None for file in files)
    found = _by_split(files, by_file)
    languages = tuple(dict.fromkeys(name for texts in found.values() for name in texts))
    source, target = choose_languages(str(path), languages, source, target)
    texts = {
        split: (texts[source], texts[target])
        for split, texts in found.items()
        if source in texts and target in texts
    }
    if not texts:
        raise ValueError(f"no split of {str(path)!r} has both {source!r} and {target!r}")
    return Columns(source, target, texts, files[0].layout, single)


def _by_split(
    files: Sequence[PairFile], by_file: Mapping[str, dict[str, list[str]]]
) -> dict[str, dict[str, list[str]]]:
    """For each split the lines of each language; the shards of a split one after the other."""
    found: dict[str, dict[str, list[str]]] = {}
    seen: dict[tuple[str, str], PairFile] = {}
    for file in files:
        alone = file.name.rpartition(".")[0] if file.layout == "parallel texts" else file.name
        split = file.split or alone
        for language, lines in by_file[file.name].items():
            before = seen.setdefault((split, language), file)
            if before is not file and not (before.is_shard and file.is_shard):
                raise ValueError(
                    f"there must be {split} in {language} once, got {before.name} and {file.name}; "
                    "remove one of them"
                )
            found.setdefault(split, {}).setdefault(language, []).extend(lines)
    return found


def _check_paired(columns: Columns) -> None:
    """Refuse the lines of two texts that can't be parallel."""
    source, target = columns.source, columns.target
    for name, (left, right) in columns.texts.items():
        if len(left) != len(right):
            raise ValueError(
                f"parallel texts must have as many lines, {name}.{source} has {len(left)} and "
                f"{name}.{target} has {len(right)}; a line of one translates the same line of the other"
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


def _paired(columns: Columns) -> tuple[dict[str, list[Pair]], list[Problem]]:
    """The pairs of each split, and what keeps splits from being paired."""
    parts: dict[str, list[Pair]] = {}
    problems = []
    for name, (left, right) in columns.texts.items():
        if len(left) != len(right):
            a, b = f"{name}.{columns.source}", f"{name}.{columns.target}"
            sentence = f"{a} has {len(left)} lines and {b} has {len(right)}"
            problems.append(Problem("unequal", name, sentence))
        elif not left:
            problems.append(Problem("none", name, f"{name} has no pairs"))
        else:
            parts[name] = [Pair(a, b) for a, b in zip(left, right, strict=True)]
    return parts, problems


def _odd(name: str, pairs: Sequence[Pair]) -> Iterator[Problem]:
    """What is wrong with pairs by themselves."""
    for number, (source, target) in enumerate(pairs, 1):
        where = f"{name}, pair {number}"
        shorter, longer = sorted((len(source), len(target)))
        if not source or not target:
            side = "the target" if source else "the source" if target else "each side"
            yield Problem("empty", where, f"{where}: {side} is empty")
        elif source == target:
            yield Problem("identical", where, f"{where}: both sides are {source[:60]!r}")
        elif longer > _RATIO * shorter and longer > _SHORT:
            lengths = f"{len(source)} letters beside {len(target)}"
            yield Problem("ratio", where, f"{where}: {lengths}, {source[:40]!r} and {target[:40]!r}")


def _dealt(pairs: Sequence[Pair], deal: Deal, seed: int) -> dict[str, list[Pair]]:
    """Split the pairs of a single file by their source, so that a sentence is never in two splits."""
    parts: dict[str, list[Pair]] = {"train": [], "val": [], "test": []}
    if deal == "hash":
        split_of = hash_split((pair.source for pair in pairs), seed=seed, val=_SHARE, test=_SHARE)
    else:
        held = {0: "test", 1: "val"}
        split_of = {pair.source: held.get(zlib.crc32(pair.source.encode()) % 20, "train") for pair in pairs}
    for pair in pairs:
        parts[split_of[pair.source]].append(pair)
    return parts
