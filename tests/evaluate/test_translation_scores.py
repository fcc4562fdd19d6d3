import pytest
import torch

from sightline.data.dates import DatePair
from sightline.evaluate.translation import (
    alignment_accuracy,
    chance_of_alignment,
    exact_match,
    score,
    signatures,
)
from sightline.tasks.translate.generate import Translation

SOURCE, ISO = "le 3 mai 1979", "1979-05-03"
DATE = DatePair(
    source=SOURCE, target=ISO, locale="fr", spans={"day": (3, 4), "month": (5, 8), "year": (9, 13)}
)
OFFSETS = [*((i, i + 1) for i in range(len(SOURCE))), (len(SOURCE), len(SOURCE))]


def looked(places, text=ISO, written=None):
    """A translation whose step t looks at letter places[t]."""
    weights = torch.zeros(2, len(places), len(OFFSETS))
    weights[:, torch.arange(len(places)), torch.tensor(places)] = 1.0
    words = list(text) if written is None else written
    return Translation(source=SOURCE, text=text, score=0.0, read=list(SOURCE), written=words, weights=weights)


def test_scores_are_sacrebleus_own():
    import sacrebleu

    got = ["The dog runs in the park .", "A man sits"]
    right = ["The dog runs through the park.", "A man is sitting"]
    found = score(got, right)
    assert found["bleu"] == pytest.approx(sacrebleu.corpus_bleu(got, [right]).score)
    assert found["chrf"] == pytest.approx(sacrebleu.corpus_chrf(got, [right]).score)
    assert found["exact_match"] == 0.0
    assert "tok:13a" in signatures(got, right)["bleu"]
    assert "case:mixed" in signatures(got, right)["bleu"]
    assert "nc:6" in signatures(got, right)["chrf"]


def test_every_digit_on_its_word_is_right():
    right = [9, 10, 11, 12, 0, 5, 7, 0, 3, 3]
    assert alignment_accuracy([looked(right)], [DATE], [OFFSETS]) == 1.0
    wrong = [*right]
    wrong[5] = 3  # the month's first digit on the day
    wrong[9] = 13  # the day's last digit on the end
    assert alignment_accuracy([looked(wrong)], [DATE], [OFFSETS]) == 6 / 8


def test_a_letter_beside_the_word_is_wrong():
    for beside in (2, 4):
        places = [9, 10, 11, 12, 0, 5, 7, 0, 3, beside]
        assert alignment_accuracy([looked(places)], [DATE], [OFFSETS]) == 7 / 8


def test_the_peak_is_that_of_the_mean_of_the_heads():
    one = looked([9, 10, 11, 12, 0, 5, 7, 0, 3, 3])
    one.weights[0] = 0.0
    one.weights[0, :, 0] = 0.6  # a weaker head that looks at the beginning
    assert alignment_accuracy([one], [DATE], [OFFSETS]) == 1.0


def test_signs_between_the_digits_do_not_count_and_a_mark_shifts_nothing():
    places = [0, 9, 10, 11, 12, 0, 5, 7, 0, 3, 3]
    one = looked(places, written=["▁", *ISO])
    assert alignment_accuracy([one], [DATE], [OFFSETS]) == 1.0
    glued = looked(places[1:], written=["▁1", *ISO[1:]])
    assert alignment_accuracy([glued], [DATE], [OFFSETS]) == 1.0


def test_a_text_of_another_length_has_all_digits_wrong():
    one = looked([9, 10], text="19")
    assert (
        alignment_accuracy([one, looked([9, 10, 11, 12, 0, 5, 7, 0, 3, 3])], [DATE] * 2, [OFFSETS] * 2) == 0.5
    )


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("1979-05 03", ["▁", *"1979-05", "▁", *"03"]),
        (" 979-05-03", ["▁", "▁", *"979-05-03"]),
        ("1979-05--3", ["▁", *"1979-05--3"]),
    ],
)
def test_ten_letters_that_are_no_date_have_all_digits_wrong(text, written):
    one = looked([0, 9, 10, 11, 12, 0, 5, 7, 0, 3, 3], text=text, written=written)
    assert alignment_accuracy([one], [DATE], [OFFSETS]) == 0


def test_chance_is_the_share_of_letters_that_would_be_right():
    assert chance_of_alignment([DATE], [OFFSETS]) == pytest.approx((4 * 4 + 2 * 3 + 2 * 1) / 8 / len(OFFSETS))


def test_exact_match_counts_whole_texts():
    assert exact_match(["a", "b", "c"], ["a", "x", "c"]) == 2 / 3


@pytest.mark.bad_input
def test_scores_without_texts_or_partners_are_refused():
    with pytest.raises(ValueError, match="got 1 and 2"):
        score(["a"], ["a", "b"])
    with pytest.raises(ValueError, match="got 0 and 0"):
        exact_match([], [])
    blind = Translation(source="x", text=ISO, score=0.0, read=[], written=[], weights=None)
    with pytest.raises(ValueError, match="alignment of 'x' is not known"):
        alignment_accuracy([blind], [DATE], [OFFSETS])
