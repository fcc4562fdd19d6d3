"""Alignment error rate, against alignments that people made (Och & Ney, 2003).

    AER = 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|)        A predicted links, S sure ones, P possible ones with S

A line of a file is one sentence pair. A link is ``source-target``; one with ``?`` or ``p`` is possible.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Links", "alignment_error_rate", "read_links", "read_links_file"]

Link = tuple[int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Links:
    """The links of one sentence pair; positions count from 0.

    Attributes:
        sure: What everybody agrees on.
        possible: Those and what may be linked too.
    """

    sure: frozenset[Link]
    possible: frozenset[Link]


def alignment_error_rate(predicted: Sequence[Iterable[Link]], gold: Sequence[Links]) -> float:
    """The share of links that are wrong or missing, over all sentence pairs.

    Args:
        predicted: ``(source, target)`` links of each pair.
        gold: What people linked.

    Example:
        >>> gold = [read_links("0-0 1-1 1?2")]
        >>> alignment_error_rate([[(0, 0), (1, 1), (1, 2)]], gold), alignment_error_rate([[(0, 1)]], gold)
        (0.0, 1.0)
    """
    if len(predicted) != len(gold):
        raise ValueError(
            f"every sentence pair needs its gold links, got {len(predicted)} predicted and {len(gold)} "
            "gold; the two files must have a line for each pair"
        )
    hits = n = 0
    for links, truth in zip(map(frozenset, predicted), gold, strict=True):
        hits += len(links & truth.sure) + len(links & truth.possible)
        n += len(links) + len(truth.sure)
    return 1 - hits / n if n else 0.0


def read_links(line: str, *, first: int = 0) -> Links:
    """Read a line of links.

    Args:
        line: Such as ``"0-0 1?2 3p3"``: source, target, sure with ``-``.
        first: What the first word's number is; files of some shared tasks count from 1.
    """
    sure, possible = set(), set()
    for word in line.split():
        mark = next((c for c in "-?p" if c in word), "")
        source, _, target = word.partition(mark or " ")
        if not mark or not source.isdigit() or not target.isdigit():
            raise ValueError(f"a link is source-target, source?target or sourceptarget, got {word!r}")
        link = (int(source) - first, int(target) - first)
        if min(link) < 0:
            raise ValueError(f"positions count from {first}, got {word!r}; say first={first - 1}")
        possible.add(link)
        if mark == "-":
            sure.add(link)
    return Links(sure=frozenset(sure), possible=frozenset(possible))


def read_links_file(path: str | Path, *, first: int = 0) -> list[Links]:
    """Read a file of links, one sentence pair a line; what stands before ``|||`` is not read."""
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    return [read_links(line.rpartition("|||")[2], first=first) for line in lines]
