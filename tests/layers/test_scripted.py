"""torch.jit.script takes a drop-in as the torch class it stands for, and leaves the original as it is."""

import warnings

import pytest
import torch

import sightline as sl

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


class Subclass(sl.nn.TransformerEncoderLayer):
    pass


@pytest.mark.parametrize("kind", [sl.nn.TransformerEncoderLayer, Subclass])
def test_a_stack_can_be_scripted_and_stays_ours(kind: type) -> None:
    model = sl.nn.TransformerEncoder(kind(16, 2, 11, dropout=0.0, batch_first=True), num_layers=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(model)
    x = torch.randn(3, 5, 16)
    torch.testing.assert_close(scripted(x), model(x))
    assert type(model.layers[1]) is kind
    assert type(model.layers[1].self_attn) is sl.nn.MultiheadAttention


def test_one_attention_can_be_scripted() -> None:
    module = sl.nn.MultiheadAttention(12, 3, kdim=5, vdim=7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(module)
    q, k, v = torch.randn(2, 11, 12), torch.randn(13, 11, 5), torch.randn(13, 11, 7)
    torch.testing.assert_close(scripted(q, k, v)[0], module(q, k, v)[0])
