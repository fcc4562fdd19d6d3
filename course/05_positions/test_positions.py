"""The checks of exercise 5: pytest course/05_positions."""

import math

import torch

from course.checks import agree, drawn


def test_the_table(exercise):
    d, length = 6, 5
    position, pair = torch.arange(length)[:, None], torch.arange(0, d, 2)
    angles = position / 10000 ** (pair / d)

    def turns(a):
        return torch.stack([a.sin(), a.cos()], dim=-1).flatten(1)

    def by_column(power):
        a = position / 10000 ** (power * torch.arange(d) / d)
        return torch.where(torch.arange(d) % 2 == 0, a.sin(), a.cos())

    expected = torch.zeros(length, d)
    for pos in range(length):
        for i in range(d // 2):
            expected[pos, 2 * i] = math.sin(pos / 10000 ** (2 * i / d))
            expected[pos, 2 * i + 1] = math.cos(pos / 10000 ** (2 * i / d))
    agree(exercise.PositionalEncoding(d, length).get_encoding(), expected, {
        "sine and cosine are swapped: even columns have the sine": expected[:, [1, 0, 3, 2, 5, 4]],
        "sines and cosines take turns, not one half each": torch.cat([angles.sin(), angles.cos()], dim=1),
        "positions begin at 0, not at 1": turns((position + 1) / 10000 ** (pair / d)),
        "the exponent is 2i / d_model, and here it is i / d_model": turns(position / 10000 ** (pair / 2 / d)),
        "i counts the pairs: columns 2i and 2i + 1 share one frequency; here i is the column": by_column(2),
        "columns 2i and 2i + 1 share one frequency; here each column has its own": by_column(1),
    })  # fmt: skip


def test_the_figures_of_the_homework(exercise):
    table = exercise.PositionalEncoding(d_model=128, max_len=10).get_encoding()
    agree(0.4 + table[:4, 3], torch.tensor([1.4000, 1.0479, 0.2396, -0.4558]))


def test_adding_the_table(exercise):
    words, table = drawn(11, (2, 5, 6), (5, 6))
    agree(exercise.add_positional_encoding(words, table), torch.stack([words[0] + table, words[1] + table]))


def test_rotation(exercise):
    agree(exercise.rotation(1.0, math.pi / 2), torch.tensor([[0.0, 1.0], [-1.0, 0.0]]))
    omega, phi = 0.3, 7.0
    for t in (0.0, 1.7, 13.0):
        here, there, back = omega * t, omega * (t + phi), omega * (t - phi)
        moved = exercise.rotation(omega, phi) @ torch.tensor([math.sin(here), math.cos(here)])
        agree(moved, torch.tensor([math.sin(there), math.cos(there)]), {
            "this moves back by phi: look at the signs of the two sines": [math.sin(back), math.cos(back)],
        })  # fmt: skip
