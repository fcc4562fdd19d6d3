"""What each score says, for a reader who has not met it."""

from collections.abc import Mapping

__all__ = ["score_meanings"]

_MEANINGS = {
    "bleu1": "share of its words that a reference has too",
    "bleu2": "... of its pairs of words",
    "bleu3": "... of its triples",
    "bleu4": "... of its runs of four words: what people mean by BLEU",
    "rouge_l": "the longest sequence of words, gaps allowed, shared with a reference",
    "cider": "likeness to all references, rare words counting more; 10 is the most",
    "attribute_accuracy": "share of captions whose every colour, shape and relation is true of the image",
    "grounding": "share of words for an object that were written while looking at that object",
    "grounding_chance": "what grounding would be for a model that looks anywhere",
    "bleu": "runs of one to four words shared with the reference, 0 to 100",
    "chrf": "runs of letters shared with the reference, 0 to 100",
    "exact_match": "share of outputs that equal the reference",
    "alignment_accuracy": "share of written parts that looked most at the part of the source they come from",
    "accuracy": "share of inputs whose first guess is right",
    "top5": "share of inputs whose class is among the first five guesses",
    "ece": "expected calibration error: how far confidence is from accuracy; 0 is best",
    "ink": "share of the rollout that lies on patches with ink",
    "ink_chance": "share of the patches that have ink: what ink would be by chance",
    "ink_ratio": "ink over ink_chance",
}


def score_meanings(scores: Mapping[str, float]) -> list[tuple[str, float, str]]:
    """Name, value and meaning of each score; the meaning of an unknown one is empty.

    Example:
        >>> score_meanings({"top5": 0.5, "mine": 1.0})[1]
        ('mine', 1.0, '')
    """
    return [(name, value, _MEANINGS.get(name, "")) for name, value in scores.items()]
