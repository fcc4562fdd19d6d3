"""Runs of a model, always of the same random numbers: blind with every gradient, or watched."""

import random

import numpy as np
import torch
from torch import Tensor

import sightline as sl


def seeded(seed=1):
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002 (what transformers draws from)
    random.seed(seed)


def tensors(x):
    """All tensors in an output, in order."""
    if isinstance(x, Tensor):
        yield x
    elif isinstance(x, dict):
        for inner in x.values():
            yield from tensors(inner)
    elif isinstance(x, tuple | list):
        for inner in x:
            yield from tensors(inner)


def run(model, inputs):
    """The output and every gradient of a run, always of the same random numbers.

    A model that can't be trained is run without gradients, in whichever mode.
    """
    seeded()
    if not torch.is_grad_enabled():
        return list(tensors(model(**inputs)))
    model.zero_grad()
    own = {name: leaf(x) for name, x in inputs.items()}
    outputs = list(tensors(model(**own)))
    trained = [x for x in outputs if x.requires_grad and x.is_floating_point()]
    if trained:
        sum(x.square().sum() for x in trained).backward()
    leaves = [x for x in own.values() if isinstance(x, Tensor)]
    return [*(x.detach() for x in outputs), *(x.grad for x in [*leaves, *model.parameters()])]


def leaf(x):
    """An input that gets a gradient; not sound, of which wav2vec makes a leaf itself."""
    is_trained = isinstance(x, Tensor) and x.is_floating_point() and x.dim() > 2
    return x.detach().clone().requires_grad_() if is_trained else x


def same(one, other):
    """Whether two runs are equal to the bit."""
    return len(one) == len(other) and all(map(_is_same, one, other))


def _is_same(a, b):
    if a is None or b is None:
        return a is b
    return a.shape == b.shape and a.dtype == b.dtype and torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0))


def watched(model, inputs, **options):
    """What is seen of a run without gradients."""
    seeded()
    with torch.no_grad(), sl.watch(model, **options) as seen:
        model(**inputs)
    return seen


def sights_of(seen):
    return [sight for _, calls in seen.items() for sight in calls]
