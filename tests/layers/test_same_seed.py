"""Training with dropout: from the same seed the drop-ins drop what torch's layers drop."""

import warnings

import pytest
import torch

import sightline as sl


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("norm_first", [False, True])
def test_the_same_seed_trains_the_same(batch_first: bool, norm_first: bool) -> None:
    results = []
    for lib in (torch.nn, sl.nn):
        torch.manual_seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch tells why it will not nest
            model = lib.Transformer(24, 3, 2, 2, 11, batch_first=batch_first, norm_first=norm_first)
        drawn = torch.Generator().manual_seed(1)
        src, tgt = torch.randn(5, 5, 24, generator=drawn), torch.randn(5, 5, 24, generator=drawn)
        torch.manual_seed(2)
        output = model(src, tgt, tgt_mask=torch.nn.Transformer.generate_square_subsequent_mask(5))
        output.square().sum().backward()
        results.append([output.detach(), *(p.grad for p in model.parameters())])
    for theirs, ours in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs)
