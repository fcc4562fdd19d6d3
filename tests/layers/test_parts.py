import pytest
import torch
import torch.nn.functional as F
from torch import nn

from sightline.layers.parts import activation_of, is_causal_mask, sequence_length

T = 5


@pytest.mark.parametrize(
    ("activation", "function", "kind"),
    [
        ("relu", F.relu, 1),
        ("gelu", F.gelu, 2),
        (F.relu, F.relu, 1),
        (F.gelu, F.gelu, 2),
        (torch.tanh, torch.tanh, 0),
    ],
)
def test_activation_by_name_or_as_it_is(activation, function, kind):
    assert activation_of(activation) == (function, kind)


@pytest.mark.parametrize(("module", "kind"), [(nn.ReLU(), 1), (nn.GELU(), 2), (nn.Tanh(), 0)])
def test_activation_may_be_a_module(module, kind):
    found, found_kind = activation_of(module)
    assert found is module
    assert found_kind == kind


@pytest.mark.bad_input
def test_unknown_activation_is_named_with_a_remedy():
    with pytest.raises(
        RuntimeError, match="activation should be relu/gelu, not silu; pass any other as a function"
    ):
        activation_of("silu")


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, torch.float64])
def test_only_the_causal_mask_is_causal(dtype):
    causal = torch.ones(T, T).triu(1).bool()

    def make(mask):
        if dtype == torch.bool:
            return mask
        return torch.zeros(mask.shape, dtype=dtype).masked_fill(mask, -torch.inf)

    assert is_causal_mask(make(causal), T)
    for i, j in ((2, 1), (1, 3), (4, 4)):
        other = causal.clone()
        other[i, j] = ~other[i, j]
        assert not is_causal_mask(make(other), T)
    assert not is_causal_mask(make(causal), T + 1)
    assert not is_causal_mask(make(causal).expand(2, T, T), T)
    assert not is_causal_mask(None, T)


@pytest.mark.parametrize(
    ("shape", "batch_first", "length"),
    [((7, 3), False, 7), ((7, 3), True, 7), ((7, 3, 2), False, 7), ((3, 7, 2), True, 7)],
)
def test_sequence_length_is_where_the_layer_says(shape, batch_first, length):
    layer = nn.TransformerEncoderLayer(2, 1, batch_first=batch_first)
    assert sequence_length(torch.zeros(shape), layer) == length
