"""How far the weights of one attention are from those of another, query by query, without either matrix.

kl = Σ p log(p / q)      cross_entropy = -Σ p log q      js = (KL(p ‖ m) + KL(q ‖ m)) / 2, m = (p + q) / 2
tv = Σ |p - q| / 2

Each is a sum over the keys where p has weight; js and tv are that of p and q and that of q and p.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from sightline.look.engine import run
from sightline.look.measure import Measure, Tensors, nan_where
from sightline.look.sight import Sight
from sightline.look.source import Block, Local, Out
from sightline.look.weights import Scratch, TileWeights, WeightMaker
from sightline.messages import check_choice, format_value
from sightline.shapes import Float

__all__ = ["Divergence", "divergence"]

Kind = Literal["kl", "js", "tv", "cross_entropy"]

_LOG2_ZERO = -1e4  # where the logarithms of a tile are cut off
_LOG_ZERO = -6900.0  # logarithms below this, about -1e4 log 2, are of weights that are zero


def divergence(
    a: Sight, b: Sight, kind: Kind = "kl", *, heads: Literal["mean"] | None = "mean"
) -> Float[Tensor, "... T"]:
    """Measure how far each query's weights in ``a`` are from those in ``b``, in O(T + S) memory.

    Gradients flow into both where the looks carry them. A query that may look at nothing has no weights;
    where neither side has any, the divergence is 0. The share that an attention sink takes is left out.

    Args:
        a, b: Two sights with q and k kept, of as many items, queries and keys. They may differ in heads,
            width, mask and padding.
        kind: ``"kl"`` is KL(a ‖ b) and ``"cross_entropy"`` -Σ a log b; both are infinite where ``a`` has
            weight and ``b`` has none. ``"js"`` is the Jensen-Shannon divergence, at most log 2, and ``"tv"``
            the total variation distance, at most 1. All but ``"tv"`` are in nats.
        heads: ``"mean"`` averages the weights over the heads on both sides first. None compares head by head.

    Returns:
        (B, T), or (B, H, T) with ``heads=None``. NaN for queries that are padding in either.

    Example:
        >>> x = torch.zeros(1, 2, 4, 8)                             # each looks at all alike
        >>> sl.divergence(sl.look(x, x, x, sl.masks.causal()), sl.look(x, x, x))
        tensor([[1.3863, 0.6931, 0.2877, 0.0000]])
    """
    check_choice("kind", kind, get_args(Kind))
    if heads not in ("mean", None):
        raise ValueError(
            f'heads must be "mean" or None, which compares head by head, got {format_value(heads)}'
        )
    p, q = _block_of("a", a), _block_of("b", b)
    _check_pair(a, b, p, q, heads)
    mean, symmetric = heads == "mean", kind in ("js", "tv")
    once = symmetric and p.inputs.mask.bands == q.inputs.mask.bands  # no tile leaves out a weight of b
    found = _run(p, q, kind, mean=mean, both_ways=once)
    if symmetric and not once:
        found = found + _run(q, p, kind, mean=mean)
    hidden = [x.is_padding.reshape(*y.inputs.shape[:3]) for x, y in ((a, p), (b, q))]
    if mean:
        found = nan_where(hidden[0].any(1) | hidden[1].any(1), found)
        return found.reshape(*a.lead[: a.n_batch], a.t)
    return a.restore_lead(nan_where(hidden[0] | hidden[1], found))


@dataclass(frozen=True, eq=False)
class Divergence(Measure):
    """Measure how far each query's weights are from those of another block.

    Attributes:
        other: What the other weights are made by.
        kind: As :func:`divergence` takes it.
        mean: Whether heads are averaged first.
        both_ways: Whether a symmetric kind is had at once; else it lacks what only the other has weight on.
    """

    other: WeightMaker
    kind: Kind
    mean: bool
    both_ways: bool = False
    outputs = (Out("divergence", "query"),)

    @property
    def all_heads(self) -> bool:  # type: ignore[override]
        """Return whether heads are averaged, or share their keys as those of the block may not."""
        return self.mean or self.other.inputs.k.size(1) < self.other.inputs.q.size(1)

    @property
    def others(self) -> Sequence[Block]:  # type: ignore[override]
        """Return the other block."""
        return (self.other.block,)

    def of_tile(self, x: TileWeights) -> Tensors:
        """Return the sums over the tile's keys; where heads are averaged, the same for all."""
        log_p = _logs(x, mean=self.mean) - (math.log(x.w.size(1)) if self.mean else 0.0)
        log_q = _other_logs(self.other, x, mean=self.mean)
        found = _terms(self.kind, log_p, log_q)
        return (found + _terms(self.kind, log_q, log_p) if self.both_ways else found,)


def _run(p: Block, q: Block, kind: Kind, *, mean: bool, both_ways: bool = False) -> Float[Tensor, "B ... T"]:
    """Return the sums over the keys that p may look at, (B, H, T), or (B, T) of the mean."""
    maker = WeightMaker(q, grad=q.requires_grad)
    found = run([Divergence(maker, kind, mean, both_ways)], Local(p))["divergence"]
    return found[:, :1].mean(1) if mean else found


def _logs(x: TileWeights, *, mean: bool) -> Float[Tensor, "b h t s"]:
    """Return the logarithms of weights, or of their sums over heads; small weights don't become zero."""
    is_outside = (x.w == 0) & (x.log2_w >= 0)  # of a band
    logs = x.log2_w.masked_fill(is_outside, _LOG2_ZERO).clamp(min=_LOG2_ZERO) * math.log(2)
    return logs.logsumexp(1, keepdim=True) if mean else logs


def _other_logs(other: WeightMaker, x: TileWeights, *, mean: bool) -> Float[Tensor, "b h t s"]:
    """Return the logarithms of the other's weights of a tile; of many heads some at a time are computed."""
    inputs, spans = other.inputs, [x.tile.heads]
    n, scratch = inputs.shape[1], Scratch.of(inputs) if x.writable else None
    if mean:
        group = n // inputs.k.size(1)  # heads that share their keys are computed together
        n_heads = group * max(1, x.w.size(1) // group)
        spans = [slice(i, min(i + n_heads, n)) for i in range(0, n, n_heads)]
    logs = []
    for heads in spans:
        tile = x.tile._replace(heads=heads)
        y = other.differentiable(tile) if scratch is None else other.in_place(tile, scratch)
        logs.append(_logs(y, mean=mean))
    if scratch is not None:
        scratch.give_back()
    return functools.reduce(torch.logaddexp, logs) - (math.log(n) if mean else 0.0)


def _terms(
    kind: Kind, log_p: Float[Tensor, "b h t s"], log_q: Float[Tensor, "b h t s"]
) -> Float[Tensor, "b h t"]:
    """Return the sum over the keys where p has weight."""
    p = log_p.exp()
    if kind == "tv":
        return (p - log_q.exp()).relu().sum(-1) / 2
    if kind == "js":
        return (p * (log_p - torch.logaddexp(log_p, log_q) + math.log(2))).sum(-1) / 2
    terms = p * (log_p - log_q) if kind == "kl" else p * -log_q
    return terms.masked_fill((log_q < _LOG_ZERO) & (log_p >= _LOG_ZERO), torch.inf).sum(-1)


def _block_of(name: str, sight: Sight) -> Block:
    """Return what the weights of a sight are made of, or say why they can't be compared."""
    if not isinstance(sight, Sight):
        raise TypeError(f"{name} must be a sight, what sl.look or sl.watch give, got {format_value(sight)}")
    if sight.averaged:
        raise ValueError(f"{name} has its heads averaged; compare the sight before mean_heads()")
    if sight.shard is not None:
        raise ValueError(f"{name} is spread over processes, {sight.shard}; compare sights of one process")
    kept = sight.require_kept("a divergence")
    if len(kept) > 1:
        raise ValueError(
            f"{name} is stacked of {len(kept)} steps of a decoding loop; compare single steps, or calls with "
            "the whole sequence"
        )
    return kept[0]


def _check_pair(a: Sight, b: Sight, p: Block, q: Block, heads: str | None) -> None:
    """Refuse sights that do not fit together."""
    shapes = [(*x.lead[: x.n_batch], x.t, x.s) for x in (a, b)]
    if shapes[0] != shapes[1]:
        raise ValueError(
            f"a and b must have as many items, queries and keys, (B, T, S), got {shapes[0]} and {shapes[1]}"
        )
    n_heads = [x.inputs.shape[1] for x in (p, q)]
    if heads is None and n_heads[0] != n_heads[1]:
        raise ValueError(
            f"heads=None compares head by head, got {n_heads[0]} heads of a and {n_heads[1]} of b; "
            "leave it out to average them"
        )
    devices = [x.inputs.q.device for x in (p, q)]
    if devices[0] != devices[1]:
        raise ValueError(
            f"a and b must be on one device, got {devices[0]} and {devices[1]}; move one with to()"
        )
