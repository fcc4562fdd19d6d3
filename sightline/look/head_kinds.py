"""What heads are called: the kinds that papers have named, each by the share of weight it accounts for.

==================  ===============================================================  ==========
kind                share of the weight                                              at least
==================  ===============================================================  ==========
uniform             (its entropy, as a share of that of a head that looks at all     0.95
                    it may alike, where that is known)
retrieval           of the peaks that fall inside a span of keys that you name       0.5
induction           on the token after the last occurrence, t - period + 1, in a     0.3
                    random sequence that repeats with a period that you name
previous token      on t - 1                                                         0.5
sink                on the first key                                                 0.5
local               on the n nearest tokens up to t, n = T / 16, at least 3          0.8
vertical-slash      on the n columns and the n diagonals that have most of it        0.8, of
                                                                                     each 0.2
==================  ===============================================================  ==========

A head gets the first name that fits. Names are hypotheses: test them with ``sl.edit``.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sightline.look.groups import is_integer
from sightline.look.sight import Span
from sightline.shapes import Float

if TYPE_CHECKING:
    from sightline.look.sight import Sight

__all__ = ["head_shares", "kind_of", "received_by_first"]

_LEAST = {
    "retrieval": 0.5,
    "induction": 0.3,
    "previous token": 0.5,
    "sink": 0.5,
    "local": 0.8,
    "vertical-slash": 0.8,
}
_LEAST_OF_EACH = 0.2
_LEAST_EVENNESS = 0.95  # of a uniform head: among few keys it would pass for a sink, or for local


def head_shares(
    sight: "Sight", *, is_cross: bool, period: int | None = None, span: Span | None = None
) -> dict[str, Float[Tensor, " heads"]]:
    """The share of each head's weight that each kind accounts for, averaged over the batch.

    Args:
        sight: Single heads; positions need q and k kept.
        is_cross: Whether queries and keys are of different sequences: distances mean nothing then.
        period: After how many tokens a random sequence repeats.
        span: The keys that hold what was to be found.
    """
    shares: dict[str, Tensor] = {}
    if span is not None:
        first, last = sight.check_span("keys", span)
        inside = (sight.peak_at >= first) & (sight.peak_at < last)
        shares["retrieval"] = _mean(inside, sight)
    if sight.kept and not is_cross and sight.s > 1:
        by_distance = sight.offsets(sight.s).detach()
        n = min(max(3, sight.s // 16), sight.s)
        if period is not None:
            shares["induction"] = _induction(sight, by_distance, period)
        shares["previous token"] = _mean(by_distance[..., 1:2], sight)
        shares["local"] = _mean(by_distance[..., :n], sight)
        few = max(1, sight.s // 16)
        vertical, slash = (
            _mean(x.topk(few, dim=-1).values, sight) for x in (sight.received.detach(), by_distance)
        )
        enough = torch.minimum(vertical, slash) >= _LEAST_OF_EACH
        shares["vertical-slash"] = torch.where(enough, (vertical + slash).clamp(max=1.0), 0.0)
    shares["sink"] = _mean(received_by_first(sight).detach().unsqueeze(-1), sight)
    return shares


def received_by_first(sight: "Sight") -> Float[Tensor, "..."]:
    """Return what the first key of each item received, of self-attention the first that is no padding."""
    if sight.t != sight.s or not sight.s:
        return sight.received[..., :1].sum(-1)
    first = (~sight.is_padding).int().argmax(-1, keepdim=True)
    return sight.received.gather(-1, first).squeeze(-1)


def kind_of(shares: Mapping[str, float], evenness: float | None = None) -> str:
    """The first name that fits.

    Example:
        >>> kind_of({"previous token": 0.9, "local": 0.95}), kind_of({"sink": 0.1})
        ('previous token', '')
        >>> kind_of({"sink": 0.6, "local": 1.0}, evenness=1.0)     # three tokens, each looks at all before it
        'uniform'
    """
    if evenness is not None and evenness >= _LEAST_EVENNESS:
        return "uniform"
    return next((kind for kind, least in _LEAST.items() if shares.get(kind, 0.0) >= least), "")


def _induction(sight: "Sight", by_distance: Tensor, period: int) -> Float[Tensor, " heads"]:
    """The weight on what came after the last occurrence, of the queries that have one."""
    if not is_integer(period) or not 2 <= period <= sight.s:
        raise ValueError(
            f"period must be a whole number of tokens, at least 2 and at most S={sight.s}, got {period!r}; "
            "repeat the sequence at least once"
        )
    back = period - 1
    real = ~sight.is_padding
    count = (real[..., back:] & real[..., : sight.t - back]).sum(-1)
    heads = sight.lead[-1] if sight.has_heads else 1
    sums, counts = (x.double().reshape(-1, heads).sum(0) for x in (by_distance[..., back], count))
    return sums / counts.clamp(min=1)


def _mean(x: Tensor, sight: "Sight") -> Float[Tensor, " heads"]:
    """Sums over queries as a share of those that look, over the whole batch."""
    heads = sight.lead[-1] if sight.has_heads else 1
    sums, count = (a.double().sum(-1).reshape(-1, heads).sum(0) for a in (x, sight.is_looking))
    return sums / count.clamp(min=1)
