import numpy as np
import pytest
import torch

import sightline as sl
from sightline import show
from sightline.attention import masks


def names(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def test_weights_are_drawn_as_they_are():
    weights = torch.rand(5, 7, requires_grad=True).bfloat16()
    axes = show.weights(weights).axes[0]
    np.testing.assert_array_equal(axes.images[0].get_array(), weights.detach().double().numpy())
    assert axes.images[0].get_clim() == (0, weights.max().item())
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("Key", "Query")


def test_names_stand_at_their_rows():
    axes = show.weights(torch.eye(2, 3), ["he", "sees"], ["a", "$5", "x" * 29], title="It").axes[0]
    assert names(axes.yaxis) == ["he", "sees"]
    assert names(axes.xaxis) == ["a", "$5", "x" * 17 + "…"]
    assert list(axes.get_yticks()) == [0, 1]
    assert not axes.get_xticklabels()[1].get_parse_math()


def test_of_many_names_some_are_written():
    axes = show.weights(torch.rand(211, 211), [str(i) for i in range(211)]).axes[0]
    written = names(axes.yaxis)
    assert 10 <= len(written) <= 40
    assert written == [str(int(tick)) for tick in axes.get_yticks()]


def test_heads_share_one_scale():
    weights = torch.rand(3, 5, 7)
    figure = show.weights(weights)
    assert [axes.get_title() for axes in figure.axes[:3]] == ["head 0", "head 1", "head 2"]
    assert {axes.images[0].get_clim() for axes in figure.axes[:3]} == {(0, weights.max().double().item())}


@pytest.mark.parametrize(
    "mask", [masks.causal(), masks.causal().dense(5, 7), masks.bias(torch.ones(5, 7).tril(2).log())]
)
def test_a_mask_is_drawn_as_it_is(mask):
    figure = show.mask(mask, 5, 7)
    expected = masks.causal().dense(5, 7).double().numpy()
    np.testing.assert_array_equal(figure.axes[0].images[0].get_array(), expected)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["may look", "may not"]


def test_a_batch_gets_a_panel_each():
    figure = show.mask(masks.padding([2, 5, 3]), 5)
    for length, axes in zip([2, 5, 3], figure.axes, strict=True):
        assert axes.images[0].get_array().sum() == 5 * length


def test_masks_stand_under_their_names():
    figure = show.masks({"past": masks.causal(), "short": masks.padding([2])}, 5)
    assert [axes.get_title() for axes in figure.axes] == ["past", "short"]
    assert [axes.images[0].get_array().sum() for axes in figure.axes] == [15, 10]


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: show.weights(torch.rand(2, 3, 5, 7)), ValueError, r"got shape \(2, 3, 5, 7\)"),
        (lambda: show.weights(torch.rand(17, 5, 7)), ValueError, r"1 to 16 heads, got shape \(17, 5, 7\)"),
        (lambda: show.weights(torch.rand(0, 7)), ValueError, r"got shape \(0, 7\)"),
        (lambda: show.weights(torch.rand(5, 7), queries=["a"]), ValueError, "got 1 names for 5"),
        (lambda: show.weights([[1.0]]), TypeError, "weights must be a torch.Tensor, got list"),
        (lambda: show.mask(masks.causal(), 0, 3), ValueError, "got T=0 and S=3"),
        (
            lambda: show.mask(torch.ones(5, 7).bool(), 5, 11),
            ValueError,
            r"\(5, 11\), got a mask of shape \(5, 7\)",
        ),
        (lambda: show.mask(masks.padding([1] * 17), 5), ValueError, "1 to 16 masks, got 17"),
        (lambda: show.masks({"pad": masks.padding([1, 2])}, 5), ValueError, r"got \(2, 5, 5\) for 'pad'"),
        (lambda: show.masks({}, 5), ValueError, "1 to 16 masks, got 0"),
    ],
)
def test_bad_input(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_differences_have_two_sides():
    change = torch.rand(5, 7, generator=torch.Generator().manual_seed(0)) - 0.3
    figure = show.weights(change)
    image = figure.axes[0].images[0]
    np.testing.assert_array_equal(image.get_array(), change.double().numpy())
    end = change.abs().max().double().item()
    assert image.get_clim() == (-end, end)
    white = image.get_cmap()(image.norm(0.0))[:3]
    assert min(white) > 0.95  # zero is white, below it is blue, above red
    below, above = (image.get_cmap()(image.norm(x))[:3] for x in (-end, end))
    assert below[2] > below[0]
    assert above[0] > above[2]
    assert figure.axes[-1].get_ylabel() == "Difference of weights"


def test_differences_of_sights():
    x, y = (torch.randn(1, 3, 5, 4, generator=torch.Generator().manual_seed(i)) for i in range(2))
    before, after = sl.look(x, x, x), sl.look(y, y, y)
    change = after - before
    rows = after.rows(range(5))[0] - before.rows(range(5))[0]
    figure = show.weights(change, list("abcde"), list("abcde"))
    for head in range(3):
        np.testing.assert_allclose(figure.axes[head].images[0].get_array(), rows[head].numpy(), atol=1e-6)
    one = show.sight_map(change, head=1)
    np.testing.assert_allclose(one.axes[0].images[0].get_array(), rows[1].numpy(), atol=1e-6)
    low, high = one.axes[0].images[0].get_clim()
    assert low == -high < 0
    panels = show.heads(change)
    nats = (after.entropy - before.entropy)[0].mean(-1)
    assert [ax.get_title() for ax in panels.axes[:3]] == [f"head {i} · {n:+.2f}" for i, n in enumerate(nats)]
    none = show.sight_map(before - before)
    assert none.axes[0].images[0].get_clim() == (-1.0, 1.0)
    long = sl.look(*(torch.randn(1, 1, 301, 4) for _ in range(3)))
    assert show.sight_map(long - long.forget().with_kept(long.kept)).axes[0].images[0].norm.vmin == -1.0


@pytest.mark.bad_input
def test_differences_that_can_not_be():
    x, y = torch.randn(1, 3, 5, 4), torch.randn(1, 3, 7, 4)
    with pytest.raises(ValueError, match=r"got \(1, 3, 5, 5\) and \(1, 3, 7, 7\)"):
        sl.look(x, x, x) - sl.look(y, y, y)
    with pytest.raises(TypeError):
        sl.look(x, x, x) - 3
