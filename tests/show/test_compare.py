import numpy as np
import pytest
import torch

from sightline import show
from sightline.attention import scores


def test_each_panel_is_the_softmax_of_its_score():
    q, k = torch.randn(5, 7), torch.randn(11, 7)
    chosen = {"dot": scores.Dot(), "by name": "cosine", "additive": scores.Additive(7, 7, 3)}
    figure = show.scores(q, k, chosen)
    for axes, (name, score) in zip(figure.axes, chosen.items(), strict=False):
        expected = torch.softmax(scores.named(score)(q, k), dim=-1).detach().double().numpy()
        np.testing.assert_array_equal(axes.images[0].get_array(), expected)
        assert axes.get_title() == name


def test_one_scale_of_colours():
    figure = show.scores(
        torch.eye(3), torch.eye(3), {"dot": "dot", "cosine": "cosine", "scaled": "scaled_dot"}
    )
    assert len({axes.images[0].get_clim() for axes in figure.axes[:3]}) == 1
    assert len(figure.axes) == 4


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: show.scores(torch.eye(3), torch.eye(3), {}), "empty mapping"),
        (lambda: show.scores(torch.eye(3), torch.eye(3), {"a": "dott"}), "unknown score 'dott'"),
        (lambda: show.scores(torch.rand(3, 5), torch.rand(3, 7), {"a": "dot"}), "D=5 and D=7"),
        (lambda: show.scores(torch.rand(2, 3, 5), torch.rand(3, 5), {"a": "dot"}), r"got shape \(2, 3, 3\)"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()
