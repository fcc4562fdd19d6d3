"""Which heads and which keys mattered for a loss, from the gradient of an attention's output, by tiles.

    importance[h] = |Σ_t O[t] · dO[t]|                                 (Michel et al., 2019)
    relevance[t, s] = max(0, w[t, s] · dw[t, s])    dw = dO vᵀ         (Chefer et al., 2021)

dw is a product of the output's gradient with the values, so its tiles are computed beside those of w:
sums over rows and columns take O(T + S) memory.
"""

from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor

from sightline.look.inputs import ScoreInputs, Tile
from sightline.look.kernels.covers import covers
from sightline.look.output_gradient import OutputGradient
from sightline.look.tile_pass import over_tiles
from sightline.shapes import Float

if TYPE_CHECKING:
    from sightline.look.sight_data import SightData

__all__ = ["Relevance", "importance", "relevance", "relevance_matrix", "weighted_columns"]

_WIDEST = 256  # values that a kernel takes


class Relevance(NamedTuple):
    """Sums of the clamped products of weights and gradients.

    Attributes:
        keys: What each key contributed, summed over the queries, (..., S).
        queries: What each query took, summed over the keys, (..., T).
    """

    keys: Float[Tensor, "... S"]
    queries: Float[Tensor, "... T"]


def importance(sight: "SightData") -> Float[Tensor, "..."]:
    """See :attr:`sightline.Sight.importance`."""
    record, gradient = _require_gradient(sight, "importance")
    return (record.output * gradient).sum((-2, -1), dtype=sight.lse.dtype).abs().reshape(sight.lead)


def relevance(sight: "SightData") -> Relevance:
    """See :attr:`sightline.Sight.relevance`."""
    record, gradient = _require_gradient(sight, "relevance")
    ((inputs, lse, *_),) = sight.require_kept("relevance")
    if _has_kernel(inputs, lse, record, gradient):
        from sightline.look.kernels.relevance import relevance as relevance_on_gpu  # noqa: PLC0415

        sums = relevance_on_gpu(inputs, lse, record.v, gradient)
        assert sums.queries is not None  # noqa: S101
        return Relevance(sight.restore_lead(sums.keys), sight.restore_queries(sums.queries))
    keys, queries = (lse.new_zeros(*lse.shape[:2], n) for n in (sight.s, sight.t))

    def ask(weights: Tensor, tile: Tile) -> Tensor:
        products = _relevant(weights, tile, record, gradient)
        queries[tile.row_index] = products.sum(-1)
        return products.sum(-2)

    for tile, part in over_tiles(inputs, lse, ask):
        keys[tile.column_index] += part
    return Relevance(sight.restore_lead(keys), sight.restore_queries(queries))


def relevance_matrix(sight: "SightData") -> Float[Tensor, "... T S"]:
    """The whole matrix, heads averaged: for short sequences, and the oracle of the vector."""
    record, gradient = _require_gradient(sight, "relevance")
    ((inputs, lse, *_),) = sight.require_kept("relevance")
    whole = lse.new_zeros(lse.size(0), sight.t, sight.s)

    def ask(weights: Tensor, tile: Tile) -> Tensor:
        return _relevant(weights, tile, record, gradient).sum(1)

    for tile, part in over_tiles(inputs, lse, ask):
        whole[tile.batch, slice(*tile.rows), slice(*tile.columns)] += part
    return (whole / lse.size(1)).reshape(*sight.lead[: sight.n_batch], sight.t, sight.s)


def weighted_columns(
    sight: "SightData", rows: Float[Tensor, "... T"], *, gradients: bool
) -> Float[Tensor, "... S"]:
    """Σ_t rows[t] · M[t, s], heads averaged, of the weights M or of their relevance: a row times the matrix.

    Args:
        sight: One call, q and k kept.
        rows: One number per query and item.
        gradients: Whether M is the relevance, else the weights.
    """
    record, gradient = _require_gradient(sight, "relevance") if gradients else (None, None)
    kept = sight.require_kept("a flow")
    factors = rows.reshape(-1, sight.t).to(kept[0].lse.dtype)
    total = kept[0].lse.new_zeros(factors.size(0), sight.s)
    first = 0
    for inputs, lse, first_key, _ in kept:  # a step of a loop has some of the queries and keys
        t, s = inputs.shape[2:]
        part = _weighted(inputs, lse, factors[:, first : first + t].contiguous(), record, gradient)
        total[:, first_key : first_key + s] += part
        first += t
    return total.reshape(*sight.lead[: sight.n_batch], sight.s)


def _weighted(
    inputs: ScoreInputs, lse: Tensor, factors: Tensor, record: OutputGradient | None, gradient: Tensor | None
) -> Float[Tensor, "B S"]:
    """A row times the matrix of one call."""
    sums = _weighted_on_gpu(inputs, lse, factors, record, gradient)
    if sums is not None:
        return sums.mean(1)
    rows = factors[:, None, None]
    total = lse.new_zeros(lse.size(0), inputs.shape[3])

    def ask(weights: Tensor, tile: Tile) -> Tensor:
        if record is not None and gradient is not None:
            weights = _relevant(weights, tile, record, gradient)
        return (rows[tile.batch, :, :, slice(*tile.rows)] @ weights).sum((1, 2))

    for tile, part in over_tiles(inputs, lse, ask):
        total[tile.batch, slice(*tile.columns)] += part
    return total / lse.size(1)


def _weighted_on_gpu(
    inputs: ScoreInputs, lse: Tensor, factors: Tensor, record: OutputGradient | None, gradient: Tensor | None
) -> Float[Tensor, "B H S"] | None:
    """The same of each head by a kernel; None where none covers it."""
    if record is None or gradient is None:
        if not covers(inputs, lse):
            return None
        from sightline.look.kernels.received_from import received_from  # noqa: PLC0415

        return received_from(inputs, lse, (0, inputs.shape[2]), factors=factors)
    if not _has_kernel(inputs, lse, record, gradient):
        return None
    from sightline.look.kernels.relevance import relevance as relevance_on_gpu  # noqa: PLC0415

    return relevance_on_gpu(inputs, lse, record.v, gradient, factors=factors).keys


def _has_kernel(inputs: ScoreInputs, lse: Tensor, record: OutputGradient, gradient: Tensor) -> bool:
    """Whether the kernel takes these values and this gradient beside q and k."""
    v, dtype = record.v, inputs.q.dtype
    return v.dtype == gradient.dtype == dtype and 0 < v.size(3) <= _WIDEST and covers(inputs, lse)


def _relevant(
    weights: Tensor, tile: Tile, record: OutputGradient, gradient: Tensor
) -> Float[Tensor, "b h t s"]:
    group = record.output.size(1) // record.v.size(1)
    kv_heads = slice(tile.heads.start // group, -(-tile.heads.stop // group))
    v = record.v[tile.batch, kv_heads, slice(*tile.columns)].to(weights.dtype)
    g = gradient[tile.row_index].to(weights.dtype)
    b, h, t, _ = g.shape
    slopes = (g.reshape(b, v.size(1), -1, g.size(-1)) @ v.mT).view(b, h, t, v.size(2))
    return (weights * slopes).clamp_(min=0.0)


def _require_gradient(sight: "SightData", what: str) -> tuple[OutputGradient, Tensor]:
    record = sight.backward
    where = sight.name or "this sight"
    if record is None:
        raise ValueError(
            f"{where} has no {what}; watch with sl.watch(model, grad=True), gradients on, and call "
            "loss.backward()"
        )
    if sight.averaged:
        raise ValueError(f"{what} belongs to single heads; ask the sight before mean_heads()")
    gradient = record.gradient
    if gradient is None:
        raise ValueError(
            f"{where} has no {what} yet: no backward pass has reached its output; call loss.backward() on a "
            "loss that depends on it"
        )
    return record, gradient
