"""Scores of translations: BLEU and chrF by ``sacrebleu``, with signatures; on dates, what is exactly right.

Scores are those of detokenised, cased text as sacreBLEU computes them by default (13a), 0 to 100. Each
signature says how, so that a score can be compared with another one's.
"""

import re
from collections.abc import Sequence
from typing import Any

import torch

from sightline.data.dates import FIELDS, DatePair
from sightline.tasks.translate.generate import Translation

__all__ = ["alignment_accuracy", "exact_match", "score", "signatures"]

_DIGITS = {"year": range(4), "month": range(5, 7), "day": range(8, 10)}  # of YYYY-MM-DD
_ISO = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def score(candidates: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """BLEU and chrF of translations, one for each reference, and the share that is exactly right.

    Example:
        >>> found = score(["a dog runs in the park"], ["a dog runs in the park"])
        >>> round(found["bleu"], 6), round(found["chrf"], 6), found["exact_match"]
        (100.0, 100.0, 1.0)
    """
    bleu, chrf = _metrics(candidates, references)
    return {
        "bleu": float(bleu.corpus_score(list(candidates), [list(references)]).score),
        "chrf": float(chrf.corpus_score(list(candidates), [list(references)]).score),
        "exact_match": exact_match(candidates, references),
    }


def signatures(candidates: Sequence[str], references: Sequence[str]) -> dict[str, str]:
    """How bleu and chrf are computed, in sacreBLEU's own words."""
    metrics = dict(zip(("bleu", "chrf"), _metrics(candidates, references), strict=True))
    for metric in metrics.values():
        metric.corpus_score(list(candidates[:1]), [list(references[:1])])  # it then knows how many references
    return {name: str(metric.get_signature()) for name, metric in metrics.items()}


def exact_match(candidates: Sequence[str], references: Sequence[str]) -> float:
    """The share of translations that are their reference, letter by letter.

    Example:
        >>> exact_match(["1979-05-03", "1979-05-30"], ["1979-05-03", "1979-05-03"])
        0.5
    """
    _check(candidates, references)
    return sum(a == b for a, b in zip(candidates, references, strict=True)) / len(references)


def alignment_accuracy(
    translations: Sequence[Translation],
    dates: Sequence[DatePair],
    offsets: Sequence[Sequence[tuple[int, int]]],
) -> float:
    """How often the peak of a digit's attention lies on the word of the source that it comes from.

    The digits of the ISO date are looked at one by one, those of the year, the month and the day; each was
    written in one step, and the weights of that step, its heads averaged, have their peak on a token of the
    source. Right is a token that has a letter in common with the year, the month or the day as the generator
    wrote it. A translation that is not written as a date, YYYY-MM-DD, has all its digits wrong.

    Args:
        translations: With weights.
        dates: What was translated, with the places of its parts.
        offsets: For each source the letters that each of its tokens stands for.
    """
    right = digits = 0
    for one, date, places in zip(translations, dates, offsets, strict=True):
        digits += sum(map(len, _DIGITS.values()))
        if one.weights is None:
            raise ValueError(f"the alignment of {one.source!r} is not known; translate with look=True")
        if not _ISO.fullmatch(one.text):
            continue
        steps = _steps(one.written)
        peaks = one.weights.mean(0).argmax(-1).tolist()  # (T,)
        for field in FIELDS:
            start, end = date.spans[field]
            for digit in _DIGITS[field]:
                first, last = places[peaks[steps[digit]]]
                right += first < end and last > start
    return right / digits


def chance_of_alignment(dates: Sequence[DatePair], offsets: Sequence[Sequence[tuple[int, int]]]) -> float:
    """The alignment accuracy of weights that peak anywhere: the share of tokens that would be right."""
    shares = []
    for date, places in zip(dates, offsets, strict=True):
        for field in FIELDS:
            start, end = date.spans[field]
            hits = sum(first < end and last > start for first, last in places)
            shares.append(torch.tensor(hits / len(places)).expand(len(_DIGITS[field])))
    return float(torch.cat(shares).mean())


def _steps(written: Sequence[str]) -> list[int]:
    """For each letter of a translation the step that wrote it."""
    return [t for t, word in enumerate(written) for _ in word.removeprefix("▁")]


def _metrics(candidates: Sequence[str], references: Sequence[str]) -> tuple[Any, Any]:
    _check(candidates, references)
    try:
        from sacrebleu.metrics.bleu import BLEU  # noqa: PLC0415
        from sacrebleu.metrics.chrf import CHRF  # noqa: PLC0415
    except ImportError as missing:
        raise ImportError(
            "scores of translations need sacrebleu, which is not installed; pip install 'sightline[train]'",
            name="sacrebleu",
        ) from missing
    return BLEU(), CHRF()


def _check(candidates: Sequence[str], references: Sequence[str]) -> None:
    if len(candidates) != len(references) or not references:
        raise ValueError(
            f"there must be one translation for each reference, and at least one, got {len(candidates)} and "
            f"{len(references)}"
        )
