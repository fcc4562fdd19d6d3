"""What a set of sentence pairs holds, and what is wrong with it.

Nothing is refused here as long as one pair is left: what a training would refuse is told among the problems.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from sightline.data.check_report import DataReport
from sightline.data.dataset import Problem, find_split
from sightline.data.pair_set import Pair, PairSet

__all__ = ["check_pairs"]


def check_pairs(pairs: PairSet) -> DataReport:
    """Count pairs and words by split, and name what is unequal, empty, identical, uneven or double.

    Args:
        pairs: The set, as ``read_pairs(..., strict=False)`` gives it.

    Example:
        >>> same = [Pair("one", "two"), Pair("one", "two")]
        >>> found = PairSet(source="x", source_language="a", target_language="b", parts={"test": same})
        >>> [problem.sentence for problem in check_pairs(found).problems]
        ["test has 'one' 2 times"]
    """
    train = find_split("train", pairs.parts)
    known = None if train is None else set(_words(pair.source for pair in pairs.parts[train]))
    read, written = pairs.source_language, pairs.target_language
    return DataReport(
        source=pairs.source,
        rule=pairs.rule,
        about=f"sentence pairs, {read} to {written}",
        splits={name: _numbers(pairs.parts[name], known) for name in pairs.splits() if pairs.parts[name]},
        columns={
            "pairs": lambda x: f"{x['pairs']:,}",
            f"distinct words\n{read} / {written}": lambda x: f"{x['words'][0]:,} / {x['words'][1]:,}",
            f"longest\n{read} / {written}": lambda x: f"{x['longest'][0]} / {x['longest'][1]}",
            f"letters\n{written}/{read}": lambda x: f"{x['ratio']:.2f}",
            "not in\ntrain": lambda x: "-" if x["unknown"] is None else f"{x['unknown']:.1%}",
        },
        problems=(*pairs.problems, *_lacking(pairs, train), *_repeated(pairs, train)),
        facts={"languages": [read, written]},
        grouped=True,
    )


def _lacking(pairs: PairSet, train: str | None) -> list[Problem]:
    """What a training would miss; nothing where there is no train split, for the set is to be evaluated."""
    full = {name: part for name, part in pairs.parts.items() if part}
    sentence = None if train is None else replace(pairs, parts=full).lacking()
    return [] if sentence is None else [Problem("lacking", pairs.source, sentence)]


def _repeated(pairs: PairSet, train: str | None) -> list[Problem]:
    """Pairs that are there twice, and sources of one split in another."""
    found = [
        Problem("double", name, f"{name} has {pair.source[:60]!r} {count} times")
        for name, part in pairs.parts.items()
        for pair, count in Counter(part).items()
        if count > 1
    ]
    trained = set() if train is None else {pair.source for pair in pairs.parts[train]}
    return found + [
        Problem("overlap", name, f"{pair.source[:60]!r} is in {train} and in {name}")
        for name, part in pairs.parts.items()
        if name != train
        for pair in part
        if pair.source in trained
    ]


def _numbers(part: Sequence[Pair], known: set[str] | None) -> dict[str, Any]:
    """One split: pairs, different words, the longest, letters of target over source, the unknown share."""
    sources, targets = [pair.source for pair in part], [pair.target for pair in part]
    read = _words(sources)
    return {
        "pairs": len(part),
        "words": [len(set(read)), len(set(_words(targets)))],
        "longest": [max(len(x.split()) for x in sources), max(len(x.split()) for x in targets)],
        "ratio": sum(map(len, targets)) / max(1, sum(map(len, sources))),
        "unknown": None if known is None else sum(word not in known for word in read) / max(1, len(read)),
    }


def _words(texts: Iterable[str]) -> list[str]:
    return [word for text in texts for word in text.split()]
