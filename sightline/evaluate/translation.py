"""Scores of translations: BLEU and chrF by ``sacrebleu``, with signatures; on dates, what is exactly right.

Scores are those of detokenised, cased text as sacreBLEU computes them by default (13a), 0 to 100. Each
signature says how, so that a score can be compared with another one's.
"""

import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sightline.data.dates import FIELDS, DatePair
from sightline.evaluate.scores import Scores

__all__ = ["alignment_accuracy", "alignment_chance", "corpus_scores", "exact_match", "score"]

_DIGITS = {"year": range(4), "month": range(5, 7), "day": range(8, 10)}  # of YYYY-MM-DD
_ISO = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")

Offsets = Sequence[tuple[int, int]]  # for each token of a text the letters [start, end) it stands for


def score(outputs: Sequence[str], references: Sequence[str]) -> Scores:
    """BLEU, chrF and the share that is exactly right; chrF of each translation too, and signatures.

    Example:
        >>> scores = score(["a dog runs in the park", "a cat"], ["a dog runs in the park", "a dog"])
        >>> scores.total["exact_match"], [round(x) for x in scores.each["chrf"]]
        (0.5, [100, 6])
    """
    total = corpus_scores(outputs, references)
    bleu, chrf = _metrics()
    for metric in (bleu, chrf):
        metric.corpus_score(list(outputs[:1]), [list(references[:1])])  # it then knows how many references
    return Scores(
        total=total,
        each={
            "chrf": [
                float(chrf.sentence_score(output, [reference]).score)
                for output, reference in zip(outputs, references, strict=True)
            ]
        },
        signatures={"bleu": str(bleu.get_signature()), "chrf": str(chrf.get_signature())},
    )


def corpus_scores(outputs: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """BLEU and chrF of translations, one for each reference, and the share that is exactly right.

    Example:
        >>> scores = corpus_scores(["a dog runs in the park"], ["a dog runs in the park"])
        >>> round(scores["bleu"], 6), round(scores["chrf"], 6), scores["exact_match"]
        (100.0, 100.0, 1.0)
    """
    _check(outputs, references)
    bleu, chrf = _metrics()
    return {
        "bleu": float(bleu.corpus_score(list(outputs), [list(references)]).score),
        "chrf": float(chrf.corpus_score(list(outputs), [list(references)]).score),
        "exact_match": exact_match(outputs, references),
    }


def exact_match(outputs: Sequence[str], references: Sequence[str]) -> float:
    """The share of translations that are their reference, letter by letter.

    Example:
        >>> exact_match(["1979-05-03", "1979-05-30"], ["1979-05-03", "1979-05-03"])
        0.5
    """
    _check(outputs, references)
    return sum(a == b for a, b in zip(outputs, references, strict=True)) / len(references)


def alignment_accuracy(
    outputs: Sequence[str],
    tokens: Sequence[Sequence[str]],
    weights: Sequence[Tensor],
    dates: Sequence[DatePair],
    offsets: Sequence[Offsets],
) -> float:
    """How often the peak of a digit's attention lies on the word of the source that it comes from.

    The digits of the ISO date are looked at one by one, those of the year, the month and the day; each was
    written in one step, and the weights of that step, its heads averaged, have their peak on a token of the
    source. Right is a token that has a letter in common with the year, the month or the day as the generator
    wrote it. A translation that is not written as a date, YYYY-MM-DD, has all its digits wrong.

    Args:
        outputs: The translations.
        tokens: The tokens of each.
        weights: With which each token was chosen, heads averaged: (T, S), of other T and S for each.
        dates: What was translated, with the places of its parts.
        offsets: For each source the letters that each of its tokens stands for.
    """
    right = digits = 0
    for output, words, rows, date, places in zip(outputs, tokens, weights, dates, offsets, strict=True):
        digits += sum(map(len, _DIGITS.values()))
        if not _ISO.fullmatch(output):
            continue
        steps = _steps(words)
        peaks = rows.argmax(-1).tolist()  # (T,)
        for field in FIELDS:
            start, end = date.spans[field]
            for digit in _DIGITS[field]:
                first, last = places[peaks[steps[digit]]]
                right += first < end and last > start
    return right / digits


def alignment_chance(dates: Sequence[DatePair], offsets: Sequence[Offsets]) -> float:
    """The alignment accuracy of weights that peak anywhere: the share of tokens that would be right."""
    shares = []
    for date, places in zip(dates, offsets, strict=True):
        for field in FIELDS:
            start, end = date.spans[field]
            hits = sum(first < end and last > start for first, last in places)
            shares.append(torch.tensor(hits / len(places)).expand(len(_DIGITS[field])))
    return float(torch.cat(shares).mean())


def _steps(tokens: Sequence[str]) -> list[int]:
    """For each letter of a translation the step that wrote it."""
    return [t for t, word in enumerate(tokens) for _ in word.removeprefix("▁")]


def _metrics() -> tuple[Any, Any]:
    try:
        from sacrebleu.metrics.bleu import BLEU  # noqa: PLC0415
        from sacrebleu.metrics.chrf import CHRF  # noqa: PLC0415
    except ImportError as missing:
        raise ImportError(
            "scores of translations need sacrebleu, which is not installed; pip install 'sightline[train]'",
            name="sacrebleu",
        ) from missing
    return BLEU(), CHRF()


def _check(outputs: Sequence[str], references: Sequence[str]) -> None:
    if len(outputs) != len(references) or not references:
        raise ValueError(
            f"there must be one translation for each reference, and at least one, got {len(outputs)} and "
            f"{len(references)}"
        )
