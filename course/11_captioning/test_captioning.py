"""The checks of exercise 11: pytest course/11_captioning."""

from course.checks import agree, drawn

CAPTION = ["a", "red", "red", "circle", "left", "of", "a", "red", "red", "square"]
REFERENCES = [x.split() for x in ("a red circle left of a square", "the red disc beside the red square")]


def test_clipped_precision(exercise):
    agree(exercise.clipped_precision(["the", "the", "the"], [["the", "cat"]]), 1 / 3, {
        "a word counts at most as often as a reference has it (clipping)": 1.0,
    })  # fmt: skip
    agree(exercise.clipped_precision(CAPTION, REFERENCES), 0.8, {
        "a word counts at most as often as a reference has it (clipping)": 1.0,
        "the largest count of one reference, not the sum over all": 0.9,
        "divide by the number of words, the repeated ones included": 8 / 6,
    })  # fmt: skip


def test_share_in_box(exercise):
    weights = drawn(41, (5, 7))[0].flatten().softmax(0).reshape(5, 7)
    agree(exercise.share_in_box(weights, (0, 0, 5, 7)), 1.0)
    agree(exercise.share_in_box(weights, (1, 2, 4, 3)), weights[1, 2] + weights[2, 2] + weights[3, 2], {
        "bottom and right are the first patches outside the box": weights[1:5, 2:4].sum(),
        "the box is (top, left, bottom, right): rows first, then columns": weights[2:3, 1:4].sum(),
        "the sum of the weights, not their mean": weights[1:4, 2:3].mean(),
    })  # fmt: skip
