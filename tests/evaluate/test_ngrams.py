"""Scores of captions against the field's own scorers, which are an oracle here and nothing else."""

import random

import pytest

from sightline.evaluate.ngrams import bleu, cider, rouge_l

pytest.importorskip("pycocoevalcap")
WORDS = ("a", "red", "dog", "runs", "the", "cat")


def corpus(seed):
    """Captions, now and then an empty one, and one to four references of each image."""
    chance = random.Random(seed)  # noqa: S311

    def text(fewest):
        return " ".join(chance.choice(WORDS) for _ in range(chance.randrange(fewest, 13)))

    n = chance.randrange(1, 7)
    return [text(0) for _ in range(n)], [[text(1) for _ in range(chance.randrange(1, 5))] for _ in range(n)]


@pytest.mark.parametrize("seed", range(23))
def test_the_scores_are_the_fields(seed):
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.rouge.rouge import Rouge

    captions, references = corpus(seed)
    results, truths = {i: [text] for i, text in enumerate(captions)}, dict(enumerate(references))
    words = [text.split() for text in captions], [[text.split() for text in texts] for texts in references]
    whole, each = Bleu(4).compute_score(truths, results, verbose=0)
    for n, (ours, ours_each) in enumerate(bleu(*words)):
        assert ours == pytest.approx(whole[n], abs=1e-12)
        assert ours_each == pytest.approx(each[n], abs=1e-12)
    for theirs, function in ((Rouge(), rouge_l), (Cider(), cider)):
        whole, each = theirs.compute_score(truths, results)
        ours, ours_each = function(*words)
        assert ours == pytest.approx(whole, abs=1e-12)
        assert ours_each == pytest.approx(list(each), abs=1e-12)
