"""Alignment error rate, against alignments that people made (Och & Ney, 2003).

    AER = 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|)        A predicted links, S sure ones, P possible ones with S

A line of a file is one sentence pair. A link is ``source-target``; one with ``?`` or ``p`` is possible. In
the older format of the NAACL workshop of 2003 a line is one link, ``sentence source target S|P``, counted
from 1.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from sightline.shapes import Float

__all__ = [
    "Links",
    "alignment_error_rate",
    "read_links",
    "read_links_file",
    "read_naacl_file",
    "word_links",
    "word_of_tokens",
]

Link = tuple[int, int]
Span = tuple[int, int]


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


def read_naacl_file(path: str | Path, n_pairs: int | None = None) -> list[Links]:
    """Read a file of the NAACL workshop's format, one link a line; a link without a mark is sure.

    Args:
        path: The file.
        n_pairs: How many sentence pairs there are, where the last ones have no link.
    """
    pairs: dict[int, tuple[set[Link], set[Link]]] = {}
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        words = line.split()
        if not words:
            continue
        if len(words) < 3 or not all(word.isdigit() and int(word) for word in words[:3]):
            raise ValueError(
                f"a link is a line of sentence, source and target, counted from 1, and S or P; got {line!r} "
                f"in line {number} of {str(path)!r}"
            )
        sentence, source, target = (int(word) - 1 for word in words[:3])
        sure, possible = pairs.setdefault(sentence, (set(), set()))
        possible.add((source, target))
        if "P" not in words[3:4]:
            sure.add((source, target))
    n = max(pairs, default=-1) + 1 if n_pairs is None else n_pairs
    none: tuple[set[Link], set[Link]] = (set(), set())
    return [
        Links(sure=frozenset(a), possible=frozenset(b)) for a, b in (pairs.get(i, none) for i in range(n))
    ]


def word_of_tokens(text: str, offsets: Sequence[Span]) -> list[int | None]:
    """For each token the word that it is a part of; words stand between spaces.

    Args:
        text: The sentence.
        offsets: The letters ``[start, end)`` of each token; an empty one belongs to no word.

    Example:
        >>> word_of_tokens("ab c", [(0, 1), (1, 2), (2, 4), (4, 4)])
        [0, 0, 1, None]
    """
    words, at = [], 0
    for word in text.split():
        start = text.index(word, at)
        at = start + len(word)
        words.append((start, at))
    return [
        next((i for i, (start, end) in enumerate(words) if first < end and last > start), None)
        for first, last in offsets
    ]


def word_links(
    weights: Float[Tensor, "T S"], targets: Sequence[int | None], sources: Sequence[int | None]
) -> set[Link]:
    """Link each target word to the source word that its tokens looked at most.

    Args:
        weights: With which each token of the target looked at those of the source.
        targets, sources: The word of each token, or None.

    Example:
        >>> weights = torch.tensor([[0.5, 0.2, 0.3], [0.0, 0.6, 0.4]])
        >>> sorted(word_links(weights, [0, 1], [0, 1, 1]))      # 0.2 + 0.3 is no more than 0.5
        [(0, 0), (1, 1)]
    """
    n_targets, n_sources = (1 + max((i for i in x if i is not None), default=-1) for x in (targets, sources))
    if not n_sources:
        return set()
    sums = weights.new_zeros(n_targets, n_sources)
    columns = [i for i, word in enumerate(sources) if word is not None]
    words = weights.new_tensor([sources[i] for i in columns]).long()
    for row, target in zip(weights, targets, strict=True):
        if target is not None:
            sums[target].index_add_(0, words, row[columns])
    present = {i for i in targets if i is not None}
    return {(int(source), target) for target, source in enumerate(sums.argmax(-1)) if target in present}
