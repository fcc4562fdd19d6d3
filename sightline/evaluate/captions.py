"""Scores of captions against references: BLEU, ROUGE-L and CIDEr.

The numbers are those of the COCO evaluation, by scorers of our own (``ngrams.py``). Its tokenizer is a Java
program; ours is :func:`sightline.data.captions.clean`, the same text that a captioner is trained on, and the
signature of every score says so. The two differ in "man's" (theirs: "man 's") and "t-shirt" (ours: "t
shirt"): with one person's caption of 500 photos scored against four others', BLEU-4 is 0.203 by ours and
0.202 by theirs, CIDEr 0.945 and 0.941.
"""

from collections.abc import Sequence

import sightline
from sightline.data.captions import clean
from sightline.evaluate import ngrams
from sightline.evaluate.scores import Scores

__all__ = ["score", "score_captions", "signature"]

_TEXTS = dict[int, list[str]]  # tokenised, by image


def score(candidates: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """bleu1, bleu2, bleu3, bleu4, rouge_l and cider of captions, one for each image.

    Args:
        candidates: A caption for each image.
        references: For each image, what people wrote about it.

    Example:
        >>> seen = [["a red circle", "one red circle"], ["a dog runs", "the dog is running"]]
        >>> {name: round(value, 3) for name, value in score(["a red circle", "a cat"], seen).items()}
        ... # doctest: +ELLIPSIS
        {'bleu1': 0.655, ..., 'rouge_l': 0.693, 'cider': 2.698}
    """
    return dict(score_captions(candidates, references).total)


def score_captions(candidates: Sequence[str], references: Sequence[Sequence[str]]) -> Scores:
    """Score captions, of the whole set and one by one, with the signature of each score.

    Scores are fractions of one, but CIDEr may exceed it. BLEU of one sentence is smoothed and tells little.

    Args:
        candidates: A caption for each image.
        references: For each image, what people wrote about it.

    Raises:
        ValueError: If there is no caption, or not one for each image, or an image has no reference.
    """
    results, truths = _texts(candidates, references)
    words = [text.split() for (text,) in results.values()]
    expected = [[text.split() for text in texts] for texts in truths.values()]
    scored = {f"bleu{n}": of_n for n, of_n in enumerate(ngrams.bleu(words, expected), 1)}
    scored |= {"rouge_l": ngrams.rouge_l(words, expected), "cider": ngrams.cider(words, expected)}
    total = {name: whole for name, (whole, _) in scored.items()}
    each = {name: singly for name, (_, singly) in scored.items()}
    counts = [len(texts) for texts in truths.values()]
    signatures = {name: signature(name, counts) for name in total}
    return Scores(total=total, each=each, signatures=signatures)


def signature(name: str, references: Sequence[int]) -> str:
    """How a score was computed, in one line without spaces, to be quoted beside it; equal ones are equal.

    Args:
        name: Of the score.
        references: How many references each image had.

    Example:
        >>> signature("cider", [5, 5, 5])  # doctest: +ELLIPSIS
        'images:3|refs:5|tok:sightline.clean|case:lower|punct:none|idf:these-references|scorer:...'
    """
    fewest, most = min(references), max(references)
    parts = [
        f"images:{len(references)}",
        f"refs:{fewest}" if fewest == most else f"refs:{fewest}-{most}",
        "tok:sightline.clean",
        "case:lower",
        "punct:none",
        *(["idf:these-references"] if name == "cider" else []),
        "scorer:sightline.ngrams",
        f"sightline:{sightline.__version__}",
    ]
    return "|".join(parts)


def _texts(candidates: Sequence[str], references: Sequence[Sequence[str]]) -> tuple[_TEXTS, _TEXTS]:
    """Tokenised texts by image; what has no word in it is no reference."""
    if len(candidates) != len(references):
        raise ValueError(
            f"there must be one caption for each image, got {len(candidates)} captions and references for "
            f"{len(references)} images"
        )
    if not candidates:
        raise ValueError("there must be at least one caption to score, got none")
    results = {i: [clean(text)] for i, text in enumerate(candidates)}
    truths = {i: [clean(text) for text in texts] for i, texts in enumerate(references)}
    for i, texts in truths.items():
        truths[i] = [text for text in texts if text]
        if not truths[i]:
            raise ValueError(
                f"every image needs at least one reference with a word in it, got {list(references[i])!r} "
                f"for image {i}"
            )
    return results, truths
