import pytest
import torch

from sightline.decode.beam import top_k


@pytest.mark.parametrize("k", [1, 7, 13])
@pytest.mark.parametrize("v", [17, 831, 3329, 3392, 5003, 8000])  # short, with a rest and without
def test_it_finds_what_topk_finds(v: int, k: int) -> None:
    x = torch.randn(11, v, generator=torch.Generator().manual_seed(v))
    values, places = top_k(x, k)
    expected = x.topk(k)
    assert torch.equal(values, expected.values)
    assert torch.equal(places, expected.indices)


def test_the_largest_may_stand_side_by_side_or_at_either_end() -> None:
    x = torch.zeros(3, 5003)
    x[0, 100:107] = torch.arange(1.0, 8.0)
    x[1, :3] = x[1, -4:] = 1.0
    x[2] = -torch.inf
    x[2, 4999] = 0.0
    values, places = top_k(x, 7)
    assert places[0].tolist() == [106, 105, 104, 103, 102, 101, 100]
    assert sorted(places[1].tolist()) == [0, 1, 2, 4999, 5000, 5001, 5002]
    assert values[2].tolist() == [0.0, *[-torch.inf] * 6]
    assert places[2, 0] == 4999
    assert places[2].unique().numel() == 7
