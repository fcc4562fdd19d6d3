import pytest
import torch

from sightline.positions import LearnedPositions


def test_it_adds_a_row_to_each_token():
    positions = LearnedPositions(11, 7)
    x = torch.randn(2, 5, 7)
    seen = positions(x, offset=3)
    for t in range(5):
        assert torch.equal(seen[:, t], x[:, t] + positions.weight[3 + t])


def test_only_the_rows_used_get_gradients():
    positions = LearnedPositions(11, 7)
    positions(torch.zeros(2, 5, 7), offset=3).sum().backward()
    expected = torch.zeros(11, 7)
    expected[3:8] = 2
    assert torch.equal(positions.weight.grad, expected)


def test_it_is_saved_and_starts_small():
    torch.manual_seed(0)
    positions = LearnedPositions(101, 97)
    assert list(positions.state_dict()) == ["weight"]
    assert positions.weight.std().item() == pytest.approx(0.02, rel=0.05)


def test_the_last_position_is_there():
    positions = LearnedPositions(5, 3)
    assert torch.equal(positions(torch.zeros(1, 3), offset=4)[0], positions.weight[4])


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: LearnedPositions(5, 3)(torch.zeros(7, 3)), "max_length=5, got T=7; build"),
        (lambda: LearnedPositions(5, 3)(torch.zeros(2, 3), offset=4), "max_length=5, got T=2 after offset=4"),
        (lambda: LearnedPositions(0, 3), "max_length must be at least 1, got 0"),
        (lambda: LearnedPositions(5, -3), "d_model must be at least 1, got -3"),
        (lambda: LearnedPositions(5, 3)(torch.zeros(2, 4)), "d_model=3 wide.* width 4"),
        (lambda: LearnedPositions(5, 3)(torch.zeros(2, 3), offset=-2), "offset .* got -2"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()
