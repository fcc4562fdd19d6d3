"""BLEU, ROUGE-L and CIDEr-D of tokenised captions, each of all and of each one.

Written from the papers, with the constants of the COCO evaluation, whose numbers these are:

BLEU      Papineni et al. (2002): shares of n-grams that a reference has too, clipped, and a brevity penalty
          by the nearest length of a reference
ROUGE-L   Lin (2004): the longest common subsequence; recall counts 1.2² times
CIDEr-D   Vedantam et al. (2015): n-grams weighed by how few images have them, lengths compared by a Gaussian
"""

import math
from collections import Counter
from collections.abc import Sequence

__all__ = ["bleu", "cider", "rouge_l"]

_ORDERS = 4
_SMALL, _TINY = 1e-9, 1e-15  # keep shares of nothing from being divided by nothing
_BETA = 1.2
_SIGMA = 6.0

_Words = Sequence[str]
_Vector = list[dict[tuple[str, ...], float]]  # for each order, the weight of each n-gram


def bleu(
    candidates: Sequence[_Words], references: Sequence[Sequence[_Words]]
) -> list[tuple[float, list[float]]]:
    """BLEU-1 to BLEU-4: for each order the score of all, and of each caption.

    Example:
        >>> whole, each = bleu([["a", "red", "dog"]], [[["a", "red", "cat"], ["the", "dog"]]])[0]
        >>> round(whole, 6), len(each)
        (1.0, 1)
    """
    statistics = [_matches(words, texts) for words, texts in zip(candidates, references, strict=True)]
    sums = [sum(column) for column in zip(*statistics, strict=True)]
    each = [_bleu(one) for one in statistics]
    return [(whole, [scores[n] for scores in each]) for n, whole in enumerate(_bleu(sums))]


def _matches(words: _Words, references: Sequence[_Words]) -> list[int]:
    """Length, nearest length of a reference, then for each order n-grams in all and those that match."""
    nearest = min((abs(len(text) - len(words)), len(text)) for text in references)[1]
    found = [len(words), nearest]
    for n in range(1, _ORDERS + 1):
        most: Counter[tuple[str, ...]] = Counter()
        for text in references:
            most |= _grams(text, n)
        found += [max(0, len(words) - n + 1), (_grams(words, n) & most).total()]
    return found


def _bleu(statistics: Sequence[int]) -> list[float]:
    length, nearest = statistics[:2]
    ratio = (length + _TINY) / (nearest + _SMALL)
    penalty = math.exp(1 - 1 / ratio) if ratio < 1 else 1.0
    scores, product = [], 1.0
    for n in range(_ORDERS):
        total, matching = statistics[2 + 2 * n : 4 + 2 * n]
        product *= (matching + _TINY) / (total + _SMALL)
        scores.append(product ** (1 / (n + 1)) * penalty)
    return scores


def rouge_l(
    candidates: Sequence[_Words], references: Sequence[Sequence[_Words]]
) -> tuple[float, list[float]]:
    """ROUGE-L: the mean, and of each caption."""
    each = [_rouge(words or [""], texts) for words, texts in zip(candidates, references, strict=True)]
    return sum(each) / len(each), each


def _rouge(words: _Words, references: Sequence[_Words]) -> float:
    common = [_common(words, text) for text in references]
    precision = max(n / len(words) for n in common)
    recall = max(n / len(text) for n, text in zip(common, references, strict=True))
    if not precision or not recall:
        return 0.0
    return (1 + _BETA**2) * precision * recall / (recall + _BETA**2 * precision)


def _common(one: _Words, other: _Words) -> int:
    """The length of the longest common subsequence."""
    row = [0] * (len(other) + 1)
    for word in one:
        before = 0
        for j, same in enumerate(other, 1):
            above = row[j]
            row[j] = before + 1 if word == same else max(above, row[j - 1])
            before = above
    return row[-1]


def cider(candidates: Sequence[_Words], references: Sequence[Sequence[_Words]]) -> tuple[float, list[float]]:
    """CIDEr-D: the mean, and of each caption; n-grams that few images' references have weigh most."""
    images: Counter[tuple[str, ...]] = Counter()
    for texts in references:
        images.update({gram for text in texts for n in range(1, _ORDERS + 1) for gram in _grams(text, n)})
    log_n = math.log(len(references))
    each = []
    for words, texts in zip(candidates, references, strict=True):
        own = _weighed(words, images, log_n)
        likeness = sum(
            _likeness(own, _weighed(text, images, log_n), _pairs(words) - _pairs(text)) for text in texts
        )
        each.append(10 * likeness / len(texts))
    return sum(each) / len(each), each


def _weighed(words: _Words, images: Counter[tuple[str, ...]], log_n: float) -> _Vector:
    return [
        {gram: count * (log_n - math.log(max(1, images[gram]))) for gram, count in _grams(words, n).items()}
        for n in range(1, _ORDERS + 1)
    ]


def _likeness(one: _Vector, other: _Vector, difference: int) -> float:
    total = 0.0
    for ours, theirs in zip(one, other, strict=True):
        norm = math.hypot(*ours.values()) * math.hypot(*theirs.values())
        shared = sum(
            min(weight, theirs[gram]) * theirs[gram] for gram, weight in ours.items() if gram in theirs
        )
        total += shared / norm if norm else shared
    return total / _ORDERS * math.exp(-(difference**2) / (2 * _SIGMA**2))


def _pairs(words: _Words) -> int:
    """How many pairs of words there are: what the original takes for the length."""
    return max(0, len(words) - 1)


def _grams(words: _Words, n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))
