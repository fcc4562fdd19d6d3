import torch

from sightline.attention.from_torch import mask_from_torch
from sightline.models.steps import padding_bias


def test_what_hides_padding_keeps_its_rows_where_a_gpu_wants_them() -> None:
    real = torch.arange(7) < torch.tensor([[3], [7], [1]])
    bias = padding_bias(real, torch.bfloat16)
    assert bias.dtype == torch.bfloat16
    assert torch.equal(bias == 0, real)
    assert torch.equal(bias == -torch.inf, ~real)
    (mask,) = mask_from_torch(None, bias, n_heads=2).added
    assert mask.shape == (3, 1, 1, 7)
    assert all(stride % 8 == 0 for stride in mask.stride()[:-1])
    assert torch.equal(mask[:, 0, 0], bias)
