"""What reaches the output through several layers: attention rollout, and a flow that needs no matrix.

A layer with a residual path passes on half of what a token holds and half of what it looked at:

    A' = (A + 1) / 2, heads averaged        rollout = A'_L ... A'_2 A'_1            (Abnar & Zuidema, 2020)

The whole product needs every layer's matrix, so it is for sequences whose T x T matrix fits. *One row* of it,
what is in one output token, does not: a row times a matrix is a weighted sum over its tiles, so the row is
carried down layer by layer in O(T) memory, exact. The same holds for Chefer et al.'s relevance:

    R = (1 + C_L) ... (1 + C_1),  C = max(0, A x dA), heads averaged         (Chefer et al., 2021)

The *flow of what was received* keeps only the column sums: mass starts spread over the outputs and is handed
down in proportion to what each token received. It is exact for one layer, an approximation over several.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from sightline.look.groups import is_integer
from sightline.look.relevance import relevance_matrix, weighted_columns
from sightline.look.sight import Sight
from sightline.messages import check_number, format_value
from sightline.shapes import Float

__all__ = ["received_flow", "relevance", "rollout"]


def rollout(
    sights: Iterable[Sight], *, residual: float = 0.5, token: int | None = None
) -> Float[Tensor, "..."]:
    """How much of each input token is in each output token, or in one of them, after all layers.

    Args:
        sights: The self-attention of each layer, first to last; q and k kept (``keep=True``; with
            ``keep="cpu"`` the device holds those of one layer at a time).
        residual: The share that the residual path passes on unmixed.
        token: Only this output token, in O(T) memory at any length.

    Returns:
        (..., T, T), whose rows sum to one: ``rollout[t, s]`` is the share of input s in output t. With
        ``token`` its row, (..., T).

    Example:
        >>> x = torch.randn(1, 2, 5, 8)
        >>> layers = [sl.look(x, x, x), sl.look(x, x, x)]
        >>> rollout(layers).sum(-1).allclose(torch.ones(1, 5))
        True
        >>> rollout(layers, token=3).allclose(rollout(layers)[:, 3])
        True
    """
    sights = _check_lengths(sights, residual)
    if token is not None:
        row = _unit_row(sights, token)
        for sight in reversed(sights):
            looking = _mean_over_heads(sight, sight.is_looking)
            row = row / ((1 - residual) * looking + residual).clamp_min(torch.finfo(row.dtype).tiny)
            row = (1 - residual) * weighted_columns(sight, row, gradients=False) + residual * row
        return row
    mixed: Tensor | None = None
    for sight in sights:
        weights = _mean_heads(sight).map(sight.t)  # a map with a cell for each pair is the matrix
        step = (1 - residual) * weights + residual * torch.eye(
            sight.t, dtype=weights.dtype, device=weights.device
        )
        step = step / step.sum(-1, keepdim=True)
        mixed = step if mixed is None else step @ mixed
    assert mixed is not None  # noqa: S101
    return mixed


def relevance(sights: Iterable[Sight], *, token: int | None = None) -> Float[Tensor, "..."]:
    """How much each input token mattered for the loss, through all layers (Chefer et al., 2021).

    Args:
        sights: The self-attention of each layer, first to last, of ``sl.watch(model, grad=True)`` after
            ``backward``: of the output token's score, as a rule.
        token: Only this output token's row, in O(T) memory at any length.

    Returns:
        (..., T, T), or (..., T) with ``token``. An input counts itself with 1.
    """
    sights = _check_lengths(sights, 0.5)
    if token is not None:
        row = _unit_row(sights, token)
        for sight in reversed(sights):
            row = row + weighted_columns(sight, row, gradients=True)
        return row
    whole: Tensor | None = None
    for sight in sights:
        step = relevance_matrix(sight)
        if whole is None:
            whole = torch.eye(sight.t, dtype=step.dtype, device=step.device).expand_as(step)
        whole = whole + step @ whole
    assert whole is not None  # noqa: S101
    return whole


def received_flow(sights: Iterable[Sight], *, residual: float = 0.5) -> Float[Tensor, "... T"]:
    """How much of the outputs, all together, came from each input token; needs no matrix.

    Args:
        sights: The self-attention of each layer, first to last, with ``received`` measured.
        residual: The share that the residual path passes on unmixed.

    Returns:
        Shares that sum to one.

    Example:
        >>> x = torch.randn(1, 2, 5, 8)
        >>> received_flow([sl.look(x, x, x), sl.look(x, x, x)]).sum(-1).allclose(torch.ones(1))
        True
    """
    flow: Tensor | None = None
    for sight in reversed(_check_lengths(sights, residual)):
        received = _mean_heads(sight).received
        share = received / received.sum(-1, keepdim=True).clamp_min(torch.finfo(received.dtype).tiny)
        if flow is None:
            real = (~_mean_heads(sight).is_padding).to(share.dtype)
            flow = real / real.sum(-1, keepdim=True).clamp(min=1)
        flow = residual * flow + (1 - residual) * flow.sum(-1, keepdim=True) * share
    assert flow is not None  # noqa: S101
    return flow


def _check_lengths(sights: Iterable[Sight], residual: float) -> list[Sight]:
    check_number("residual", residual)
    if not 0 <= residual <= 1:
        raise ValueError(f"residual is a share in [0, 1], got {residual}; 0.5 passes on half unmixed")
    if not isinstance(sights, Iterable):
        raise TypeError(f"sights must be a list, one for each layer, got {format_value(sights)}")
    listed: list[Any] = list(sights)
    if not listed:
        raise ValueError("a flow needs the sight of at least one layer, got none")
    for sight in listed:
        if isinstance(sight, str):
            raise TypeError(
                f"a flow takes one sight of each layer, got the name {sight!r}; give it "
                "[seen[name] for name in seen]"
            )
        if not isinstance(sight, Sight):
            raise TypeError(
                f"a flow takes one sight of each layer, got a {type(sight).__name__}; where a module was "
                "called more than once, choose one with seen.calls(name)[i]"
            )
        sight.require_whole("a flow")
        if (sight.t, sight.s) != (listed[0].t, listed[0].t):
            raise ValueError(
                f"a flow goes through self-attention of one length, got T={sight.t} and S={sight.s} in "
                f"{sight.name or 'a layer'} after T={listed[0].t}; leave out cross-attention"
            )
    return listed


def _unit_row(sights: list[Sight], token: int) -> Float[Tensor, "... T"]:
    """All of it at one output token, for each item of the batch."""
    sight = sights[-1]
    if not is_integer(token) or not -sight.t <= token < sight.t:
        raise ValueError(f"the token must be in 0..{sight.t - 1}, got {token!r}; T is {sight.t} here")
    row = sight.lse.new_zeros(*sight.lead[: sight.n_batch], sight.t)
    row[..., token] = 1.0
    return row


def _mean_over_heads(sight: Sight, x: Tensor) -> Float[Tensor, "... T"]:
    x = x.to(sight.lse.dtype)
    return x.reshape(*sight.lead[: sight.n_batch], -1, sight.t).mean(-2)


def _mean_heads(sight: Sight) -> Sight:
    return sight.mean_heads() if sight.has_heads else sight
