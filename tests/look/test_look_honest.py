"""What a look must not do: guess, break what it watches, or answer from what has changed."""

import pytest
import torch
from torch import nn

import sightline as sl
from sightline.look.flow import received_flow, rollout
from sightline.look.heads import by_layer, head_table, is_cross


class Short(nn.MultiheadAttention):
    """A subclass with a signature of its own, and an output that is no tuple."""

    def forward(self, x):
        return {"y": super().forward(x, x, x)[0]}


class Attends(nn.Module):
    def __init__(self, score):
        super().__init__()
        self.score, self.drop = score, nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(sl.attention(x, x, x, score=self.score))


class Dicy(sl.scores.Score):
    """A score that draws random numbers in training and counts how often it was asked."""

    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)
        self.register_buffer("asked", torch.zeros(()))

    def as_dot(self, q, k):
        return None

    def forward(self, q, k):
        self.asked.add_(1)
        return self.drop(q) @ k.mT * self.asked


def test_a_subclass_with_a_forward_of_its_own_is_seen():
    model = nn.Sequential(Short(8, 2, batch_first=True))
    x = torch.randn(3, 5, 8)
    with sl.watch(model) as seen:
        assert torch.equal(model(x)["y"], model(x)["y"])
    assert len(seen.calls("0")) == 2
    assert seen["0"][0].lead == (3, 2)


@pytest.mark.parametrize("change", ["zero", "step"])
def test_what_was_written_to_answers_no_more(change):
    q = nn.Parameter(torch.randn(1, 2, 11, 8))
    k = torch.randn(1, 2, 13, 8)
    sight = sl.look(q, k, k)
    first = sight[0]
    before = sight.rows([3])
    if change == "zero":
        k.zero_()
    else:
        with torch.no_grad():
            q.add_(1)
    for each in (sight, first, sight[:, 1], sight.to("cpu")):
        with pytest.raises(
            ValueError, match="rows can't be had any more, q or k was written to since it was kept"
        ):
            each.rows([3])
    assert torch.isfinite(sight.entropy).all()
    assert torch.isfinite(before).all()


def test_inference_tensors_can_still_be_asked():
    with torch.inference_mode():
        x = torch.randn(1, 2, 11, 8)
        assert sl.look(x, x, x).rows([3]).sum(-1).allclose(torch.ones(1, 2, 1))


def test_autocast_rounds_a_bias_as_the_kernel_does():
    torch.manual_seed(3)
    q, k, v = (torch.randn(1, 2, 7, 16) for _ in range(3))
    bias = torch.randn(1, 2, 7, 7) * 20
    with torch.autocast("cpu", torch.bfloat16):
        sight = sl.look(q, k, v, sl.masks.bias(bias))
    exact = (q.bfloat16().double() @ k.bfloat16().double().mT) * 0.25 + bias.bfloat16().double()
    torch.testing.assert_close(sight.peak.double(), exact.softmax(-1).amax(-1), rtol=1e-5, atol=1e-6)


def test_rows_of_large_scores_sum_to_one():
    x = torch.full((1, 1, 5, 16), 64.0) + torch.randn(1, 1, 5, 16) * 1e-3
    sight = sl.look(x, x, x)
    assert sight.lse.min() > 1e4
    torch.testing.assert_close(sight.rows([2]).sum(-1), torch.ones(1, 1, 1), rtol=1e-5, atol=0)


@pytest.mark.parametrize("name", ["a.crossattention.self", "layer.cross_attn.core", "multihead_attn.attn"])
def test_cross_attention_by_the_name_of_what_holds_it(name):
    x = torch.randn(1, 2, 5, 8)
    assert is_cross(name, sl.look(x, x, x))
    assert not is_cross("a.attention.self", sl.look(x, x, x))


def test_a_score_that_draws_random_numbers_is_unseen_and_leaves_the_model_its_own():
    model, other = Attends(Dicy()), Attends(Dicy())
    x = torch.randn(2, 3, 5, 8)
    torch.manual_seed(1)
    blind = [model(x) for _ in range(3)]
    torch.manual_seed(1)
    with pytest.warns(UserWarning, match="its score draws random numbers"), sl.watch(other) as seen:
        watched = [other(x) for _ in range(3)]
    for a, b in zip(blind, watched, strict=True):
        assert torch.equal(a, b)
    assert seen.names() == []
    assert "watch it after model.eval()" in seen.unseen()[""]
    with sl.watch(other.eval()) as seen:
        other(x)
    assert seen.names() == [""]
    assert not seen.unseen()


def test_a_flow_where_nobody_looks_is_no_nan():
    x = torch.randn(1, 2, 5, 8)
    sight = sl.look(x, x, x, sl.masks.dense(torch.zeros(5, 5, dtype=torch.bool)))
    assert torch.isfinite(received_flow([sight, sight])).all()


def test_a_table_of_heads_and_a_flow_without_tokens():
    x = torch.randn(2, 3, 0, 8)
    sight = sl.look(x, x, x)
    rows = head_table({"a": sight})
    assert [(row.entropy, row.peak, row.first) for row in rows] == [(0.0, 0.0, 0.0)] * 3
    assert received_flow([sight, sight]).shape == (2, 0)


def test_runs_of_other_lengths_are_no_steps():
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    with sl.watch(attention, keep=True) as seen:
        for t in (5, 9):
            x = torch.randn(1, t, 8)
            attention(x, x, x)
    assert {name: (sight.t, sight.s) for name, sight in by_layer(seen).items()} == {
        " call 0": (5, 5),
        " call 1": (9, 9),
    }


@pytest.mark.bad_input
def test_sentences(tmp_path):
    x = torch.randn(2, 2, 5, 8)
    sight = sl.look(x, x, x)
    with pytest.raises(ValueError, match="limit must be a whole number of bytes >= 0, got '2GB'"):
        sl.watch(nn.Linear(2, 2), limit="2GB")
    with pytest.raises(TypeError, match="indexed by whole numbers and slices, got bool"):
        sight[True]
    with pytest.raises(ValueError, match="saved as a file, got the folder"):
        sight.save(tmp_path)
    with pytest.raises(TypeError, match=r"one sight of each layer, got a list; .*seen.calls"):
        rollout([[sight, sight]])
