"""IBM model 1 against the same thing written as loops, and on pairs whose words stand in for each other."""

from collections import defaultdict

import pytest

from workshop.figures.ibm_model_1 import ibm_model_1

TRAIN = [("a b c", "x y"), ("b c", "y z z"), ("c", "z"), ("a", "x"), ("d a", "x w"), ("", "x"), ("b", "")]
PAIRS = [("c b a", "x z y"), ("d", "w x q")]


def by_loops(train, pairs, iterations):
    words = [(["", *s.split()], t.split()) for s, t in [*pairs, *train]]
    p = defaultdict(lambda: 1.0)
    for _ in range(iterations):
        counts, totals = defaultdict(float), defaultdict(float)
        for source, target in words:
            for t in target:
                whole = sum(p[s, t] for s in source)
                for s in source:
                    counts[s, t] += p[s, t] / whole
                    totals[s] += p[s, t] / whole
        p = {(s, t): value / totals[s] for (s, t), value in counts.items()}
    best = [
        [max(range(len(source)), key=lambda i, s=source, t=t: p[s[i], t]) for t in target]
        for source, target in words[: len(pairs)]
    ]
    return [{(i - 1, j) for j, i in enumerate(row) if i} for row in best]


@pytest.mark.parametrize("iterations", [1, 2, 7])
def test_as_by_loops(iterations):
    assert ibm_model_1(TRAIN, PAIRS, iterations=iterations) == by_loops(TRAIN, PAIRS, iterations)


def test_a_word_that_always_stands_alone_finds_its_own():
    train = [(f"{a} {b}", f"{b.upper()} {a.upper()}") for a in "abcde" for b in "abcde" if a != b]
    assert ibm_model_1(train, [("a b", "B A")]) == [{(1, 0), (0, 1)}]
