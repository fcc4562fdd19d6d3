"""The checks of exercise 1: pytest course/01_soft_dictionary."""

import math

import pytest

from course.checks import agree


def test_softmax(exercise):
    scores = [1.0, 2.0, 3.0]
    powers = [math.exp(score) for score in scores]
    agree(exercise.softmax(scores), [power / sum(powers) for power in powers], {
        "the weights do not sum to one: divide each exp by the sum of all exps": powers,
        "that divides the scores themselves: take exp of each score first": [x / sum(scores) for x in scores],
        "divide by the sum of the exps, not by how many there are": [power / 3 for power in powers],
    })  # fmt: skip
    agree(exercise.softmax([0.0, 0.0, 0.0, 0.0]), [0.25] * 4)


def test_softmax_of_large_scores(exercise):
    try:
        weights = exercise.softmax([1000.0, 1001.0])
    except OverflowError:
        pytest.fail("a number grew too large: subtract the largest score from all of them first")
    agree(weights, [1 / (1 + math.e), math.e / (1 + math.e)])


def test_look_up(exercise):
    agree(exercise.look_up([0.0, 0.0], [[1.0, 0.0, 2.0], [0.0, 3.0, -1.0]]), [0.5, 1.5, 0.5])
    scores, values = [2.0, 1.0], [[1.0, 0.0, 2.0], [0.0, 3.0, -1.0]]
    a = 1 / (1 + math.exp(-1))  # the first weight; the second is 1 - a
    agree(exercise.look_up(scores, values), [a, 3 * (1 - a), 3 * a - 1], {
        "that is the value of the best key alone; a soft dictionary mixes all": values[0],
        "the scores are not weights yet: put them through softmax first": [2.0, 3.0, 3.0],
        "the answer is as long as one value: at each of its places, add up over the keys": [3 * a, 2 - 2 * a],
        "that is the plain mean; each value counts by its own weight": [0.5, 1.5, 0.5],
    })  # fmt: skip
