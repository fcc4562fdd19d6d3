"""Gradients of what a look answers, and of what the matrix answers."""

import torch

from tests.oracle.check import near
from tests.oracle.draw import randn


def gradients(answer, of):
    """The gradients of a fixed mix of an answer; what is not finite counts as zero."""
    upstream = randn(*answer.shape, seed=31).to(answer)
    visible = torch.where(answer.detach().isfinite(), answer, 0.0)  # the lse of an empty row is -inf
    return torch.autograd.grad(visible, of, upstream, allow_unused=True, retain_graph=True)


def same_gradients(found, expected, rtol=1e-9, atol=1e-9, name=""):
    """Check gradients against those of the matrix; none is as good as zeros."""
    for ours, theirs in zip(found, expected, strict=True):
        if theirs is None or ours is None:
            assert all(x is None or not x.any() for x in (ours, theirs)), f"{name}: one has no gradient"
        else:
            near(ours, theirs, rtol, atol, f"gradient of {name}")


def agree_in_gradients(sight, dense, of, *, questions, rtol=1e-9, atol=1e-9):
    """Check the gradients of every answer that has one."""
    for name, question in questions.items():
        if question.has_gradient:
            ours, theirs = question.ask(sight), question.ask(dense)
            same_gradients(gradients(ours, of), gradients(theirs, of), rtol, atol, name)
