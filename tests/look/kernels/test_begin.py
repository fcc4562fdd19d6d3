"""What is laid out before the pass over weights, against torch."""

import math

import pytest
import torch


@pytest.mark.parametrize(
    ("heads", "t", "pitch", "n_integers"), [(3, 67, 128, 1), (2, 131, 192, 1031), (1, 5, 64, 2)]
)
def test_lse_is_padded_and_integers_are_cleared(device, heads, t, pitch, n_integers):
    from sightline.look.kernels.begin import begin_kernel
    from sightline.look.kernels.tiles import EMPTY_LSE

    lse = torch.randn(heads, t, device=device)
    lse[0, 2], lse[-1, 0], lse[-1, -1] = math.inf, -math.inf, math.nan
    n_padded, block = heads * pitch + 64, 256
    padded = torch.full((n_padded + 7,), 17.0, device=device)
    integers = torch.full((n_integers + 7,), 19, device=device)
    begin_kernel[(-(-max(n_padded, n_integers) // block), 1)](
        lse, padded, integers, lse.numel(), t, pitch, n_padded, n_integers, BLOCK=block
    )
    right = torch.full((heads, pitch), EMPTY_LSE.value, device=device)
    right[:, :t] = torch.where(lse.isfinite(), lse / math.log(2), EMPTY_LSE.value)
    torch.testing.assert_close(padded[: heads * pitch].view(heads, pitch), right)
    assert torch.all(padded[heads * pitch : n_padded] == EMPTY_LSE.value), "the tile beyond the last"
    assert torch.all(padded[n_padded:] == 17)
    assert torch.all(integers[:n_integers] == 0)
    assert torch.all(integers[n_integers:] == 19)
