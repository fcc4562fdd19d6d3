"""Figures of all layers that were watched: the heads of each, and arcs where words look at words."""

from collections.abc import Iterator, Mapping, Sequence

import torch
from matplotlib.figure import Figure
from torch import Tensor

from sightline.look.heads import by_layer
from sightline.look.seen import Seen
from sightline.look.sight import Sight
from sightline.shapes import Float
from sightline.show.alignment import arcs, readable
from sightline.show.sights import heads, select_head

__all__ = ["LayerTokens", "layer_heads", "layer_tokens", "seen_figures"]

LayerTokens = tuple[Sequence[str] | None, Sequence[str] | None]  # names of queries, names of keys
_MOST_ARCS = 40  # words beyond which arcs can't be told apart


def seen_figures(
    seen: Seen | Mapping[str, Sight], tokens: Mapping[str, LayerTokens]
) -> Iterator[tuple[Figure, str]]:
    """The heads of each layer, with a caption; before them, arcs where words look at words of the same text.

    Args:
        seen: What :func:`sightline.watch` recorded, q and k kept.
        tokens: For each layer, names of its queries and of its keys.
    """
    for name, sight in by_layer(seen).items():
        queries, keys = layer_tokens(tokens, name, sight)
        if queries and queries == keys and len(queries) <= _MOST_ARCS:
            weights = select_head(sight, None).rows(list(range(sight.t)))  # (T, T)
            if not _is_causal(weights):
                yield arcs(weights, queries), f"{name}: which words look at which, averaged over the heads."
        yield layer_heads(name, sight, tokens), f"{name}: the weights of each head, with its entropy."


def layer_heads(name: str, sight: Sight, tokens: Mapping[str, LayerTokens]) -> Figure:
    """The heads of one layer, with its tokens where they are known."""
    return heads(sight, *layer_tokens(tokens, name, sight))


def layer_tokens(
    tokens: Mapping[str, LayerTokens], name: str, sight: Sight
) -> tuple[list[str] | None, list[str] | None]:
    """The names of a layer's queries and keys; None for a side whose names are unknown or of another length.

    The layer may be one of several calls of a module, as :func:`sightline.look.heads.by_layer` names it.
    """
    queries, keys = tokens.get(name) or tokens.get(name.partition(" call ")[0]) or (None, None)
    return (
        readable(queries) if queries is not None and len(queries) == sight.t else None,
        readable(keys) if keys is not None and len(keys) == sight.s else None,
    )


def _is_causal(weights: Float[Tensor, "T T"]) -> bool:
    return len(weights) > 1 and not bool(torch.triu(weights, 1).any())
