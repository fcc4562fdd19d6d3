"""The checks of exercise 13: pytest course/13_vision."""

import torch

from course.checks import agree, drawn


def cut(image, *order):
    c, h, w = image.shape
    return image.reshape(c, h // 2, 2, w // 2, 2).permute(order).reshape(-1, c * 4)


def test_three_channels(exercise):
    image = torch.arange(72.0).reshape(3, 4, 6)
    rows = [image[:, y : y + 2, x : x + 2].flatten() for y in (0, 2) for x in (0, 2, 4)]
    agree(exercise.patches(image, 2), torch.stack(rows), {
        "reshape alone cuts the rows in pieces: a patch has pixels of several rows": image.reshape(-1, 12),
        "within a patch the channels come one after the other, not pixel by pixel": cut(image, 1, 3, 2, 4, 0),
        "left to right first, then the next row of patches": cut(image, 3, 1, 0, 2, 4),
        "within a patch the pixels are read row by row, not column by column": cut(image, 1, 3, 0, 4, 2),
    })  # fmt: skip


def test_the_example_of_the_notes(exercise):
    (image,) = drawn(47, (3, 224, 224))
    answer = exercise.patches(image, 16)
    agree(answer.shape, (196, 768))
    agree(answer[15], image[:, 16:32, 16:32].flatten())
