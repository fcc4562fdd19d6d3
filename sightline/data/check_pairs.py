"""A set of sentence pairs, looked at before training: what is in it, and what is wrong with it.

Nothing is refused here as long as one pair is left: what a training would refuse is told among the problems.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sightline.data.dates import dates_set, is_dates
from sightline.data.pair_files import is_table, names_in, parallel_in
from sightline.data.pairs import Columns, Pair, PairSet, hash_split, read_columns

__all__ = ["PairReport", "SplitPairs", "check_pairs", "has_pairs"]

_OTHERS = {".json", ".csv", ".txt", ".npz", ".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"}
_RATIO = 3.0  # one side so many times as long as the other
_SHORT = 20  # letters; shorter ones may well differ that much


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitPairs:
    """A split in numbers.

    Attributes:
        pairs: How many.
        words: Different words of the source and of the target, cut at spaces.
        longest: Words of the longest source and target.
        ratio: Letters of all targets over letters of all sources.
        unknown: Share of the source's words that the train split has not; None where there is no such split.
    """

    pairs: int
    words: tuple[int, int]
    longest: tuple[int, int]
    ratio: float
    unknown: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class PairReport:
    """What was found.

    Attributes:
        source: Where the set lies.
        languages: Source and target.
        splits: Each split in numbers.
        problems: Sentences by kind: lacking, none, unequal, empty, identical, ratio, double, overlap.
        rule: How the splits came about.
    """

    source: str
    languages: tuple[str, str]
    splits: Mapping[str, SplitPairs]
    problems: Mapping[str, Sequence[str]] = field(default_factory=dict)
    rule: str = "stated"

    def as_json(self) -> dict[str, Any]:
        """The report as plain values."""
        splits = {
            name: {
                "pairs": split.pairs,
                "words": list(split.words),
                "longest": list(split.longest),
                "ratio": split.ratio,
                "unknown": split.unknown,
            }
            for name, split in self.splits.items()
        }
        problems = {kind: list(sentences) for kind, sentences in self.problems.items()}
        return {
            "source": self.source,
            "languages": list(self.languages),
            "rule": self.rule,
            "splits": splits,
            "problems": problems,
        }


def has_pairs(place: Path | str) -> bool:
    """Whether a place looks like sentence pairs rather than pictures with captions; ``dates`` is some."""
    path = Path(place)
    if is_table(path) or is_dates(place):
        return True
    if not path.is_dir() and path.suffix.lower() != ".zip":
        return False
    try:
        endings = {Path(name).suffix.lower() for name in names_in(path)}
        return bool(endings - _OTHERS or parallel_in(path))
    except (OSError, ValueError, ImportError):  # without babel no name is a language's
        return False


def check_pairs(place: Path | str, *, source: str | None = None, target: str | None = None) -> PairReport:
    """Look at every pair of a set, in the splits that a training would get.

    Args:
        place: As :func:`~sightline.data.pairs.read_pairs` takes it, or ``dates``, the embedded set.
        source, target: Which two languages, where there are more.

    Raises:
        ValueError: If there are no texts that could be pairs, or not one pair can be used.
    """
    if is_dates(place):
        return replace(check_set(dates_set(source=source, target=target)), rule="by a hash of each day")
    columns = read_columns(place, source=source, target=target)
    problems, texts = _paired(columns)
    if not any(pair.source and pair.target for split in texts.values() for pair in split):
        first = next((found[0] for found in problems.values()), "a side of each is empty")
        raise ValueError(f"not one pair of {str(place)!r} can be used; the first problem: {first}")
    single = is_table(Path(place))
    splits = hash_split(next(iter(texts.values()))) if single else texts
    pairs = PairSet(name=str(place), source=columns.source, target=columns.target, splits=splits)
    report = check_set(pairs, texts)
    rule = "dealt by a hash of each source, as a training does with a single file" if single else report.rule
    return replace(report, problems=problems | dict(report.problems), rule=rule)


def _paired(columns: Columns) -> tuple[dict[str, list[str]], dict[str, list[Pair]]]:
    """What keeps splits from being paired, and the pairs of the others."""
    problems: dict[str, list[str]] = {}
    splits: dict[str, list[Pair]] = {}
    for name, (left, right) in columns.texts.items():
        if len(left) != len(right):
            problems.setdefault("unequal", []).append(
                f"{name}.{columns.source} has {len(left)} lines and {name}.{columns.target} has {len(right)}"
            )
        elif not left:
            problems.setdefault("none", []).append(f"{name} has no pairs")
        else:
            splits[name] = [Pair(a, b) for a, b in zip(left, right, strict=True)]
    return problems, splits


def check_set(pairs: PairSet, texts: Mapping[str, Sequence[Pair]] | None = None) -> PairReport:
    """Look at every pair of a set that has been read.

    Args:
        pairs: The set.
        texts: Its pairs by the files they stand in, where these are not the splits: what is wrong with a pair
            is told by its place there.

    Example:
        >>> same = PairSet(name="x", source="a", target="b", splits={"test": [Pair("one", "one")]})
        >>> dict(check_set(same).problems)
        {'identical': ["test, pair 1: both sides are 'one'"]}
    """
    trained = pairs.find("train")
    known = None if trained is None else set(_words(pair.source for pair in pairs.splits[trained]))
    splits = {name: _numbers(split, known) for name, split in pairs.splits.items() if split}
    lacking = _lacking(pairs)
    problems: dict[str, list[str]] = {} if lacking is None else {"lacking": [lacking]}
    for name, split in (pairs.splits if texts is None else texts).items():
        for number, pair in enumerate(split, 1):
            for kind, sentence in _wrong(pair):
                problems.setdefault(kind, []).append(f"{name}, pair {number}: {sentence}")
    problems |= _repeated(pairs.splits, trained)
    return PairReport(
        source=pairs.name, languages=(pairs.source, pairs.target), splits=splits, problems=problems
    )


def _lacking(pairs: PairSet) -> str | None:
    """What a training would miss; nothing where there is no train split, for the set is to be evaluated."""
    full = {name: split for name, split in pairs.splits.items() if split}
    return replace(pairs, splits=full).lacking() if pairs.find("train") else None


def _wrong(pair: Pair) -> list[tuple[str, str]]:
    """What is wrong with a pair by itself: a kind and a sentence each."""
    source, target = pair
    if not source or not target:
        side = "the target" if source else "the source" if target else "each side"
        return [("empty", f"{side} is empty")]
    if source == target:
        return [("identical", f"both sides are {source[:60]!r}")]
    ratio = max(len(source), len(target)) / min(len(source), len(target))
    if ratio > _RATIO and max(len(source), len(target)) > _SHORT:
        return [("ratio", f"{len(source)} letters beside {len(target)}, {source[:40]!r} and {target[:40]!r}")]
    return []


def _repeated(splits: Mapping[str, Sequence[Pair]], train: str | None) -> dict[str, list[str]]:
    """Pairs that are there twice, and sources of one split in another."""
    found: dict[str, list[str]] = {}
    for name, split in splits.items():
        for pair, count in Counter(split).items():
            if count > 1:
                found.setdefault("double", []).append(f"{name} has {pair.source[:60]!r} {count} times")
    trained = set() if train is None else {pair.source for pair in splits[train]}
    for name, split in splits.items():
        if name != train:
            for pair in split:
                if pair.source in trained:
                    sentence = f"{pair.source[:60]!r} is in {train} and in {name}"
                    found.setdefault("overlap", []).append(sentence)
    return found


def _numbers(split: Sequence[Pair], known: set[str] | None) -> SplitPairs:
    sources, targets = [pair.source for pair in split], [pair.target for pair in split]
    read = [word for text in sources for word in text.split()]
    return SplitPairs(
        pairs=len(split),
        words=(len(set(read)), len(set(_words(targets)))),
        longest=(max(len(x.split()) for x in sources), max(len(x.split()) for x in targets)),
        ratio=sum(map(len, targets)) / max(1, sum(map(len, sources))),
        unknown=None if known is None else sum(word not in known for word in read) / max(1, len(read)),
    )


def _words(texts: Iterable[str]) -> list[str]:
    return [word for text in texts for word in text.split()]
