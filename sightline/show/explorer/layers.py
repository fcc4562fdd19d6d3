"""What the explorer shows, in one form: a list of sights of one item, with names for their tokens."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from sightline.look.asked import fitted, measure_sight
from sightline.look.heads import by_layer, is_cross
from sightline.look.inputs import PrecomputedWeights
from sightline.look.recording import Recording
from sightline.look.request import Look
from sightline.look.sight import Sight
from sightline.show.explorer.names import Tokens, names_of, text_of
from sightline.show.records import AttentionRecord, GridKeys, PredictionRecord
from sightline.watch.tokens import clean

__all__ = ["Layer", "Shown", "Tokens", "has_tokens", "read_layers"]

Shown = Recording | Sight | AttentionRecord | PredictionRecord | Mapping[str, Sight | AttentionRecord]
_MODEL = "the model itself"
_ROW_COLUMN = re.compile(r"\d+, ?\d+")  # the name of a patch
_MOST_OTHERS = 16  # keys beside the patches of an image, such as a class token


@dataclass(frozen=True, kw_only=True, eq=False)
class Layer:
    """One attention: a sight of one item, its heads first.

    Attributes:
        name: What to call it.
        sight: With ``lead`` of (heads,) or ().
        queries, keys: Names of its tokens; None where they are unknown.
        query_patches, key_patches: The first of the queries, or keys, that are patches of the image; None
            where they are words.
        is_cross: Whether queries and keys are of different sequences.
        is_summary: Whether it sums up others, such as a rollout.
    """

    name: str
    sight: Sight
    queries: tuple[str, ...] | None = None
    keys: tuple[str, ...] | None = None
    query_patches: int | None = None
    key_patches: int | None = None
    is_cross: bool = False
    is_summary: bool = False

    @property
    def n_heads(self) -> int:
        """How many heads can be told apart."""
        return self.sight.lead[-1] if self.sight.has_heads else 1

    @property
    def is_causal(self) -> bool:
        """Whether no query's largest weight lies on a later token, in a text that reads itself, masked."""
        at = self.sight.statistics.get("peak_at")
        if at is None or self.is_cross or not self.sight.is_masked:
            return False
        return bool((at <= torch.arange(self.sight.t, device=at.device)).all())


def read_layers(
    shown: Shown,
    *,
    tokens: Tokens | None = None,
    n_patches: int | None = None,
    item: int = 0,
    layers: Mapping[str, AttentionRecord] | None = None,
) -> list[Layer]:
    """Bring whatever was seen into one form.

    Args:
        shown: A seen model, a sight, sights by name, attention with its weights, or a prediction.
        tokens: Of one text, of each text of the batch, or by layer (a pattern will do) a pair of names of
            queries and of keys.
        n_patches: How many patches the image has, if there is one.
        item: Which item of the batch.
        layers: Of a prediction, every attention of the model, to be shown after the summary of its own.
    """
    if isinstance(shown, PredictionRecord):
        if shown.attention is None:
            raise ValueError("this prediction has no attention to show; predict with attention=True")
        shown = shown.attention
    found: list[Layer] = []
    if isinstance(shown, AttentionRecord):
        own = _of_weights("", shown, n_patches)
        if layers is None:
            return own
        found, shown = [replace(own[0], is_summary=True)], layers
    for name, one in _by_name(shown).items():
        if isinstance(one, Sight):
            found.append(_of_sight(name, one, tokens, n_patches, item))
        else:
            found += _of_weights(name, one, n_patches)
    if not found:
        reason = shown.explanation() if isinstance(shown, Recording) else "got nothing"
        raise ValueError(f"the explorer needs at least one attention to show: {reason}")
    _check(found, tokens, item)
    return found


def has_tokens(shown: Shown) -> bool:
    """Whether what was seen names its own tokens."""
    if isinstance(shown, AttentionRecord | PredictionRecord):
        return True
    return any(not isinstance(one, Sight) or bool(one.tokens) for one in _by_name(shown).values())


def _check(layers: Sequence[Layer], tokens: Tokens | None, item: int) -> None:
    """Refuse weights that no view can show, and tokens that are of another text."""
    for layer in layers:
        known = (layer.sight.statistics.get(name) for name in ("peak", "entropy", "received"))
        if any(bool(x.isnan().any()) for x in known if x is not None):
            raise ValueError(
                f"the explorer shows weights that are numbers, some of {layer.name!r} are NaN: its queries "
                "or keys hold NaN or infinity; show other layers, {name: sight}, to see where that begins"
            )
    if tokens is None or not len(tokens) or isinstance(tokens, Mapping):
        return
    if all(layer.queries is None and layer.keys is None for layer in layers):
        sizes = sorted({n for layer in layers for n in (layer.sight.t, layer.sight.s)})
        raise ValueError(
            f"tokens must be as many as a layer's queries or keys, {' or '.join(map(str, sizes))}, got "
            f"{len(text_of(tokens, item))}; [CLS] and the like count"
        )


def _by_name(shown: Recording | Sight | Mapping[str, Sight | AttentionRecord]) -> Mapping[str, Any]:
    if isinstance(shown, Sight):
        return {shown.name: shown}
    if isinstance(shown, Recording):
        return by_layer(shown)
    if not isinstance(shown, Mapping):
        raise TypeError(
            f"the explorer shows what was seen, a sight or a prediction, got {type(shown).__name__}"
        )
    return shown


def _of_sight(name: str, sight: Sight, tokens: Tokens | None, n_patches: int | None, item: int) -> Layer:
    batch = sight.shape[: sight.n_batch]
    if batch and not 0 <= item < batch[0]:
        raise ValueError(f"item must be one of the batch, in 0..{batch[0] - 1}, got {item}")
    one = _without_nan(sight[(item, *[0] * (len(batch) - 1))] if batch else sight)
    queries, keys = names_of(name, one, tokens, item)
    patches = [_first_patch(n, n_patches, names) for n, names in ((one.t, queries), (one.s, keys))]
    return Layer(
        name=name or _MODEL,
        sight=one,
        queries=queries,
        keys=keys,
        query_patches=patches[0],
        key_patches=patches[1],
        is_cross=is_cross(name, one),
    )


def _without_nan(sight: Sight) -> Sight:
    """The same with zeros at queries that are padding: views draw them as queries that look at nothing."""
    if "is_padding" not in sight.statistics:
        return sight
    statistics, hidden = dict(sight.statistics), sight.is_padding
    del statistics["is_padding"]
    for name, value in (("lse", -torch.inf), ("entropy", 0.0), ("peak", 0.0), ("top", 0.0)):
        if name in statistics:
            x = statistics[name]
            statistics[name] = x.masked_fill(hidden[..., None] if name == "top" else hidden, value)
    return replace(sight, statistics=statistics)


def _first_patch(n: int, n_patches: int | None, names: tuple[str, ...] | None) -> int | None:
    """Where the patches of the image begin, among n tokens; None if they are others."""
    if names is not None:
        return _named_patches(names, n_patches)
    return None if n_patches is None or not 0 <= n - n_patches <= _MOST_OTHERS else n - n_patches


def _of_weights(name: str, attention: AttentionRecord, n_patches: int | None) -> list[Layer]:
    """The layers of a record that holds its weights; first its summary, where that says more than they do."""
    weights = attention.weights.detach().float().cpu()
    is_grid = isinstance(attention.keys, GridKeys)
    queries = tuple(map(clean, attention.queries))
    keys = None if isinstance(attention.keys, GridKeys) else tuple(map(clean, attention.keys))
    of_patches = [0 if is_grid else _named_patches(names, n_patches) for names in (queries, keys or ())]
    if is_grid:  # queries that are patches too are an image that looks at itself
        of_patches[0] = _named_patches(queries, n_patches)
    shared: dict[str, Any] = {
        "queries": None if of_patches[0] == 0 else queries,
        "keys": keys,
        "query_patches": of_patches[0],
        "key_patches": of_patches[1],
        "is_cross": queries != keys and not (is_grid and of_patches[0] == 0),
    }
    layers = [
        Layer(name=_layer_name(name, i, len(weights)), sight=_sight(x), **shared)
        for i, x in enumerate(weights)
    ]
    summary = attention.summary.detach().float().cpu()
    is_mean = summary.shape == weights.shape[2:] and torch.allclose(summary, weights.mean((0, 1)), atol=1e-6)
    if len(layers) == 1 and is_mean:
        return layers
    label = attention.summary_label or "mean of all heads"
    first = Layer(name=f"{name}: {label}" if name else label, sight=_sight(summary[None]), **shared)
    return [replace(first, is_summary=True), *layers]


def _named_patches(names: tuple[str, ...], n_patches: int | None) -> int | None:
    """Where the patches begin, among tokens that are called by row and column; None if they are words."""
    first = len(names) - (n_patches or 0)
    if n_patches is None or not 0 <= first <= _MOST_OTHERS:
        return None
    return first if all(map(_ROW_COLUMN.fullmatch, names[first:])) else None


def _layer_name(name: str, i: int, n: int) -> str:
    if name:
        return name if n == 1 else f"{name} {i}"
    return f"layer {i}"


def _sight(weights: Tensor) -> Sight:
    """A sight of weights that are there: (H, T, S)."""
    rows = PrecomputedWeights.of(weights.contiguous()[None])
    measures = fitted(Look(), *rows.shape[2:])
    sight: Sight = measure_sight(rows, measures, lead=(1, len(weights)))[0]
    return sight
