"""A NaN query is NaN in every statistic and question; other queries are not."""

import math

import pytest
import torch

import sightline as sl
from sightline.look.heads import head_table, sharpest

MASKS = {
    "none": lambda: None,
    "tensor": lambda: torch.ones(5, 7, dtype=torch.bool).tril(3),
    "items": lambda: torch.tensor([[[True] * 5 + [False] * 2], [[True] * 7]]),
    "padding": lambda: sl.masks.padding([3, 7]),
    "causal": sl.masks.causal,
    "bias": lambda: torch.linspace(-1, 1, 35).view(5, 7),
    "both": lambda: sl.masks.causal() & sl.masks.dense(torch.ones(5, 7, dtype=torch.bool).tril(3)),
}


@pytest.mark.combinations
@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_nan_query_is_nan_everywhere(name, dtype):
    torch.manual_seed(0)
    q, k = torch.randn(2, 3, 5, 4, dtype=dtype), torch.randn(2, 3, 7, 4, dtype=dtype)
    q[0, 1, 2, 3] = torch.nan
    sight = sl.look(q, k, k, MASKS[name]())
    is_nan = torch.zeros(2, 3, 5, dtype=torch.bool)
    is_nan[0, 1, 2] = True
    for found in (sight.lse, sight.entropy, sight.peak):
        assert torch.equal(found.isnan(), is_nan)
    for found in (sight.rows(range(5)), sight.map((5, 7)), sight.columns(range(7)), sight.top(2)[0]):
        assert torch.equal(found.isnan().any(-1), is_nan)
    assert torch.equal(sight.mass([slice(0, 3), [5]]).isnan().any(-1), is_nan)
    for found in (sight.received, sight.received_from((1, 4)), sight.offsets(7, first=2)):
        assert torch.equal(found.isnan().any(-1), is_nan.any(-1))


def test_heads_whose_weights_are_nan_are_not_sharp():
    torch.manual_seed(0)
    q, k = torch.randn(2, 3, 5, 4), torch.randn(2, 3, 5, 4)
    q[:, 1] = torch.nan
    sight = sl.look(q, k, k)
    table = head_table({"a": sight})
    assert math.isnan(table[1].evenness)
    assert {head.head for head in sharpest(table)} == {0, 2}
    assert "entropy   1." in repr(sight)
    assert "NaN for 10 of 30 queries" in repr(sight)
    assert "even is" not in repr(sight[:, 1])
    assert "entropy   NaN for 10 of 10 queries" in repr(sight[:, 1])


def test_a_model_of_nan_is_printed_as_nan():
    layer, x = torch.nn.MultiheadAttention(6, 3, batch_first=True), torch.randn(2, 5, 6)
    torch.nn.init.constant_(layer.in_proj_weight, torch.nan)
    with torch.no_grad(), sl.watch(layer) as seen:
        layer(x, x, x)
    assert "entropy nan, peak nan" in repr(seen)


def test_a_query_with_nothing_to_look_at_is_still_zeros():
    mask = torch.ones(5, 7, dtype=torch.bool)
    mask[2] = False
    q, k = torch.randn(1, 1, 5, 4), torch.randn(1, 1, 7, 4)
    sight = sl.look(q, k, k, mask)
    for found in (sight.rows([2]), sight.map((5, 7))[..., 2, :], sight.columns(range(7))[..., 2, :]):
        assert torch.equal(found, torch.zeros_like(found))
