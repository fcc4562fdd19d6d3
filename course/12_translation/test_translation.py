"""The checks of exercise 12: pytest course/12_translation."""

from course.checks import agree, drawn


def test_attention_step(exercise):
    state, states = drawn(43, (5,), (7, 5))

    def step(divide):
        scores = (states * state).sum(-1) / divide
        weights = scores.softmax(0)
        return scores, weights, (weights[:, None] * states).sum(0)

    agree(exercise.attention_step(state, states), step(1.0), {
        "the notes' score is the plain dot product, without a root": step(5**0.5),
    })  # fmt: skip


def test_alignment_error_rate(exercise):
    agree(exercise.alignment_error_rate([(0, 0), (1, 1)], [(0, 0), (1, 1)], []), 0.0, {
        "a sure link is possible, too, even if the list of possible ones does not have it": 0.5,
        "the error rate is one minus that": 1.0,
    })  # fmt: skip
    found, sure, possible = [(0, 0), (1, 2), (2, 1), (3, 3)], [(0, 0), (2, 1)], [(1, 1), (3, 3)]
    agree(exercise.alignment_error_rate(found, sure, possible), 1 / 6, {
        "a sure link is possible, too, even if the list of possible ones does not have it": 1 / 2,
        "the error rate is one minus that": 5 / 6,
    })  # fmt: skip
