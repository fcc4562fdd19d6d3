"""Alignments from cross-attention: the key that each query stands at, in order.

Heads that follow the source are averaged: each normalised over the queries, smoothed by a median filter along
the keys, and the cheapest monotone path is taken through what they agree on (as Whisper times its words):

    z_h = median((w_h - mean_t w_h) / std_t w_h)        path = argmin over monotone paths of -Σ mean_h z_h
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.look.dtw import warp
from sightline.look.groups import is_integer
from sightline.look.heads import by_layer, is_cross
from sightline.look.recording import Recording
from sightline.look.sight import Sight, Span
from sightline.messages import check_bool, check_choice, did_you_mean, format_value
from sightline.shapes import Bool, Float, Int, is_tensor

__all__ = ["align"]

Method = Literal["dtw", "peak"]
SeenHead = tuple[int | str, int]


def align(
    sight: Sight | Recording,
    heads: Sequence[int] | Sequence[SeenHead] | None = None,
    *,
    queries: Span | None = None,
    keys: Span | None = None,
    method: Method = "dtw",
    normalize: bool = True,
    filter_width: int = 7,
    beams: Int[Tensor, "N steps"] | None = None,
) -> Int[Tensor, "... T"]:
    """The key that each query stands at, by dynamic time warping: it never goes back.

    Args:
        sight: Cross-attention with q and k kept (``keep=True``); or what :func:`sightline.watch` gave, whose
            steps of a decoding loop are put together.
        heads: The heads that follow the source: numbers; of what was watched ``(layer, head)``, the layer a
            number among the cross-attentions or a name. Default: all.
        queries: Only these queries, ``(first, past_the_last)``: leave out a prompt.
        keys: Only these keys: leave out padding. Positions count from the first of them.
        method: ``"dtw"``, or ``"peak"``: each query's largest weight on its own, for streaming.
        normalize: Whether each key's weights are standardised over the queries first (``"dtw"`` only).
        filter_width: How many keys the median filter spans, an odd number; 1 smooths nothing.
        beams: The row of the batch that each step of each sequence was computed in, as beam search tells it
            (Hugging Face's ``beam_indices``); -1 where a sequence has ended.

    Returns:
        Positions of keys, ``(T,)`` for one item, ``(B, T)`` for several; -1 for queries that are padding.

    Example:
        >>> q, k = 9 * torch.eye(3)[None, None], torch.eye(3).repeat_interleave(2, 0)[None, None]
        >>> align(sl.look(q, k, k), filter_width=1)                 # each query stays for two keys
        tensor([0, 2, 4])
    """
    check_choice("method", method, get_args(Method))
    check_bool("normalize", normalize)
    _check_width(filter_width)
    total, padding, n = None, None, 0
    for one in _chosen(sight, heads, follow=beams is None):
        weights = _rows(one, queries, keys)
        if beams is not None:
            weights = _follow(weights, beams, (queries or (0, 0))[0])
        else:
            padding = one.is_padding[..., slice(*one.check_span("queries", queries))].reshape(
                weights.shape[:2]
            )
        if method == "dtw":
            weights = _standardise(weights, padding) if normalize and weights.numel() else weights
        weights = median_filter(weights, filter_width)
        total = weights if total is None else total + weights
        n += 1
    if total is None:
        raise ValueError("an alignment needs at least one head, got none; heads=None takes all of them")
    mean = (total / n).reshape(-1, *total.shape[-2:])
    hidden = torch.zeros(mean.shape[:2], dtype=torch.bool) if padding is None else padding.cpu()
    if method == "peak" or not mean.size(0):
        places = mean.argmax(-1)  # (N, T)
    else:
        places = torch.full(mean.shape[:2], -1)
        for own, x, real in zip(places, mean, ~hidden, strict=True):
            own[real] = _first_keys(x[real.to(x.device)])
    places = places.masked_fill(hidden.to(places.device), -1)
    return places[0] if places.size(0) == 1 else places


def median_filter(x: Float[Tensor, "... S"], width: int) -> Float[Tensor, "... S"]:
    """The median of the ``width`` values around each, the ends mirrored; unchanged where they are too few."""
    reach = width // 2
    if reach == 0 or x.size(-1) <= reach:
        return x
    flat = F.pad(x.reshape(-1, 1, x.size(-1)), (reach, reach), mode="reflect")
    return flat.unfold(-1, width, 1).sort(-1).values[..., reach].reshape(x.shape)


def _first_keys(weights: Float[Tensor, "T S"]) -> Int[Tensor, " T"]:
    """Where the path enters each query's row."""
    rows, columns = warp(-weights.detach().double().cpu().numpy())
    entered = torch.from_numpy(rows).diff(prepend=torch.tensor([-1])) > 0
    return torch.from_numpy(columns)[entered]


def _standardise(
    weights: Float[Tensor, "B T S"], padding: Bool[Tensor, "B T"] | None
) -> Float[Tensor, "B T S"]:
    """Zero mean and unit deviation over the queries; a key that all weigh alike says nothing."""
    if padding is None or not bool(padding.any()):
        mean, std = weights.mean(-2, keepdim=True), weights.std(-2, keepdim=True, unbiased=False)
        return torch.where(std > 0, (weights - mean) / std, 0.0)
    real = ~padding.unsqueeze(-1)
    n = real.sum(-2, keepdim=True).clamp(min=1)
    apart = (weights - (weights * real).sum(-2, keepdim=True) / n) * real
    std = (apart.square().sum(-2, keepdim=True) / n).sqrt()
    return torch.where(std > 0, apart / std, 0.0)


def _rows(sight: Sight, queries: Span | None, keys: Span | None) -> Float[Tensor, "B T S"]:
    (top, bottom), (left, right) = sight.check_span("queries", queries), sight.check_span("keys", keys)
    size = (bottom - top, right - left)
    return sight.map(size, queries=(top, bottom), keys=(left, right)).reshape(-1, *size)


def _follow(weights: Float[Tensor, "B T S"], beams: Tensor, first: int) -> Float[Tensor, "N T S"]:
    """The rows of the sequences that survived, step by step."""
    t = weights.size(-2)
    is_tensor(beams, "beams")
    is_whole = not beams.is_floating_point() and beams.dtype != torch.bool
    if not is_whole or beams.dim() != 2 or beams.size(1) < first + t:
        raise ValueError(
            f"beams must be whole numbers (N, T), one for each of the T={first + t} steps, got "
            f"{tuple(beams.shape)} of {beams.dtype}; repeat the first column for each token of a prompt"
        )
    if beams.is_meta:
        raise ValueError("beams must hold numbers, got a tensor on the meta device; make it on the CPU")
    index = beams[:, first : first + t].clamp(min=0).to(weights.device)
    if index.numel() and int(index.max()) >= weights.size(0):
        raise ValueError(f"beams must be rows of the batch, 0..{weights.size(0) - 1}, got {int(index.max())}")
    return weights[index, torch.arange(t, device=weights.device)]


def _chosen(
    sight: Sight | Recording, heads: Sequence[int] | Sequence[SeenHead] | None, *, follow: bool
) -> Iterator[Sight]:
    """The chosen heads, one at a time: no more than one head's rows are alive."""
    if heads is not None and not isinstance(heads, Iterable):
        raise TypeError(f"heads must be a list, got {format_value(heads)}; None takes all of them")
    if isinstance(sight, Sight):
        if sight.is_followed and not follow:
            raise ValueError(
                "the items of this sight have been followed through the beam search already, got beams=; "
                "leave it out, or give what was watched, sl.align(seen, beams=...)"
            )
        for head in _all_heads(sight) if heads is None else heads:
            yield _head(sight, head)
        return
    if not isinstance(sight, Recording):
        raise TypeError(
            f"align takes a Sight or a Recording, got {type(sight).__name__}; sl.look gives a Sight"
        )
    layers = {name: x for name, x in by_layer(sight, follow=follow).items() if is_cross(name, x)}
    if not layers:
        raise ValueError(
            f"no cross-attention was seen, got {', '.join(map(repr, sight.names()[:3])) or 'nothing'}; align "
            "a sight of your choice with sl.align(seen[name])"
        )
    pairs = [(name, head) for name, x in layers.items() for head in _all_heads(x)] if heads is None else heads
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise TypeError(f"heads of a model are pairs (layer, head), got {pair!r}")
        layer, head = pair
        yield _head(layers[_layer_name(layer, list(layers))], head)


def _layer_name(layer: int | str, names: list[str]) -> str:
    if is_integer(layer):
        if not -len(names) <= layer < len(names):
            raise ValueError(f"layers of cross-attention are 0..{len(names) - 1}, got {layer}")
        return names[layer]
    if layer not in names:
        raise ValueError(f"no cross-attention in {layer!r}, {did_you_mean(layer, names)}")
    return str(layer)


def _all_heads(sight: Sight) -> list[int]:
    return list(range(sight.lead[-1])) if sight.has_heads else [0]


def _head(sight: Sight, head: object) -> Sight:
    if not sight.has_heads:
        return sight
    n = sight.lead[-1]
    if not is_integer(head) or not -n <= head < n:
        raise ValueError(
            f"heads must be in 0..{n - 1}, got {head!r}; {sight.name or 'the sight'} has {n} heads"
        )
    return sight[(*(slice(None),) * (len(sight.lead) - 1), head)]


def _check_width(filter_width: int) -> None:
    if not is_integer(filter_width) or filter_width < 1 or filter_width % 2 == 0:
        raise ValueError(f"filter_width must be an odd whole number, got {filter_width!r}; 1 smooths nothing")
