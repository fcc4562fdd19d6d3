"""The checks of exercise 9: pytest course/09_training."""

import torch
import torch.nn.functional as F

from course.checks import agree, drawn


def test_learning_rate(exercise):
    for step in (1, 4000, 100_000):  # the first, the end of the warm-up, a late one
        rise, fall = step * 4000**-1.5, step**-0.5
        slips = {"d_model ** -0.5 is missing": min(rise, fall)}
        if step != 4000:  # where both are the same
            slips["the rate rises, then falls: the smaller of the two, min"] = 512**-0.5 * max(rise, fall)
        agree(exercise.learning_rate(step, 512, 4000), 512**-0.5 * min(rise, fall), slips, near=1e-10)


def test_smoothed_cross_entropy(exercise):
    (logits,) = drawn(31, (5, 7))
    target = torch.tensor([0, 6, 3, 3, 1])
    for smoothing in (0.1, 0.4):
        right = F.cross_entropy(logits, target, label_smoothing=smoothing)
        others = torch.full((5, 7), smoothing / 6).scatter(1, target[:, None], 1 - smoothing)
        agree(exercise.smoothed_cross_entropy(logits, target, smoothing), right, {
            "a loss is positive: minus the log-probability": -right,
            "the mean over the batch, not the sum": 5 * right,
            "the targets are not smoothed yet": F.cross_entropy(logits, target),
            "every word gets smoothing / V, the right one too; not smoothing / (V - 1) for the others": (
                F.cross_entropy(logits, others)
            ),
        }, near=1e-6)  # fmt: skip
    agree(exercise.smoothed_cross_entropy(logits, target, 0.0), F.cross_entropy(logits, target), near=1e-6)
