"""What a sight says of itself, word by word, and what a look leaves alone while it reads."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import sightline as sl
from sightline.look.sharded.axes import Axis, Shard
from sightline.look.steps import stack
from sightline.watch.readers.ours import read_attention_call
from tests.look.look_oracle import randn

B, H, T, S, D = 2, 3, 5, 7, 11


def look(**more):
    return sl.look(randn(B, H, T, D), randn(B, H, S, D), randn(B, H, S, D), **more)


def lines(sight, first):
    return [line for line in repr(sight).splitlines() if line.startswith(f"  {first} ")]


def test_how_it_was_read_and_what_is_padding():
    sight = look()
    assert not lines(sight, "read")
    assert not lines(sight, "padding")
    assert lines(replace(sight, source="weights"), "read") == [
        "  read      off the weights that the model computed by hand"
    ]
    assert lines(replace(sight, padding="attention_mask"), "padding") == [
        f"  padding   0 of {B * T} queries are left out, as attention_mask says"
    ]
    (unknown,) = lines(replace(sight, padding="unknown"), "padding")
    assert unknown.endswith("say which are padding with sl.watch(attention_mask=...)")


def test_what_needs_the_whole_sequence_says_its_name():
    part = replace(look(), shard=Shard(queries=Axis(((0, T),), 2 * T)))
    for ask, name in ((part.to_json, "JSON"), (lambda: stack([part]), "a stack of steps")):
        with pytest.raises(ValueError, match=f"^{name} needs the whole sequence, and this rank has "):
            ask()


def test_modules_that_a_score_is_made_of_do_not_feel_the_look():
    class Projected(sl.scores.Score):
        def __init__(self):
            super().__init__()
            self.part = nn.Linear(D, D)

        def forward(self, q, k):
            return self.part(q) @ k.transpose(-1, -2)

    score, calls = Projected(), []
    score.part.register_forward_hook(lambda *_: calls.append(1))
    q, k, v = randn(B, H, T, D).float(), randn(B, H, S, D).float(), randn(B, H, S, D).float()
    inputs, lead = read_attention_call((q, k, v), {"score": score}, kept=False)
    assert torch.equal(inputs.score(q, k), score.part(q) @ k.transpose(-1, -2))
    assert (len(calls), tuple(lead)) == (1, (B, H))  # the one is ours
