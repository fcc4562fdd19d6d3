import math
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sightline.data.captions import clean
from sightline.evaluate.captions import score, score_captions
from sightline.evaluate.scores import rank

NAMES = ["bleu1", "bleu2", "bleu3", "bleu4", "rouge_l", "cider"]
WORDS = ["a", "the", "red", "blue", "big", "small", "circle", "square", "dog", "on", "left", "of", "above"]


def captions(seed, n=7, references=3):
    """Sentences of the words above, and others that share some with them."""
    dice = random.Random(seed)  # noqa: S311
    sentence = lambda: " ".join(dice.choices(WORDS, k=dice.randint(4, 11)))  # noqa: E731
    return [sentence() for _ in range(n)], [[sentence() for _ in range(references)] for _ in range(n)]


def grams(text, n):
    words = clean(text).split()
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


def bleu_by_hand(candidates, references, n):
    """Papineni's BLEU of a corpus: clipped counts, the reference that is closest in length."""
    total, length, closest = 0.0, 0, 0
    for k in range(1, n + 1):
        hit = sum(
            min(count, max(grams(r, k)[gram] for r in refs))
            for c, refs in zip(candidates, references, strict=True)
            for gram, count in grams(c, k).items()
        )
        total += math.log(hit / sum(sum(grams(c, k).values()) for c in candidates)) / n
    for c, refs in zip(candidates, references, strict=True):
        size = len(clean(c).split())
        length += size
        closest += min((abs(len(clean(r).split()) - size), len(clean(r).split())) for r in refs)[1]
    return math.exp(total + min(0.0, 1 - closest / length))


def rouge_by_hand(candidate, references):
    def longest(a, b):
        if not a or not b:
            return 0
        same = longest(a[1:], b[1:]) + 1 if a[0] == b[0] else 0
        return max(same, longest(a[1:], b), longest(a, b[1:]))

    a = clean(candidate).split()[:6]
    pairs = [(longest(a, b), b) for b in (clean(r).split()[:6] for r in references)]
    precision, recall = max(hit / len(a) for hit, _ in pairs), max(hit / len(b) for hit, b in pairs)
    return (1 + 1.2**2) * precision * recall / (recall + 1.2**2 * precision) if precision else 0.0


@pytest.mark.parametrize("n", [1, 2])
def test_bleu_is_papinenis(n):
    candidates, references = captions(0)
    expected = bleu_by_hand(candidates, references, n)
    assert score(candidates, references)[f"bleu{n}"] == pytest.approx(expected, rel=1e-6)


def test_rouge_is_the_longest_common_part():
    candidates, references = captions(1)
    short = [" ".join(c.split()[:6]) for c in candidates]
    truths = [[" ".join(r.split()[:6]) for r in refs] for refs in references]
    expected = [rouge_by_hand(c, refs) for c, refs in zip(short, truths, strict=True)]
    found = score_captions(short, truths)
    assert found.each["rouge_l"] == pytest.approx(expected)
    assert found.total["rouge_l"] == pytest.approx(sum(expected) / len(expected))


def test_names_order_and_range():
    found = score(*captions(2))
    assert list(found) == NAMES
    assert all(0 <= found[name] <= 1 for name in NAMES[:5])
    assert 0 <= found["cider"] <= 10


def test_what_a_person_wrote_scores_one():
    _, references = captions(3)
    found = score([refs[0] for refs in references], references)
    assert all(found[name] == pytest.approx(1.0, abs=1e-6) for name in NAMES[:5])


@given(st.randoms(use_true_random=False))
@settings(max_examples=10, deadline=None)
def test_the_order_of_images_does_not_matter(dice):
    candidates, references = captions(dice.random())
    order = list(range(len(candidates)))
    dice.shuffle(order)
    moved = score([candidates[i] for i in order], [references[i] for i in order])
    assert moved == pytest.approx(score(candidates, references))


def test_case_and_punctuation_do_not_count():
    candidates, references = captions(4)
    loud = [f"  {text.upper()}!" for text in candidates]
    assert score(loud, references) == score(candidates, [[f"“{r}”." for r in refs] for refs in references])


def test_a_caption_of_nothing_scores_nothing_and_breaks_nothing():
    candidates, references = captions(5)
    found = score_captions(["", *candidates[1:]], references)
    assert all(found.each[name][0] == pytest.approx(0.0, abs=1e-9) for name in NAMES)


def test_signatures_say_how():
    candidates, references = captions(6)
    found = score_captions(candidates, [refs[: 1 + i % 2] for i, refs in enumerate(references)])
    assert list(found.signatures) == NAMES
    assert found.signatures["bleu4"].startswith("images:7|refs:1-2|tok:sightline.clean|case:lower|")
    assert len({found.signatures[name] for name in NAMES if name != "cider"}) == 1
    assert "idf:these-references" in found.signatures["cider"]
    assert not any(" " in text for text in found.signatures.values())


@pytest.mark.parametrize("n", [1, 2, 5])
def test_ranked_against_sorting(n):
    dice = random.Random(n)  # noqa: S311
    scores = [dice.random() for _ in range(7)]
    found = rank(scores, n)
    assert [scores[i] for i in found.best] == sorted(scores, reverse=True)[:n]
    assert [scores[i] for i in found.worst] == sorted(scores)[: min(n, 7 - n)]
    assert not set(found.best) & set(found.worst)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("candidates", "references", "words"),
    [
        (["a"], [["a"], ["b"]], "got 1 captions and references for 2 images"),
        ([], [], "at least one caption to score, got none"),
        (["a", "b"], [["a"], ["?!", ""]], "got ['?!', ''] for image 1"),
        (["a"], [[]], "got [] for image 0"),
    ],
)
def test_bad_input(candidates, references, words):
    with pytest.raises(ValueError, match=r"must be|needs at least") as raised:
        score(candidates, references)
    assert words in str(raised.value)


@pytest.mark.bad_input
def test_ranked_needs_a_number():
    with pytest.raises(ValueError, match="at least 1, got 0"):
        rank([1.0], 0)
