"""What reaches the output through several layers: attention rollout, and a flow that needs no matrix.

A layer with a residual path passes on half of what a token holds and half of what it looked at:

    A' = (A + 1) / 2, heads averaged        rollout = A'_L ... A'_2 A'_1            (Abnar & Zuidema, 2020)

Rollout needs rows of every layer's matrix, so it is for sequences whose T x T matrix fits. The *flow of
what was received* keeps only the column sums: mass starts spread over the outputs and is handed down in
proportion to what each token received. It is exact for what reaches a token in one step, an approximation
over several, and costs O(T) memory at any length.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from sightline.look.sight import Sight
from sightline.shapes import Float

__all__ = ["received_flow", "rollout"]


def rollout(sights: Sequence[Sight], *, residual: float = 0.5) -> Float[Tensor, "... T T"]:
    """How much of each input token is in each output token, after all layers.

    Args:
        sights: The self-attention of each layer, first to last; q and k kept (``keep=True``).
        residual: The share that the residual path passes on unmixed.

    Returns:
        Rows sum to one: ``rollout[t, s]`` is the share of input s in output t.

    Example:
        >>> x = torch.randn(1, 2, 5, 8)
        >>> layers = [sl.look(x, x, x), sl.look(x, x, x)]
        >>> rollout(layers).sum(-1).allclose(torch.ones(1, 5))
        True
    """
    mixed: Tensor | None = None
    for sight in _check_lengths(sights, residual):
        weights = _mean_heads(sight).map(sight.t)  # a map with a cell for each pair is the matrix
        step = (1 - residual) * weights + residual * torch.eye(
            sight.t, dtype=weights.dtype, device=weights.device
        )
        step = step / step.sum(-1, keepdim=True)
        mixed = step if mixed is None else step @ mixed
    assert mixed is not None  # noqa: S101
    return mixed


def received_flow(sights: Sequence[Sight], *, residual: float = 0.5) -> Float[Tensor, "... T"]:
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
            flow = torch.full_like(share, 1 / sight.t)
        flow = residual * flow + (1 - residual) * flow.sum(-1, keepdim=True) * share
    assert flow is not None  # noqa: S101
    return flow


def _check_lengths(sights: Sequence[Sight], residual: float) -> list[Sight]:
    if not 0 <= residual <= 1:
        raise ValueError(f"residual is a share in [0, 1], got {residual}; 0.5 passes on half unmixed")
    sights = list(sights)
    if not sights:
        raise ValueError("a flow needs the sight of at least one layer, got none")
    for sight in sights:
        if not isinstance(sight, Sight):
            raise TypeError(
                f"a flow takes one sight of each layer, got a {type(sight).__name__}; where a module was "
                "called more than once, choose one with seen.calls(name)[i]"
            )
        if (sight.t, sight.s) != (sights[0].t, sights[0].t):
            raise ValueError(
                f"a flow goes through self-attention of one length, got T={sight.t} and S={sight.s} in "
                f"{sight.name or 'a layer'} after T={sights[0].t}; leave out cross-attention"
            )
    return sights


def _mean_heads(sight: Sight) -> Sight:
    return sight.mean_heads() if sight.has_heads else sight
