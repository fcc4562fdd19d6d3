import pytest
import torch

from sightline.positions import RelativeBias2d

ROWS, COLUMNS, HEADS = 3, 5, 7


def by_hand(table):
    """The bias of every pair of cells, one after another."""
    cells = [(r, c) for r in range(ROWS) for c in range(COLUMNS)]
    return torch.stack(
        [
            torch.stack([table[:, ky - qy + ROWS - 1, kx - qx + COLUMNS - 1] for ky, kx in cells], -1)
            for qy, qx in cells
        ],
        1,
    )


def test_a_pair_has_the_bias_of_its_distance():
    bias = RelativeBias2d(HEADS, (ROWS, COLUMNS))
    torch.nn.init.normal_(bias.table)
    torch.testing.assert_close(bias(), by_hand(bias.table), rtol=0, atol=0)


def test_each_head_begins_at_a_neighbour_of_its_own():
    table = RelativeBias2d(8, (ROWS, COLUMNS)).table.detach()
    nearest = [divmod(int(head.argmax()), 2 * COLUMNS - 1) for head in table.flatten(1)]
    offsets = {(y - ROWS + 1, x - COLUMNS + 1) for y, x in nearest}
    assert offsets == {(y, x) for y in (-1, 0, 1) for x in (-1, 0, 1)} - {(0, 0)}
    assert table.max() == 0
    assert table.min() == -8  # far, and still to be reached by learning


def test_the_table_learns():
    bias = RelativeBias2d(HEADS, (ROWS, COLUMNS))
    bias().sum().backward()
    assert bias.table.grad[0, ROWS - 1, COLUMNS - 1] == ROWS * COLUMNS  # every cell is at its own place once
    assert bias.table.grad[0, 0, 0] == 1  # one pair is as far apart as can be
    assert list(bias.state_dict()) == ["table"]


@pytest.mark.bad_input
def test_what_is_refused():
    with pytest.raises(ValueError, match=r"n_heads.* 0"):
        RelativeBias2d(0, (2, 3))
    with pytest.raises(ValueError, match=r"grid.* 0"):
        RelativeBias2d(2, (2, 0))
