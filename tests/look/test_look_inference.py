"""A look that is asked later: outside of inference mode, with gradients on, after its score has learned."""

import copy
import pickle

import pytest
import torch
from torch import nn

import sightline as sl
from sightline.look import flow
from sightline.look.heads import distance, head_table, share
from tests.look.look_oracle import near, randn, score_of

B, H, T, D = 2, 3, 7, 5

QUESTIONS = {
    "rows": lambda sight: sight.rows([0, -1]),
    "map": lambda sight: sight.map((3, 2)),
    "a window of a map": lambda sight: sight.map(2, queries=(1, 4), keys=(0, 5)),
    "top": lambda sight: sight.top(2)[0],
    "mass": lambda sight: sight.mass([[0, 3], slice(2, 5)]),
    "columns": lambda sight: sight.columns([1, 0]),
    "offsets": lambda sight: sight.offsets(3),
    "received_from": lambda sight: sight.received_from((1, 5)),
    "received_from, max": lambda sight: sight.received_from(None, "max"),
    "logit": lambda sight: sight.logit,
    "heads averaged": lambda sight: sight.mean_heads().rows([1]),
    "one item": lambda sight: sight[0, 1:].rows([2]),
    "a copy": lambda sight: copy.deepcopy(sight).rows([0]),
    "a pickle": lambda sight: pickle.loads(pickle.dumps(sight)).rows([0]),  # noqa: S301
    "a difference": lambda sight: (sight - sight).rows([0]),
    "rollout": lambda sight: flow.rollout([sight, sight]),
    "rollout of a token": lambda sight: flow.rollout([sight, sight], token=2),
    "distance": distance,
    "share": share,
    "heads": lambda sight: torch.tensor([row.distance for row in head_table({"layer": sight})]),
    "align": lambda sight: sl.align(sight[0]),
    "in a notebook": lambda sight: torch.tensor(len(sight._repr_html_())),
}


class Sharpened(sl.scores.Score):
    """A score of the user's own, which learns in a tensor that torch does not know of."""

    def __init__(self):
        super().__init__()
        self.by = [torch.tensor(0.7, requires_grad=True)]

    def forward(self, q, k):
        return q @ k.mT * self.by[0]


def score_named(name):
    return Sharpened() if name == "own" else score_of(name, D)


MASKS = {
    "none": lambda: None,
    "causal": sl.masks.causal,
    "padding": lambda: sl.masks.padding([T, 4]),
    "bias": lambda: randn(T, T, seed=9, dtype=torch.float32),
    "learned bias": lambda: nn.Parameter(randn(T, T, seed=9, dtype=torch.float32)),
}
WHERE = {"inference mode": torch.inference_mode, "no_grad": torch.no_grad}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("score", ["scaled_dot", "cosine", "general", "low_rank", "additive", "own"])
@pytest.mark.parametrize("where", WHERE)
def test_every_question_is_answered_and_carries_no_gradients(where, score, mask):
    asked, score = MASKS[mask](), score_named(score)
    with WHERE[where]():
        q, k, v = (randn(B, H, T, D, seed=seed, dtype=torch.float32) for seed in range(3))
        sight = sl.look(q, k, v, asked, score=score)
        expected = {name: question(sight) for name, question in QUESTIONS.items()}
    for name, question in QUESTIONS.items():
        found = question(sight)
        assert not found.requires_grad, name
        near(found, expected[name])


@pytest.mark.parametrize("score", ["general", "additive", "own"])
def test_a_watched_model_is_asked_after_inference(score):
    class Attends(nn.Module):
        def __init__(self):
            super().__init__()
            self.score = score_named(score)

        def forward(self, x):
            return sl.attention(x, x, x, sl.masks.causal(), score=self.score)

    model, x = Attends(), randn(B, H, T, D, dtype=torch.float32)
    expected = sl.look(x, x, x, sl.masks.causal(), score=model.score).rows(range(T))
    with torch.inference_mode(), sl.watch(model, keep=True) as seen:
        model(x.clone())
    near(seen[""].rows(range(T)), expected.detach())


@pytest.mark.parametrize("score", ["general", "low_rank", "additive"])
def test_a_look_with_gradients_keeps_them_where_they_are_promised(score):
    score = score_of(score, D)
    q, k, v = (randn(B, H, T, D, seed=seed, dtype=torch.float32) for seed in range(3))
    sight = sl.look(q, k, v, score=score)
    for name in ("mass", "columns", "offsets", "received_from"):
        loss = QUESTIONS[name](sight).square().sum()
        (gradient,) = torch.autograd.grad(loss, [next(score.parameters())], retain_graph=True)
        assert gradient.any(), name
    for name in ("rows", "map", "top"):
        assert not QUESTIONS[name](sight).requires_grad, name


def test_a_score_that_has_learned_since_answers_no_more():
    score = score_of("additive", D)
    q, k, v = (randn(B, H, T, D, seed=seed, dtype=torch.float32) for seed in range(3))
    with torch.no_grad():
        sight = sl.look(q, k, v, score=score)
    before, twin = sight.rows([0]), copy.deepcopy(sight)
    with torch.no_grad():
        score.v.mul_(2)
    with pytest.raises(ValueError, match=r"rows can't be had any more, q, k or the score was written to"):
        sight.rows([0])
    with pytest.raises(ValueError, match="was written to"):
        copy.deepcopy(sight)[0].mass([[0]])
    assert torch.equal(twin.rows([0]), before)  # its score is its own
    assert sl.look(q, k, v, score=score).rows([0]).sum(-1).allclose(torch.ones(1))
