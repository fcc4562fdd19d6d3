"""Dynamic time warping: the cheapest monotone path through a matrix of costs.

    total[i, j] = cost[i, j] + min(total[i-1, j-1], total[i-1, j], total[i, j-1])

The totals on one anti-diagonal depend on the two before it alone, so each is computed at once.
"""

import numpy as np
from numpy.typing import NDArray

__all__ = ["warp"]

_DIAGONAL, _UP, _LEFT = 0, 1, 2


def warp(cost: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The path from the first corner to the last, as the rows and the columns it goes through.

    Args:
        cost: (T, S), both at least 1. Of moves that cost the same the one along a row is taken.

    Example:
        >>> rows, columns = warp(np.array([[0.0, 0.0, 9.0], [9.0, 9.0, 0.0]]))
        >>> rows.tolist(), columns.tolist()
        ([0, 0, 1], [0, 1, 2])
    """
    t, s = cost.shape
    total = np.full((t + 1, s + 1), np.inf, dtype=np.float32)
    moves = np.full((t + 1, s + 1), _LEFT, dtype=np.int8)
    total[0, 0] = 0.0
    for diagonal in range(2, t + s + 1):  # where i + j is constant
        i = np.arange(max(1, diagonal - s), min(t, diagonal - 1) + 1)
        j = diagonal - i
        both, up, left = total[i - 1, j - 1], total[i - 1, j], total[i, j - 1]
        move = np.where(
            (both < up) & (both < left), _DIAGONAL, np.where((up < both) & (up < left), _UP, _LEFT)
        )
        least = np.choose(move, [both, up, left])
        total[i, j] = cost[i - 1, j - 1] + least
        moves[i, j] = move
    return _trace_back(moves)


def _trace_back(moves: NDArray[np.int8]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    i, j = moves.shape[0] - 1, moves.shape[1] - 1
    path = [(i - 1, j - 1)]
    while i > 1 or j > 1:  # along the first row or column there is one way, whatever it costs
        move = _LEFT if i == 1 else _UP if j == 1 else moves[i, j]
        i, j = i - (move != _LEFT), j - (move != _UP)
        path.append((i - 1, j - 1))
    rows, columns = np.array(path[::-1], dtype=np.int64).T
    return rows, columns
