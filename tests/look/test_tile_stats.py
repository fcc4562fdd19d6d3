"""Sums and maxima of a tile of weights against loops."""

from unittest import mock

import pytest
import torch

from sightline.look.inputs import Tile
from sightline.look.tile_stats import Cells, max_with_index, sum_columns
from tests.look.look_oracle import near, randn


@pytest.mark.parametrize("width", [7, 8, 11])
def test_columns_of_one_width_are_sums_of_their_keys(width):
    cells = Cells(1, 5, (0, 3), (2, 2 + 5 * width))
    columns = cells.column_of(torch.arange(*cells.keys))
    for first, last in ((0, 5), (1, 3), (4, 5)):
        for more in (0, 1):  # a tile that ends where a column does, and one that does not
            span = (2 + first * width, 2 + last * width - more)
            by_row = randn(1, 2, 3, span[1] - span[0])
            found = sum_columns(by_row, Tile(slice(0, 1), slice(0, 2), (0, 3), span), cells, columns)
            expected = torch.zeros_like(found)
            for i, x in enumerate(by_row.unbind(-1)):
                expected[..., first + i // width] += x
            near(found, expected)


def test_the_place_of_the_largest_is_the_first_of_them():
    for s in (1, 31, 255, 256, 257, 300, 2047, 2048, 2111):
        x = torch.randint(0, 7, (3, 2, s), generator=torch.Generator().manual_seed(s)).float()
        x[0, 0, -1] = 9.0
        x[1, 0, 0] = 9.0
        for chunk in (None, 5, 32):
            value, at = max_with_index(x, chunk)
            assert torch.equal(value, x.amax(-1))
            assert torch.equal(at, x.argmax(-1))
    chunked = []
    with mock.patch.object(torch, "maximum", side_effect=lambda a, b: chunked.append(1) or torch.max(a, b)):
        max_with_index(torch.rand(2, 300))
        max_with_index(torch.rand(2, 300).requires_grad_())
        max_with_index(torch.rand(2, 288))  # of short rows all at once
    assert chunked == [1]


@pytest.mark.parametrize("shape", [(0, 2, 7, 2048), (1, 2, 0, 2048)])
def test_the_largest_of_no_rows(shape):
    largest, at = max_with_index(torch.empty(shape))
    assert largest.shape == at.shape == shape[:-1]
