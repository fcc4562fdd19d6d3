"""What a beam search says of its steps, against the sequences that it finds."""

import pytest
import torch

from sightline.decode.beam import beam
from sightline.decode.trace import BeamTrace
from tests.decode.toys import BOS, Toy, ToyState


def paths(trace):
    """Every beginning of every step, as a list of tokens with its score."""
    rows, found = [([], 0.0)], []
    for step in trace.steps:
        rows = [
            ([*rows[parent][0], token], score)
            for parent, token, score in zip(step.parents, step.tokens, step.scores, strict=True)
        ]
        found.append(rows)
    return found


@pytest.mark.parametrize("item", [0, 2])
@pytest.mark.parametrize("end", [-1.0, 1.0])
def test_steps_are_beginnings_with_their_probabilities(item, end):
    model, trace = Toy(7, end=end), BeamTrace(item=item)
    without = beam(model, model.start(3), width=3, n_best=3, max_length=5)
    found = beam(model, model.start(3), width=3, n_best=3, max_length=5, trace=trace)
    assert found.lists() == without.lists()  # to look changes nothing
    for step, rows in zip(trace.steps, paths(trace), strict=True):
        for (tokens, _), log_prob in zip(rows, step.log_probs, strict=True):
            past = torch.tensor([[BOS, *tokens]])
            state = ToyState(torch.tensor([item]), past[:, :-2])
            log_probs, _ = model.step(state, past[0, -2:-1])
            assert log_probs[0, tokens[-1]].item() == pytest.approx(log_prob, abs=1e-5)
        assert list(step.scores) == sorted(step.scores, reverse=True)
        assert max(step.scores) <= 0


def test_what_ended_is_what_is_found():
    model, trace = Toy(7, end=1.0), BeamTrace()
    found = beam(model, model.start(1), width=3, n_best=3, alpha=0.7, max_length=9, trace=trace)
    rows, ended = [[]], []
    for step in trace.steps:
        ended += [(score, rows[row]) for row, score in step.ended]
        rows = [[*rows[parent], token] for parent, token in zip(step.parents, step.tokens, strict=True)]
    best = sorted(ended, key=lambda one: -one[0])[:3]
    assert [tokens for _, tokens in best] == found.lists()[0]
    torch.testing.assert_close(torch.tensor([score for score, _ in best]), found.scores[0])


def test_where_each_beginning_looked_is_kept_if_it_is_known():
    model, trace = Toy(7), BeamTrace()
    beam(model, model.start(2, look=True), width=3, max_length=4, trace=trace)
    assert [tuple(step.weights.shape) for step in trace.steps if step.weights is not None][1:] == [(3, 2)] * (
        len(trace.steps) - 1
    )
    blind = BeamTrace()
    beam(model, model.start(2), width=3, max_length=4, trace=blind)
    assert all(step.weights is None for step in blind.steps)


def test_steps_have_nothing_that_can_not_be():
    """A beam that is wider than there are words has fewer ends."""
    model, trace = Toy(5), BeamTrace()
    beam(model, model.start(1), width=11, n_best=11, max_length=3, trace=trace)
    assert [len(step.ended) for step in trace.steps] == [1, 2, 4]
    for step in trace.steps:
        assert min(*step.scores, *step.log_probs, *(score for _, score in step.ended)) > -torch.inf
