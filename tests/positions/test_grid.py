import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sightline.positions import SinusoidalPositions2d, shift_matrix, sinusoidal, sinusoidal_2d


@pytest.mark.parametrize("d_model", [2, 6, 10, 12])
def test_half_the_row_half_the_column(d_model):
    grid = sinusoidal_2d(5, 7, d_model, base=83.0, dtype=torch.float64)
    line = sinusoidal(7, d_model // 2, base=83.0, dtype=torch.float64)
    assert grid.shape == (5, 7, d_model)
    for row in range(5):
        for column in range(7):
            assert torch.equal(grid[row, column], torch.cat([line[row], line[column]]))


@given(down=st.integers(-4, 4), right=st.integers(-4, 4))
@settings(deadline=None, max_examples=25)
def test_moving_in_the_grid_is_linear(down, right):
    grid = sinusoidal_2d(11, 13, 8, dtype=torch.float64)
    move = torch.block_diag(*(shift_matrix(n, 4, dtype=torch.float64) for n in (down, right)))
    torch.testing.assert_close(move @ grid[5, 6], grid[5 + down, 6 + right])


def test_every_cell_is_its_own():
    cells = sinusoidal_2d(11, 13, 8).flatten(0, 1)
    apart = torch.cdist(cells, cells) + 9 * torch.eye(len(cells))
    assert apart.min() > 1e-3


def test_the_module_adds_the_grid():
    x = torch.randn(2, 5, 37, 6)
    positions = SinusoidalPositions2d(6)
    assert torch.equal(positions(x), x + sinusoidal_2d(5, 37, 6))
    assert positions.state_dict() == {}


def test_flattened_patches():
    x = torch.randn(2, 3, 5, 6)
    positions = SinusoidalPositions2d(6, base=71.0)
    assert torch.equal(positions(x.flatten(1, 2), grid=(3, 5)), positions(x).flatten(1, 2))
    assert not torch.equal(positions(x.flatten(1, 2), grid=(5, 3)), positions(x).flatten(1, 2))


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: sinusoidal_2d(3, 5, 7), "d_model must be even.* got 7; take 8"),
        (lambda: sinusoidal_2d(-1, 5, 8), "height must be at least 0, got -1"),
        (lambda: sinusoidal_2d(3, -5, 8), "width must be at least 0, got -5"),
        (lambda: SinusoidalPositions2d(0), "d_model must be at least 2, got 0"),
        (
            lambda: SinusoidalPositions2d(6)(torch.zeros(5, 6)),
            r"\(..., height, width, E\), got shape \(5, 6\)",
        ),
        (lambda: SinusoidalPositions2d(6)(torch.zeros(1, 3, 5, 4)), r"d_model=6 wide.* width 4"),
        (
            lambda: SinusoidalPositions2d(6)(torch.zeros(1, 16, 6), grid=(3, 5)),
            "3 x 5 has 15 patches, got P=16.*class tokens",
        ),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()
