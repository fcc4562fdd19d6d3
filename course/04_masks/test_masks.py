"""The checks of exercise 4: pytest course/04_masks."""

import torch
import torch.nn.functional as F

from course.checks import agree, drawn

MAY = "True means *may look*; this has True where it may not"


def test_create_mask(exercise):
    expected = torch.tensor([[s <= t for s in range(5)] for t in range(5)])
    agree(exercise.create_mask(5), expected, {
        "that is the other half: row t is True up to column t (the lower triangle, tril)": expected.T,
        MAY: ~expected,
        "a query may look at itself, too: the diagonal is True": expected & ~torch.eye(5, dtype=torch.bool),
    })  # fmt: skip
    agree(exercise.create_mask(1), torch.tensor([[True]]))


def test_padding_mask(exercise):
    lengths = [2, 5, 3]
    expected = torch.tensor([[[s < length for s in range(5)]] for length in lengths])
    agree(exercise.padding_mask(torch.tensor(lengths), 5), expected, {
        MAY: ~expected,
        "the shape is (batch, 1, size): an axis of size 1 for the queries is missing": expected[:, 0],
        "a sentence of length n has the real places 0 to n - 1: compare with < rather than <=": torch.tensor(
            [[[s <= length for s in range(5)]] for length in lengths]
        ),
    })  # fmt: skip


def test_attention_without_a_mask(exercise):
    Q, K, V = drawn(7, (2, 5, 3), (2, 5, 3), (2, 5, 7))
    agree(exercise.attention_score(Q, K, V)[0], F.scaled_dot_product_attention(Q, K, V), {
        "the scores are not divided by the root of d_k": F.scaled_dot_product_attention(Q, K, V, scale=1.0),
    })  # fmt: skip


def test_the_figures_of_the_homework(exercise):
    torch.manual_seed(0)
    Q, K, V = torch.randn(2, 3, 4), torch.randn(2, 3, 4), torch.randn(2, 3, 4)
    mask = torch.ones(2, 1, 3)
    mask[1, 0, 2:] = 0
    scores, hide = Q @ K.mT / 2, mask == 0
    weights = scores.masked_fill(hide, -torch.inf).softmax(-1)
    wrong = {
        "the wrong half is hidden; fill where the mask is 0, not 1": scores.masked_fill(~hide, -1e9),
        "a score of 0 still gets weight, exp(0) = 1: use -inf, whose exp is 0": scores.masked_fill(hide, 0.0),
        "adding ones and zeros to the scores hides nothing: put -inf where the mask is 0": scores + mask,
        "the mask is not used yet": scores,
    }
    slips = {hint: x.softmax(-1) for hint, x in wrong.items()}
    slips["each row must sum to one: hide scores before the softmax, not weights after it"] = (
        scores.softmax(-1) * mask
    )
    answer = exercise.attention_score(Q, K, V, mask)
    agree(answer, (weights @ V, weights), {hint: (w @ V, w) for hint, w in slips.items()})
    printed = [[0.7905, 0.2095, 0.0000], [0.8871, 0.1129, 0.0000], [0.1727, 0.8273, 0.0000]]
    agree(answer[1][1], torch.tensor(printed))


def test_masks_of_true_and_false(exercise):
    Q, K, V = drawn(7, (2, 5, 3), (2, 5, 3), (2, 5, 7))
    for mask in (torch.ones(5, 5).tril() > 0, torch.tensor([[[1, 1, 0, 0, 0]], [[1, 1, 1, 1, 0]]]) > 0):
        agree(exercise.attention_score(Q, K, V, mask)[0], F.scaled_dot_product_attention(Q, K, V, mask))
