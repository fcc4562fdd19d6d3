"""What a cell of the grid sees lies around its own patch, not beside it."""

import pytest
import torch

from sightline.models.caption_encoders import PatchEncoder


@pytest.mark.parametrize(
    ("patch", "stem", "n_convs"), [(8, 0, 0), (8, 1, 0), (8, 2, 1), (8, 3, 0), (8, 3, 1), (4, 2, 1)]
)
def test_a_cell_sees_as_far_to_each_side(patch, stem, n_convs):
    side = 13 * patch
    encoder = PatchEncoder(
        image_size=side, patch=patch, stem=stem, n_convs=n_convs,
        d_model=16, n_heads=2, n_layers=0, d_ff=8, dropout=0.0,
    )  # fmt: skip
    for module in encoder.cut.modules():  # a norm over the whole picture would let every cell see it
        if isinstance(module, torch.nn.GroupNorm):
            module.forward = lambda x: x
    image = torch.randn(1, 3, side, side, requires_grad=True)
    row, column = 6, 7
    encoder.cut(image)[0, :, row, column].sum().backward()
    seen = image.grad.abs().sum((0, 1)) > 0
    for line, cell in ((seen.any(1), row), (seen.any(0), column)):
        first, last = line.nonzero().flatten()[[0, -1]].tolist()
        assert cell * patch - first == last - (cell * patch + patch - 1)
