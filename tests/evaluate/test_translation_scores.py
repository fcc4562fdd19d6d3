from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from sightline.data.dates import DatePair
from sightline.evaluate.translation import (
    alignment_accuracy,
    alignment_chance,
    corpus_scores,
    exact_match,
    score,
)

SOURCE, ISO = "le 3 mai 1979", "1979-05-03"
DATE = DatePair(
    source=SOURCE, target=ISO, locale="fr", spans={"day": (3, 4), "month": (5, 8), "year": (9, 13)}
)
OFFSETS = [*((i, i + 1) for i in range(len(SOURCE))), (len(SOURCE), len(SOURCE))]


class Looked(NamedTuple):
    text: str
    tokens: list[str]
    weights: Tensor


def looked(places, text=ISO, tokens=None):
    """A translation whose step t looks at letter places[t]."""
    weights = torch.zeros(len(places), len(OFFSETS))
    weights[torch.arange(len(places)), torch.tensor(places)] = 1.0
    return Looked(text, list(text) if tokens is None else tokens, weights)


def accuracy(*translations):
    """Of translations of the one date."""
    n = len(translations)
    return alignment_accuracy(*zip(*translations, strict=True), [DATE] * n, [OFFSETS] * n)


def test_scores_are_sacrebleus_own():
    import sacrebleu

    got = ["The dog runs in the park .", "A man sits"]
    right = ["The dog runs through the park.", "A man is sitting"]
    found = score(got, right)
    assert found.total["bleu"] == pytest.approx(sacrebleu.corpus_bleu(got, [right]).score)
    assert found.total["chrf"] == pytest.approx(sacrebleu.corpus_chrf(got, [right]).score)
    assert found.total["exact_match"] == 0.0
    assert found.total == corpus_scores(got, right)
    each = [sacrebleu.sentence_chrf(a, [b]).score for a, b in zip(got, right, strict=True)]
    assert found.each["chrf"] == pytest.approx(each)
    assert "tok:13a" in found.signatures["bleu"]
    assert "case:mixed" in found.signatures["bleu"]
    assert "nc:6" in found.signatures["chrf"]


def test_every_digit_on_its_word_is_right():
    right = [9, 10, 11, 12, 0, 5, 7, 0, 3, 3]
    assert accuracy(looked(right)) == 1.0
    wrong = [*right]
    wrong[5] = 3  # the month's first digit on the day
    wrong[9] = 13  # the day's last digit on the end
    assert accuracy(looked(wrong)) == 6 / 8


def test_a_letter_beside_the_word_is_wrong():
    for beside in (2, 4):
        places = [9, 10, 11, 12, 0, 5, 7, 0, 3, beside]
        assert accuracy(looked(places)) == 7 / 8


def test_signs_between_the_digits_do_not_count_and_a_mark_shifts_nothing():
    places = [0, 9, 10, 11, 12, 0, 5, 7, 0, 3, 3]
    one = looked(places, tokens=["▁", *ISO])
    assert accuracy(one) == 1.0
    glued = looked(places[1:], tokens=["▁1", *ISO[1:]])
    assert accuracy(glued) == 1.0


def test_a_text_of_another_length_has_all_digits_wrong():
    one = looked([9, 10], text="19")
    assert accuracy(one, looked([9, 10, 11, 12, 0, 5, 7, 0, 3, 3])) == 0.5


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("1979-05 03", ["▁", *"1979-05", "▁", *"03"]),
        (" 979-05-03", ["▁", "▁", *"979-05-03"]),
        ("1979-05--3", ["▁", *"1979-05--3"]),
    ],
)
def test_ten_letters_that_are_no_date_have_all_digits_wrong(text, tokens):
    one = looked([0, 9, 10, 11, 12, 0, 5, 7, 0, 3, 3], text=text, tokens=tokens)
    assert accuracy(one) == 0


def test_chance_is_the_share_of_letters_that_would_be_right():
    assert alignment_chance([DATE], [OFFSETS]) == pytest.approx((4 * 4 + 2 * 3 + 2 * 1) / 8 / len(OFFSETS))


def test_exact_match_counts_whole_texts():
    assert exact_match(["a", "b", "c"], ["a", "x", "c"]) == 2 / 3


@pytest.mark.bad_input
def test_scores_without_texts_or_partners_are_refused():
    with pytest.raises(ValueError, match="got 1 and 2"):
        score(["a"], ["a", "b"])
    with pytest.raises(ValueError, match="got 0 and 0"):
        exact_match([], [])
