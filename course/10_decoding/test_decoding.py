"""The checks of exercise 10: pytest course/10_decoding."""

import itertools

import torch

from course.checks import agree, drawn

# Token 0 begins, 4 ends. The likeliest first token, 1, leads to unlikely ones.
ASTRAY = torch.tensor(
    [
        [0.0, 0.5, 0.4, 0.1, 0.0],
        [0.0, 0.1, 0.3, 0.3, 0.3],
        [0.0, 0.0, 0.0, 0.9, 0.1],
        [0.0, 0.05, 0.05, 0.0, 0.9],
        [0.2, 0.2, 0.2, 0.2, 0.2],
    ]
)
START = "return the tokens after `start`, without `start` itself"
END = "`end` belongs to the sentence: append it, then stop"


def test_greedy(exercise):
    table = ASTRAY.clamp_min(1e-9).log()
    agree(exercise.greedy(table, 0, 4, 9), [1, 2, 3, 4], {
        START: [0, 1, 2, 3, 4],
        END: [1, 2, 3],
        "that goes on after `end`: a sentence that wrote `end` is finished": [1, 2, 3, 4, 0, 1, 2, 3, 4],
    })  # fmt: skip


def test_greedy_on_a_table_that_never_ends(exercise):
    table = torch.tensor([[0.0, 1.0, 0.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]).clamp_min(1e-9).log()
    agree(exercise.greedy(table, 0, 2, 4), [1, 1, 1, 1])


def test_beam(exercise):
    table = ASTRAY.clamp_min(1e-9).log()
    agree(exercise.beam(table, 0, 4, 9, 1), [1, 2, 3, 4])  # a beam of 1 is greedy
    agree(exercise.beam(table, 0, 4, 9, 2), [2, 3, 4], {
        START: [0, 2, 3, 4],
        END: [2, 3],
        "that is greedy search: keep `width` beginnings, not one": [1, 2, 3, 4],
    })  # fmt: skip


def test_a_wide_beam_finds_what_trying_everything_finds(exercise):
    table = drawn(37, (5, 5))[0].log_softmax(-1)

    def logarithm(tokens):
        return sum(float(table[a, b]) for a, b in itertools.pairwise((0, *tokens)))

    finished = [(*x, 4) for n in range(3) for x in itertools.product(range(4), repeat=n)]
    cut = list(itertools.product(range(4), repeat=3))
    agree(exercise.beam(table, 0, 4, 3, 200), list(max(finished + cut, key=logarithm)))
