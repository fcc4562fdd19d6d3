"""Scores of captions against references: BLEU, ROUGE-L, CIDEr and, where Java is there, METEOR.

The numbers are those of the COCO evaluation, by scorers of our own (``ngrams.py``). Its tokenizer is a Java
program; ours is :func:`sightline.data.captions.clean`, the same text that a captioner is trained on. Every
score carries a signature that says which it was. The two differ in "man's" (theirs: "man 's") and "t-shirt"
(ours: "t shirt"): with one person's caption of 500 photos scored against four others', BLEU-4 is 0.203 by
ours and 0.202 by theirs, CIDEr 0.945 and 0.941.
"""

from collections.abc import Sequence

import sightline
from sightline.data.captions import clean
from sightline.evaluate import java, ngrams
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


def score_captions(
    candidates: Sequence[str], references: Sequence[Sequence[str]], *, meteor: bool = False, ptb: bool = False
) -> Scores:
    """Score captions, of the whole set and one by one, with the signature of each score.

    Scores are fractions of one, but CIDEr may exceed it. BLEU of one sentence is smoothed and tells little.

    Args:
        candidates: A caption for each image.
        references: For each image, what people wrote about it.
        meteor: Whether to ask for METEOR too, which starts a Java program.
        ptb: Whether to tokenise as the COCO evaluation does, by its Java program, instead of by ``clean``.

    Raises:
        ValueError: If there is no caption, or not one for each image, or an image has no reference; if Java
            is asked for and it, or what it should run, is not there.
    """
    results, truths = _texts(candidates, references, ptb=ptb)
    words = [text.split() for (text,) in results.values()]
    expected = [[text.split() for text in texts] for texts in truths.values()]
    scored = {f"bleu{n}": of_n for n, of_n in enumerate(ngrams.bleu(words, expected), 1)}
    scored |= {"rouge_l": ngrams.rouge_l(words, expected), "cider": ngrams.cider(words, expected)}
    total = {name: whole for name, (whole, _) in scored.items()}
    each = {name: singly for name, (_, singly) in scored.items()}
    if meteor:
        total["meteor"], each["meteor"] = java.meteor([t for (t,) in results.values()], list(truths.values()))
    counts = [len(texts) for texts in truths.values()]
    signatures = {name: signature(name, counts, ptb=ptb) for name in total}
    return Scores(total=total, each=each, signatures=signatures)


def signature(name: str, references: Sequence[int], *, ptb: bool = False) -> str:
    """How a score was computed, in one line without spaces, to be quoted beside it; equal ones are equal.

    Args:
        name: Of the score.
        references: How many references each image had.
        ptb: Whether the Java tokenizer was used.

    Example:
        >>> signature("cider", [5, 5, 5])  # doctest: +ELLIPSIS
        'images:3|refs:5|tok:sightline.clean|case:lower|punct:none|idf:these-references|scorer:...'
    """
    fewest, most = min(references), max(references)
    parts = [
        f"images:{len(references)}",
        f"refs:{fewest}" if fewest == most else f"refs:{fewest}-{most}",
        f"tok:{java.PTB}" if ptb else "tok:sightline.clean",
        "case:lower",
        "punct:none",
        *{"cider": ["idf:these-references"], "meteor": ["jar:1.5", "norm:yes"]}.get(name, []),
        "scorer:sightline.ngrams",
        f"sightline:{sightline.__version__}",
    ]
    return "|".join(parts)


def _texts(
    candidates: Sequence[str], references: Sequence[Sequence[str]], *, ptb: bool
) -> tuple[_TEXTS, _TEXTS]:
    """Tokenised texts by image; what has no word in it is no reference."""
    if len(candidates) != len(references):
        raise ValueError(
            f"there must be one caption for each image, got {len(candidates)} captions and references for "
            f"{len(references)} images"
        )
    if not candidates:
        raise ValueError("there must be at least one caption to score, got none")
    every = [*candidates, *(text for texts in references for text in texts)]
    parted = iter(java.ptb(every) if ptb else map(clean, every))
    results = {i: [next(parted)] for i in range(len(candidates))}
    truths = {i: [next(parted) for _ in texts] for i, texts in enumerate(references)}
    for i, texts in truths.items():
        truths[i] = [text for text in texts if text]
        if not truths[i]:
            raise ValueError(
                f"every image needs at least one reference with a word in it, got {list(references[i])!r} "
                f"for image {i}"
            )
    return results, truths
