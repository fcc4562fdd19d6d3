"""Scores of classes against loops, and against scikit-learn."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sightline.evaluate.classes import accuracy, confusion, ece, score, signature, top

N, V = 31, 7


def example(seed=0, n=N):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, V, generator=generator), torch.randint(0, V, (n,), generator=generator)


@given(seed=st.integers(0, 999))
@settings(max_examples=20, deadline=None)
def test_accuracy_and_top_are_counts(seed):
    logits, labels = example(seed)
    ranks = [
        sorted(range(V), key=lambda c, row=row: -row[c]).index(y)
        for row, y in zip(logits, labels.tolist(), strict=True)
    ]
    assert accuracy(logits, labels) == pytest.approx(sum(r == 0 for r in ranks) / N)
    assert top(logits, labels, 5) == pytest.approx(sum(r < 5 for r in ranks) / N)
    assert top(logits, labels, 99) == 1.0


@given(seed=st.integers(0, 999))
@settings(max_examples=20, deadline=None)
def test_calibration_error_is_a_loop_over_bins(seed):
    logits, labels = example(seed)
    confidence, guess = logits.double().softmax(-1).max(-1)
    expected = 0.0
    for i in range(15):
        inside = (confidence > i / 15) & (confidence <= (i + 1) / 15)
        if inside.any():
            gap = confidence[inside].mean() - (guess == labels)[inside].double().mean()
            expected += float(inside.double().mean() * gap.abs())
    assert ece(logits, labels) == pytest.approx(expected)


def test_one_who_is_sure_and_wrong_is_not_calibrated():
    logits, labels = torch.eye(V) * 99, torch.arange(V)
    assert ece(logits, labels) == pytest.approx(0, abs=1e-6)
    assert ece(logits, (labels + 1) % V) == pytest.approx(1)


def test_confusion_is_scikit_learns():
    from sklearn.metrics import confusion_matrix

    logits, labels = example()
    expected = confusion_matrix(labels, logits.argmax(-1), labels=range(V))
    assert confusion(logits, labels).tolist() == expected.tolist()
    assert confusion(logits, labels).diagonal().sum() / N == pytest.approx(accuracy(logits, labels))


def test_score_has_all_names_and_says_how():
    found = score(*example())
    assert set(found) == {"accuracy", "top5", "ece", "loss"}
    assert signature("top5", n=31, views=2) == "top-5 of 31 images, 2 views an image"
    assert signature("ece", n=31, views=1) == "15 bins of equal width of 31 images, 1 view an image"


@pytest.mark.bad_input
def test_nothing_to_score():
    with pytest.raises(ValueError, match=r"\(0, 7\) and 0 labels"):
        score(torch.zeros(0, V), torch.zeros(0, dtype=torch.long))
    with pytest.raises(ValueError, match="and 3 labels"):
        score(torch.zeros(2, V), torch.zeros(3, dtype=torch.long))
