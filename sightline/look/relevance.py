"""Which heads and which keys mattered for a loss, from the gradient of an attention's output, by tiles.

    importance[h] = |Σ_t O[t] · dO[t]|                                 (Michel et al., 2019)
    relevance[t, s] = max(0, w[t, s] · dw[t, s])    dw = dO vᵀ         (Chefer et al., 2021)

dw is a product of the output's gradient with the values, so its tiles are computed beside those of w:
sums over rows and columns take O(T + S) memory.
"""

from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor

from sightline.look import measures_more
from sightline.look.engine import run
from sightline.look.measures_more import RelevanceMatrix, Weighted
from sightline.look.output_gradient import OutputGradient
from sightline.look.source import Local
from sightline.shapes import Float

if TYPE_CHECKING:
    from sightline.look.sight import Sight

__all__ = ["Relevance", "importance", "relevance", "relevance_matrix", "weighted_columns"]


class Relevance(NamedTuple):
    """Sums of the clamped products of weights and gradients.

    Attributes:
        keys: What each key contributed, summed over the queries, (..., S).
        queries: What each query took, summed over the keys, (..., T).
    """

    keys: Float[Tensor, "... S"]
    queries: Float[Tensor, "... T"]


def importance(sight: "Sight") -> Float[Tensor, "..."]:
    """See :attr:`sightline.Sight.importance`."""
    record, gradient = _require_gradient(sight, "importance")
    return (record.output * gradient).sum((-2, -1), dtype=sight.lse.dtype).abs().reshape(sight.lead)


def relevance(sight: "Sight") -> Relevance:
    """See :attr:`sightline.Sight.relevance`."""
    keys, queries = sight.ask(measures_more.Relevance(_require_gradient(sight, "relevance")[0]))
    return Relevance(keys, queries)


def relevance_matrix(sight: "Sight") -> Float[Tensor, "... T S"]:
    """Return the whole matrix, heads averaged: for short sequences, and the oracle of the vector."""
    matrix: Tensor = sight.ask(RelevanceMatrix(_require_gradient(sight, "relevance")[0]))
    return matrix.flatten(sight.n_batch, -3).mean(sight.n_batch)


def weighted_columns(
    sight: "Sight", rows: Float[Tensor, "... T"], *, gradients: bool
) -> Float[Tensor, "... S"]:
    """Σ_t rows[t] · M[t, s], heads averaged, of the weights M or of their relevance: a row times the matrix.

    Args:
        sight: One call, q and k kept.
        rows: One number per query and item.
        gradients: Whether M is the relevance, else the weights.
    """
    record = _require_gradient(sight, "relevance")[0] if gradients else None
    kept = sight.require_kept("a flow", history=False)
    factors = rows.reshape(-1, 1, sight.t, 1).to(kept[0].inputs.dtype)
    found = run([Weighted(factors, record)], Local(*kept))["weighted"]
    return found[..., 0].mean(1).reshape(*sight.lead[: sight.n_batch], sight.s)


def _require_gradient(sight: "Sight", what: str) -> tuple[OutputGradient, Tensor]:
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
