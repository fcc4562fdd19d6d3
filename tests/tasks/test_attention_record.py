"""The record of what a prediction looked at."""

import pytest
import torch

from sightline.tasks.attention import Attention, Grid, tokens
from sightline.tasks.prediction import Prediction
from sightline.tasks.run import Run

WORDS = ("a", "red", "ring")
L, H, T, P = 2, 5, 3, 7


def record(**given):
    torch.manual_seed(0)
    weights = torch.rand(L, H, T, P).softmax(-1)
    return Attention(**({"weights": weights, "queries": WORDS, "keys": tuple("abcdefg")} | given))


def test_the_summary_is_the_mean_of_all_heads_unless_one_is_given():
    attention = record()
    assert torch.equal(attention.summary, attention.weights.mean((0, 1)))
    assert attention.summary_label == "mean of 10 heads, 5 per layer"
    rollout = torch.rand(T, P)
    given = record(summary=rollout, summary_label="rollout")
    assert given.summary is rollout
    assert given.summary_label == "rollout"


def test_a_single_head_needs_no_label():
    assert record(weights=torch.rand(1, 1, T, P)).summary_label == ""


@pytest.mark.parametrize(
    ("layer", "head", "cut", "label"),
    [
        (1, None, (slice(1, 2), slice(None)), "layer 1"),
        (1, 3, (slice(1, 2), slice(3, 4)), "layer 1, head 3"),
        (None, 8, (slice(1, 2), slice(3, 4)), "layer 1, head 3"),  # counted through the layers
        (None, 0, (slice(0, 1), slice(0, 1)), "layer 0, head 0"),
    ],
)
def test_select_gives_one_record_again(layer, head, cut, label):
    attention = record()
    chosen = attention.select(layer=layer, head=head)
    assert torch.equal(chosen.weights, attention.weights[cut])
    assert torch.equal(chosen.summary, attention.weights[cut].mean((0, 1)))
    assert chosen.summary_label == label
    assert (chosen.queries, chosen.keys) == (attention.queries, attention.keys)


def test_nothing_selected_is_the_record_itself():
    attention = record(summary=torch.rand(T, P))
    assert attention.select() is attention


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("choice", "sentence"),
    [
        ({"layer": 2}, "layer must be between 0 and 1, there are 2 layers, got 2"),
        ({"layer": -1}, "got -1"),
        ({"layer": 0.5}, "layer must be between 0 and 1, there are 2 layers, got 0.5"),
        ({"head": 10}, "head must be between 0 and 9, there are 10 heads, got 10"),
        ({"layer": 0, "head": 5}, "head must be between 0 and 4, there are 5 heads, got 5"),
    ],
)
def test_what_is_not_there_is_refused(choice, sentence):
    with pytest.raises(ValueError, match=sentence):
        record().select(**choice)


@pytest.mark.bad_input
def test_weights_must_fit_their_names():
    with pytest.raises(ValueError, match=r"T = 3 queries and S = 7 keys, got shape \(2, 5, 3, 11\)"):
        record(weights=torch.rand(2, 5, 3, 11))


def test_a_grid_counts_its_cells():
    grid = Grid(rows=2, columns=3, image=torch.zeros(3, 8, 12, dtype=torch.uint8))
    attention = Attention(weights=torch.full((1, 1, 1, 6), 1 / 6), queries=("cat",), keys=grid)
    assert len(grid) == 6
    torch.testing.assert_close(attention.entropy, torch.tensor([6.0]).log())


def test_entropy_of_a_certain_look_is_zero():
    weights = torch.zeros(1, 1, 1, 5)
    weights[..., 2] = 1
    assert Attention(weights=weights, queries=("x",), keys=tuple("abcde")).entropy.item() == 0


def test_tokens_are_shown_as_people_read_them():
    assert tokens(["▁Guten", "▁", "Tag", "##e"]) == ("Guten", "␣", "Tag", "e")


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("inputs", "sentence"), [("a.jpg", r"write \['a.jpg'\]"), ([], "at least one input")]
)
def test_a_watch_takes_a_list(inputs, sentence):
    run = Run(folder=None, task=None, config={}, device=None, predictor=None)
    with pytest.raises(ValueError, match=sentence):
        run.watch(inputs)


def test_what_is_printed_is_one_line_whatever_the_sizes():
    keys = Grid(rows=5, columns=7, image=torch.zeros(3, 11, 13))
    attention = Attention(weights=torch.full((2, 3, 1, 35), 1 / 35), queries=("dog",), keys=keys)
    assert repr(attention) == "Attention(2 layers of 3 heads, 1 queries, 35 keys)"
    printed = repr(Prediction(input=keys.image, text="a dog", score=-0.51234, attention=attention))
    assert printed == f"Prediction(text='a dog', score=-0.512, attention={attention!r})"
    assert (
        repr(Prediction(input="a.png", text="b", score=0.5))
        == "Prediction(input='a.png', text='b', score=0.5)"
    )
