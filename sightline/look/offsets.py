"""How far back a head looks: the weight at each distance, summed along the diagonals of the matrix.

    offsets[d] = Σ_t w[t, t - d],  d = 0 ... n - 1

The previous-token head has its weight at d = 1, a local one near 0. Only the band of n diagonals is computed.
"""

from typing import TYPE_CHECKING

from torch import Tensor

from sightline.look.groups import is_integer
from sightline.look.inputs import ScoreInputs, Tile
from sightline.look.kernels.covers import covers
from sightline.look.tile_pass import over_tiles
from sightline.shapes import Float

if TYPE_CHECKING:
    from sightline.look.sight_data import SightData

__all__ = ["offsets"]

_ROWS = 256  # queries at a time: a band of n diagonals is then n + 255 keys wide


def offsets(sight: "SightData", n: int, first: int | None = None) -> Float[Tensor, "... n"]:
    """See :meth:`sightline.Sight.offsets`."""
    from sightline.look.heads import is_aligned  # noqa: PLC0415 (it imports Sight)

    if not is_integer(n) or not 1 <= n <= max(sight.s, 1):
        raise ValueError(
            f"n must be a whole number of distances, at least 1 and at most the number of keys S={sight.s}, "
            f"got {n!r}"
        )
    kept = sight.require_kept("offsets", history=True)
    if first is None and not is_aligned(sight):
        raise ValueError(
            f"T={sight.t} queries and S={sight.s} keys are not the same tokens, so nothing says how far they "
            "are apart; if they are of one sequence, say where the first query stands with first="
        )
    if first is not None and not is_integer(first):
        raise TypeError(
            f"first must be a whole number, where the first query stands among the keys, got {first!r}; "
            "after 100 keys in a cache it is 100"
        )
    position = first or 0
    total = None
    for inputs, lse, first_key, first_query in kept:
        position = first_query if first is None and first_query is not None else position
        part = _sum_distances(inputs, lse, n, position - first_key)
        total = part if total is None else total + part
        position += inputs.shape[2]
    assert total is not None  # noqa: S101
    return sight.restore_lead(total)


def _sum_distances(inputs: ScoreInputs, lse: Tensor, n: int, first: int) -> Float[Tensor, "B H n"]:
    if not covers(inputs, lse):
        return _diagonals(inputs, lse, n, first)
    from sightline.look.kernels.offsets import offsets as offsets_on_gpu  # noqa: PLC0415

    return offsets_on_gpu(inputs, lse, n, first)


def _diagonals(inputs: ScoreInputs, lse: Tensor, n: int, first: int) -> Float[Tensor, "B H n"]:
    """Sum the weights at distances 0 ... n-1; query t stands at ``first + t`` among the keys."""
    b, h, t, s = inputs.shape
    sums = lse.new_zeros(b, h, n)

    def ask(weights: Tensor, _tile: Tile) -> Tensor:
        return _sum_diagonals(weights)

    for top in range(0, t, _ROWS):
        bottom = min(top + _ROWS, t)
        keys = max(0, first + top - n + 1), min(s, first + bottom)
        if keys[0] >= keys[1]:
            continue
        for tile, by_lag in over_tiles(inputs, lse, ask, queries=(top, bottom), keys=keys):
            # by_lag[i] holds what is at distance (first + last query - first key) - i
            furthest = first + tile.rows[1] - 1 - tile.columns[0]
            lags = by_lag.flip(-1)  # from the nearest, which is at `nearest`, to the furthest
            nearest = furthest - lags.size(-1) + 1
            low, high = max(nearest, 0), min(furthest + 1, n)
            if low < high:
                sums[tile.batch, tile.heads, low:high] += lags[..., low - nearest : high - nearest]
    return sums


def _sum_diagonals(weights: Float[Tensor, "b h t s"]) -> Float[Tensor, "b h lags"]:
    """Sums along the diagonals, from the lower left corner to the upper right.

    Every row is written one place further left than the one before, so that diagonals become columns.
    """
    b, h, t, s = weights.shape
    wide = s + t - 1
    skewed = weights.new_zeros(b, h, t * wide)
    lead = (skewed.stride(0), skewed.stride(1))
    rows = skewed.as_strided((b, h, t, s), (*lead, wide - 1 if t > 1 else wide, 1), t - 1)
    rows.copy_(weights)
    return skewed.view(b, h, t, wide).sum(-2)
