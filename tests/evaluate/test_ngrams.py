"""Scores of random captions against those that the COCO evaluation (pycocoevalcap 1.2) gave them."""

import json
from pathlib import Path

import pytest

from sightline.evaluate.ngrams import bleu, cider, rouge_l

CORPORA = json.loads((Path(__file__).parents[1] / "golden/coco_scores.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("n", range(len(CORPORA)))
def test_the_scores_are_the_fields(n):
    corpus = CORPORA[n]
    words = [text.split() for text in corpus["captions"]]
    expected = [[text.split() for text in texts] for texts in corpus["references"]]
    found = {f"bleu{i}": one for i, one in enumerate(bleu(words, expected), 1)}
    found |= {"rouge_l": rouge_l(words, expected), "cider": cider(words, expected)}
    assert found.keys() == corpus["scores"].keys()
    for name, (whole, each) in corpus["scores"].items():
        ours, ours_each = found[name]
        assert ours == pytest.approx(whole, abs=1e-12), name
        assert list(ours_each) == pytest.approx(each, abs=1e-12), name
