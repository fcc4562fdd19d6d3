"""Heads in numbers: how sharp each one is, how far it looks, and how much it leaves on the first token.

    entropy = -Σ_s w log w        distance = Σ_s w |t - s|        share of key j = Σ_t w[t, j] / T

Entropy, peak and share are read off a sight. The distance is one more pass over tiles of weights, from the
kept q and k, in O(T + S) memory. It is about positions in one sequence, so cross-attention has none.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sightline.look.head_kinds import head_shares, kind_of, received_by_first
from sightline.look.head_rows import Head, HeadTable
from sightline.look.measures_more import Distance
from sightline.look.module_names import is_cross_name
from sightline.look.sight import Sight, Span
from sightline.look.uniform import even_attention
from sightline.messages import check_integer, format_value
from sightline.shapes import Float

if TYPE_CHECKING:
    from sightline.look.recording import Recording

__all__ = ["Head", "HeadTable", "by_layer", "distance", "head_table", "mean_per_head", "share", "sharpest"]


def head_table(
    seen: "Recording | Mapping[str, Sight]", *, period: int | None = None, span: Span | None = None
) -> HeadTable:
    """Describe and name every head that was seen, layer by layer.

    Args:
        seen: What :func:`sightline.watch` gave, or sights by name. ``watch(model, keep=True)`` makes the
            distances known, and the names that depend on them.
        period: After how many tokens the input, a random sequence, repeats: names induction heads.
        span: The keys ``(first, past_the_last)`` that hold what was to be found: names retrieval heads.

    Example:
        >>> model = nn.TransformerEncoderLayer(8, 2, batch_first=True)
        >>> with sl.watch(model, keep=True) as seen:
        ...     y = model(torch.randn(1, 5, 8))
        >>> [(row.layer, row.head) for row in head_table(seen)]
        [('self_attn', 0), ('self_attn', 1)]
    """
    if period is not None:
        check_integer("period", period, at_least=1)
    table = HeadTable()
    for layer, sight in by_layer(seen).items():
        columns = {
            "entropy": mean_per_head(sum_queries(sight.entropy, sight), sight),
            "first": mean_per_head(received_by_first(sight), sight),
            "peak": mean_per_head(sum_queries(sight.peak, sight), sight),
        }
        crosses = is_cross(layer, sight)
        if sight.kept and not crosses:
            columns["distance"] = mean_per_head(sum_queries(distance(sight), sight), sight)
        columns |= _evenness(sight)
        shares = {} if sight.averaged else head_shares(sight, is_cross=crosses, period=period, span=span)
        rows = zip(*(x.tolist() for x in columns.values()), strict=True)
        names = sight.heads or (0,)  # a tensor-parallel rank has some of the model's
        for head, numbers in enumerate(rows):
            known = {"distance": None, "evenness": None} | dict(zip(columns, numbers, strict=True))
            own = {kind: float(x[head]) for kind, x in shares.items()}
            kind = kind_of(own, known["evenness"])
            table.append(Head(layer=layer, head=names[head], **known, kind=kind, shares=own))
    return table


def sharpest(table: Sequence[Head], n: int = 3) -> list[Head]:
    """The n sharpest heads, sharpest first: by their entropy, as a share of an even head's where it is known.

    A head that may look at few keys, because of causality, a window or padding, is not sharp for that; heads
    whose weights are NaN are left out.
    """
    check_integer("n", n, at_least=0)
    table = [head for head in table if not math.isnan(head.entropy)]
    if all(head.evenness is not None for head in table):
        return sorted(table, key=lambda head: (head.evenness, head.entropy))[:n]
    return sorted(table, key=lambda head: head.entropy)[:n]


def _evenness(sight: Sight) -> dict[str, Float[Tensor, " heads"]]:
    """The entropy of each head as a share of an even one's; nothing where that is not known."""
    even = even_attention(sight)
    if even is None:
        return {}
    whole = mean_per_head(even.entropy.masked_fill(~sight.is_looking, 0.0).sum(-1), sight)
    own = mean_per_head(sum_queries(sight.entropy, sight), sight)
    return {"evenness": torch.where((whole > 0) | own.isnan(), own / whole.clamp(min=1e-30), 0.0)}


def by_layer(seen: "Recording | Mapping[str, Sight]", *, follow: bool = True) -> dict[str, Sight]:
    """One sight for each name: the steps of a decoding loop stacked, runs and other calls numbered.

    Calls are steps where the keys are those of a cache that grows, slides or stays; others are layers that
    share a module, or the same model run again. ``follow`` as in :meth:`Recording.runs`.
    """
    if isinstance(seen, Mapping):
        return dict(seen)
    if not hasattr(seen, "runs"):
        raise TypeError(f"seen must be a Recording or a dict of sights by name, got {format_value(seen)}")
    layers: dict[str, Sight] = {}
    for name in seen:
        runs = seen.runs(name, follow=follow)
        if len(runs) == 1:
            layers[name] = runs[0]
        else:
            what = "call" if len(runs) == len(seen.calls(name)) else "run"
            layers |= {f"{name} {what} {i}": run for i, run in enumerate(runs)}
    for sight in layers.values():
        sight.require_whole("a table or a picture of layers")
    return layers


def share(sight: Sight, key: int = 0) -> Float[Tensor, "..."]:
    """The share of all weight that one key received: of the first, the attention sink.

    Example:
        >>> x = torch.zeros(1, 2, 5, 8)
        >>> share(sl.look(x, x, x))
        tensor([[0.2000, 0.2000]])
    """
    sight.require_whole("the share of a key")
    if not -sight.s <= key < sight.s:
        raise ValueError(f"the key must be in 0..{sight.s - 1}, got {key}; S is {sight.s} here")
    return sight.received[..., key] / sight.is_looking.sum(-1).clamp(min=1)


def distance(sight: Sight, first: int | None = None) -> Float[Tensor, "... T"]:
    """How far away each query looks, in tokens: the mean of |t - s| under its weights.

    Args:
        sight: Of self-attention, q and k kept. Under a causal mask it is how far a query looks back.
        first: Where the first query stands among the keys. Default: each query stands where its own key
            does, which holds for T = S and for stacked steps of a decoding loop; a single step, or
            steps without their beginning, need to be told.

    Example:
        >>> x = torch.zeros(1, 1, 3, 8)                             # each looks at all it may, alike
        >>> distance(sl.look(x, x, x, sl.masks.causal()))
        tensor([[[0.0000, 0.5000, 1.0000]]])
    """
    sight.require_whole("the distance")
    if not sight.kept:
        raise ValueError("the distance needs q and k, which were not kept; keep them with keep=True")
    if first is None and not sight.is_aligned:
        raise ValueError(
            f"T={sight.t} queries and S={sight.s} keys are not the same tokens, so nothing says how far they "
            "are apart; if they are of one sequence, say where the first query stands with first="
        )
    found: Tensor = sight.ask(Distance(first))
    return found.detach()


def is_cross(name: str, sight: Sight) -> bool:
    """Whether a layer looks from one sequence into another, as its name or its lengths tell."""
    return is_cross_name(name) or not sight.is_aligned


def sum_queries(x: Float[Tensor, "... T"], sight: Sight) -> Float[Tensor, "..."]:
    """The sum of a statistic over the queries, without those that are padding."""
    return x.masked_fill(sight.is_padding, 0.0).sum(-1)


def mean_per_head(sums: Float[Tensor, "..."], sight: Sight) -> Float[Tensor, " heads"]:
    """Sums over the queries as a mean over those of the whole batch that look: one number a head."""
    heads = sight.lead[-1] if sight.has_heads else 1
    count = sight.is_looking.sum(-1)
    sums, count = (x.detach().double().reshape(-1, heads).sum(0) for x in (sums, count))
    return sums / count.clamp(min=1)
