"""One call of attention, changed: heads ablated, pairs forbidden, scores tempered, on the same fused kernel.

What happens before the softmax goes into q and the mask, what happens after it into the heads' output:

    forbid        mask &= not (query, key)           ablate "zero"    output = 0
    temperature   q, bias /= temperature             ablate "mean"    output = its mean over batch and queries
    ablate "uniform"    q, bias = 0                  scale            output *= scale, as the weights would be
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from sightline.attention.attend import attention
from sightline.attention.masks import Mask
from sightline.attention.scores import named
from sightline.look.groups import Keys, is_integer, key_index
from sightline.shapes import Bool, Float, did_you_mean, leading
from sightline.watch.readers.calls import Call

__all__ = ["Ablation", "Change", "edited_attention"]


Ablation = Literal["zero", "mean", "uniform"]
Pair = tuple[Keys | None, Keys | None]
_ROWS = 1024  # queries at a time, where masks are compared


@dataclass(frozen=True, kw_only=True, eq=False)
class Change:
    """What to change; see :func:`sightline.edit`."""

    heads: tuple[int, ...] | None = None
    ablate: Ablation | None = None
    forbid: tuple[Pair, ...] = ()
    temperature: float | None = None
    scale: float | None = None

    def __post_init__(self) -> None:
        if self.ablate is not None and self.ablate not in get_args(Ablation):
            raise ValueError(
                f"unknown ablate {self.ablate!r}, {did_you_mean(str(self.ablate), get_args(Ablation))}"
            )
        for name, low in (("temperature", 0.0), ("scale", -math.inf)):
            x = getattr(self, name)
            if x is not None and (not isinstance(x, Real) or not low < float(x) < math.inf):
                rule = "a finite number" if name == "scale" else "a finite number above 0"
                raise ValueError(f"{name} must be {rule}, got {x!r}")
        if (self.ablate, self.forbid, self.temperature, self.scale) == (None, (), None, None):
            raise ValueError(
                "an edit needs something to change, got nothing; give ablate='zero', "
                "forbid=[(queries, keys)], temperature= or scale="
            )


class Edited(NamedTuple):
    """What came out of a changed call.

    Attributes:
        output: The mixed values.
        n_emptied: How many queries have nothing left to look at.
        is_own_mean: Whether a mean was taken over one output, which is that output.
    """

    output: Tensor
    n_emptied: int
    is_own_mean: bool


def edited_attention(change: Change, call: Call, name: str) -> Edited:
    """Attend with the change made.

    Args:
        change: What to change.
        call: What the model asked for.
        name: The module that asked, for sentences.
    """
    q, k, v = call.q, call.k, call.v
    lead, t, s = leading(q, k, v), q.size(-2), k.size(-2)
    call = call._replace(mask=call.mask.fitted(lead, t, s))
    chosen = _chosen_heads(change.heads, lead, name, q.device)  # (H, 1, 1), or one for all
    if change.temperature is not None:
        call = _temper(call, chosen, change.temperature, name)
    if change.ablate == "uniform":
        call = _flatten(call, chosen, name)
    n_emptied = 0
    if change.forbid:
        call, n_emptied = _forbid(call, change.forbid, chosen, lead)
    output = attention(
        call.q,
        call.k,
        call.v,
        call.mask.unfitted(),
        score=call.score,
        scale=call.scale,
        dropout_p=call.dropout_p,
    )
    if change.ablate == "zero":
        output = output.masked_fill(chosen, 0.0)
    is_own_mean = False
    if change.ablate == "mean":
        over = [d for d in range(output.dim() - 1) if d != output.dim() - 3 or len(lead) < 2]
        is_own_mean = all(output.size(d) == 1 for d in over)
        output = torch.where(chosen, output.mean(over, keepdim=True), output)
    if change.scale is not None:
        output = torch.where(chosen, output * change.scale, output)
    return Edited(output, n_emptied, is_own_mean)


def _chosen_heads(
    heads: tuple[int, ...] | None, lead: tuple[int, ...], name: str, device: torch.device
) -> Bool[Tensor, "... 1 1"]:
    if heads is None:
        return torch.ones((1,) * (3 if lead else 2), dtype=torch.bool, device=device)
    where = name or "the model itself"
    if len(lead) < 2:
        raise ValueError(
            f"{where} attends without a dimension of heads, its leading dimensions are {lead}; got "
            f"heads={list(heads)}, leave heads= out"
        )
    wrong = [head for head in heads if not -lead[-1] <= head < lead[-1]]
    if wrong:
        raise ValueError(
            f"heads must be in 0..{lead[-1] - 1}, got {wrong[0]}; {where} has {lead[-1]} heads, layers= "
            "chooses others"
        )
    chosen = torch.zeros(lead[-1], 1, 1, dtype=torch.bool, device=device)
    chosen[list(heads)] = True
    return chosen


def _temper(call: Call, chosen: Bool[Tensor, "... 1 1"], temperature: float, name: str) -> Call:
    """Divide the scores, biases included, of the chosen heads."""
    added = tuple(torch.where(chosen, x / temperature, x) for x in call.mask.added)
    call = call._replace(mask=replace(call.mask, added=added))
    if chosen.numel() > 1:
        _check_dot(call, "a temperature", name)
        return call._replace(q=torch.where(chosen, call.q / temperature, call.q))
    scale = call.scale
    if scale is None:
        scale = call.q.size(-1) ** -0.5 if call.score is None else 1.0
    return call._replace(scale=scale / temperature)


def _flatten(call: Call, chosen: Bool[Tensor, "... 1 1"], name: str) -> Call:
    """Let the chosen heads look at all that they may alike: no score, and of a bias only what forbids."""
    added = tuple(torch.where(chosen & (x > _huge(x)), 0.0, x) for x in call.mask.added)
    call = call._replace(mask=replace(call.mask, added=added))
    if chosen.numel() == 1 and not _is_dot(call):
        q, k = (x.new_zeros(*x.shape[:-1], 1) for x in (call.q, call.k))
        return call._replace(q=q, k=k, score=None, scale=1.0)
    _check_dot(call, "uniform weights", name)
    return call._replace(q=call.q.masked_fill(chosen, 0.0))


def _forbid(
    call: Call, pairs: Sequence[Pair], chosen: Bool[Tensor, "... 1 1"], lead: tuple[int, ...]
) -> tuple[Call, int]:
    """Take pairs of queries and keys out of the mask; also how many queries have nothing left."""
    t, s = call.q.size(-2), call.k.size(-2)
    everyone = slice(None)
    rows = [key_index(everyone if q is None else q, t, "forbid", "queries") for q, _ in pairs]
    for_all = all(len(set(index)) == t for index in rows)
    allowed = torch.ones(1 if for_all else t, s, dtype=torch.bool)
    for index, (_, keys) in zip(rows, pairs, strict=True):
        columns = key_index(everyone if keys is None else keys, s, "forbid", "keys")
        allowed[[0] if for_all else index] &= ~torch.zeros(s, dtype=torch.bool).index_fill_(
            0, torch.tensor(columns, dtype=torch.long), True
        )
    allowed = allowed.to(call.q.device) | ~chosen
    allowed = allowed.reshape((1,) * (len(lead) - 1) + tuple(allowed.shape))
    changed = call.mask & Mask(allowed=(allowed,))
    emptied = _emptied(call.mask, changed, sorted(set().union(*rows)), lead, (t, s), call.q.device)
    if emptied is None:
        return call._replace(mask=changed), 0
    changed &= Mask(allowed=(~emptied,))  # what forbids by a huge negative would be all that is left
    return call._replace(mask=changed), int(emptied.sum())


def _emptied(
    before: Mask,
    after: Mask,
    rows: list[int],
    lead: tuple[int, ...],
    size: tuple[int, int],
    device: torch.device,
) -> Bool[Tensor, "... T 1"] | None:
    """Which queries could look at something and can't any more; None if there are none."""
    t, s = size
    emptied = torch.zeros(*lead, t, 1, dtype=torch.bool, device=device)
    for top in range(rows[0] if rows else 0, rows[-1] + 1 if rows else 0, _ROWS):
        span = (top, min(top + _ROWS, rows[-1] + 1))
        could, can = (_looks(mask.block(span, (0, s), t, s, device=device)) for mask in (before, after))
        emptied[..., slice(*span), :] = could & ~can
    return emptied if bool(emptied.any()) else None


def _looks(block: Tensor) -> Bool[Tensor, "... t 1"]:
    allowed = block if block.dtype == torch.bool else block > _huge(block)
    return allowed.any(-1, keepdim=True)


def _huge(x: Float[Tensor, "..."]) -> float:
    """A bias below this stands for -inf."""
    return torch.finfo(x.dtype).min / 2


def _is_dot(call: Call) -> bool:
    return call.score is None or named(call.score).as_dot(call.q, call.k) is not None


def _check_dot(call: Call, what: str, name: str) -> None:
    if not _is_dot(call):
        raise ValueError(
            f"{what} of single heads needs scores that are dot products, got {call.score!r} in "
            f"{name or 'the model itself'}; leave heads= out to change all of them"
        )


def read_heads(heads: Any) -> tuple[int, ...] | None:
    """Read which heads an edit is for."""
    if heads is None:
        return None
    is_one = not isinstance(heads, Iterable) or isinstance(heads, str) or getattr(heads, "ndim", 1) == 0
    listed = [heads] if is_one else list(heads)
    strange = [head for head in listed if not is_integer(head)]
    if strange:
        raise TypeError(f"heads must be whole numbers, got {strange[0]!r}; None is all of them")
    if not listed:
        raise ValueError(f"an edit needs at least one head, got heads={heads!r}; None is all of them")
    return tuple(int(head) for head in listed)


def read_pairs(pairs: Any) -> tuple[Pair, ...]:
    """Read which pairs an edit forbids."""
    if pairs is None:
        return ()
    listed = list(pairs) if isinstance(pairs, list | tuple) else [pairs]
    for pair in listed:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise TypeError(
                f"forbid takes pairs (queries, keys), such as [([-1], slice(0, 5))], got {pair!r}; None "
                "stands for all of them"
            )
    return tuple((queries, keys) for queries, keys in listed)
