import pytest
import torch

from sightline.show.alignment import alignment, arcs, head_grid


def labels(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def test_words_stand_on_the_sides_of_the_matrix():
    weights = torch.rand(3, 2)
    figure = alignment(weights, ["▁ein", "▁Hund"], ["▁a", "▁do", "g"], title="a dog")
    ax = figure.axes[0]
    assert labels(ax.yaxis) == ["a", "do", "g"]
    assert labels(ax.xaxis) == ["ein", "Hund"]
    assert torch.allclose(torch.tensor(ax.images[0].get_array().data).float(), weights)


def test_every_head_has_a_panel():
    figure = head_grid(torch.rand(5, 3, 2), list("abc"), list("xy"))
    assert [ax.get_title() for ax in figure.axes[:5]] == [f"head {i}" for i in range(5)]
    assert (figure.get_supylabel(), figure.get_supxlabel()) == ("Query", "Key")
    assert len(head_grid(torch.rand(37, 3, 2), list("abc"), list("xy")).axes) == 37 + 1  # and the colours


def test_every_token_of_a_sentence_is_written_where_there_is_room():
    for t, s in ((10, 31), (15, 12), (29, 43)):
        source, target = [f"word{i}" for i in range(s)], [f"mot{i}" for i in range(t)]
        ax = alignment(torch.rand(t, s), source, target).axes[0]
        assert labels(ax.xaxis) == source
        assert labels(ax.yaxis) == target
    for heads, n in ((4, 29), (13, 23), (5, 15)):
        words = [f"word{i}" for i in range(n)]
        figure = head_grid(torch.rand(heads, n, n), words, words)
        assert labels(figure.axes[0].yaxis) == words
        assert labels(figure.axes[heads - 1].xaxis) == words
        assert min(label.get_fontsize() for label in figure.axes[0].get_yticklabels()) >= 7


def test_arcs_join_the_words_that_look():
    weights = torch.tensor([[0.0, 0.97, 0.03], [0.0, 1.0, 0.0], [0.9, 0.1, 0.0]])
    figure = arcs(weights, ["▁one", "▁", "two"], title="who looks")
    ax = figure.axes[0]
    assert [text.get_text() for text in ax.texts] == ["one", "␣", "two"]
    assert len(ax.patches) == 4, "looks below a twentieth are left out"
    widths = sorted(patch.get_linewidth() for patch in ax.patches)
    assert widths[0] < widths[-1]


def test_looks_ahead_go_above_the_words_and_looks_back_below():
    for weights, half in (([[0.0, 1.0], [0.0, 0.0]], (0, 180)), ([[0.0, 0.0], [1.0, 0.0]], (180, 360))):
        (arc,) = arcs(torch.tensor(weights), ["one", "two"]).axes[0].patches
        assert (arc.theta1, arc.theta2) == half


@pytest.mark.bad_input
def test_what_can_not_be_drawn_is_refused():
    with pytest.raises(ValueError, match=r"weights \(2, 2\) for 3 words"):
        arcs(torch.eye(2), list("abc"))
    with pytest.raises(ValueError, match=r"\(H, T, S\), got shape \(5, 7\)"):
        head_grid(torch.rand(5, 7), list("abcde"), list("abcdefg"))
    with pytest.raises(ValueError, match="1 to 128 heads, got 131"):
        head_grid(torch.rand(131, 2, 2), ["a", "b"], ["a", "b"])
    with pytest.raises(ValueError, match="got 1 names for 2"):
        alignment(torch.eye(2), ["one"], ["a", "b"])
