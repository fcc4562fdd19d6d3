"""The two ways that attention may go, taken at any size; and the oracle, by the names that its tests use."""

import pytest
import torch

from sightline.attention import attend
from tests.oracle.attend import close, plain, qkv, value_and_gradients
from tests.oracle.draw import randn
from tests.oracle.scores import score_of

__all__ = ["close", "in_blocks", "in_one_call", "plain", "qkv", "randn", "scored", "value_and_gradients"]


class in_blocks:
    """Take the block path at any size, two queries at a time, so that small tests reach it."""

    def __init__(self, pairs=1, block=2):
        self.small = {"_PAIRS": pairs, "_BLOCK": block}

    def __enter__(self):
        self.patch = pytest.MonkeyPatch()
        for name, value in self.small.items():
            self.patch.setitem(getattr(attend, name), "cpu", value)

    def __exit__(self, *_):
        self.patch.undo()


class in_one_call(in_blocks):
    """Take the one call at any size."""

    def __init__(self):
        super().__init__(pairs=1 << 40, block=1 << 40)


def scored(name, d):
    """A score function in float64."""
    return score_of(name, d, torch.float64)
