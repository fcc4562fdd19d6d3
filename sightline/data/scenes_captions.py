"""Scenes in words: which relations hold in them, and the five captions of each."""

from collections.abc import Iterator
from typing import NamedTuple

from sightline.data.counter_rng import CounterRNG
from sightline.data.scenes_layout import Layout
from sightline.data.scenes_words import (
    COLOURS,
    OPPOSITES,
    RELATIONS,
    SHAPES,
    SIZES,
    TEMPLATES,
    TEXTURES,
    names_of,
    sentence,
)

__all__ = ["N_CAPTIONS", "Relation", "captions_of", "relations_of"]

N_CAPTIONS = 5
# How many captions in a hundred speak of the smaller thing first; name the sizes; use the rarer synonym.
_TURNED, _SIZED, _RARER = 30, 30, 20


class Relation(NamedTuple):
    """``subject`` is so to ``object``; both are numbers of things."""

    subject: int
    name: str
    object: int


def relations_of(layout: Layout, at: int, slots: list[int]) -> list[Relation]:
    """All that hold in a scene between some of its things, numbered in this order.

    Left, right, above or below: by the direction that is the longer, from middle to middle.
    """
    x, y = layout.x[at, slots].tolist(), layout.y[at, slots].tolist()
    return [*_hiding(layout, at), *_directions(x, y)]


def _hiding(layout: Layout, at: int) -> Iterator[Relation]:
    if layout.overlap[at]:
        front = int(layout.front[at])
        yield Relation(front, "in front of", 1 - front)
        yield Relation(1 - front, "behind", front)


def _directions(x: list[float], y: list[float]) -> Iterator[Relation]:
    for i in range(len(x)):
        for j in range(i + 1, len(x)):
            dx, dy = x[j] - x[i], y[j] - y[i]
            across = "left of" if dx > 0 else "right of"
            name = across if abs(dx) >= abs(dy) else "above" if dy > 0 else "below"
            yield Relation(i, name, j)
            yield Relation(j, OPPOSITES[name], i)


def captions_of(layout: Layout, rng: CounterRNG) -> list[tuple[str, ...]]:
    """Five each, no two put together in the same way; the larger thing is more often spoken of first."""
    templates = rng.permutation(len(TEMPLATES))[:, :N_CAPTIONS]
    coins = [[rng.bernoulli(p) for p in (_TURNED, _SIZED, _RARER, _RARER)] for _ in range(N_CAPTIONS)]
    larger = (layout.radius[:, 0] < layout.radius[:, 1]).astype(int).tolist()
    told = []
    for at, subject in enumerate(larger):
        relations = relations_of(layout, at, [0, 1])  # where one hides the other, that is what is said
        relation = next(r.name for r in relations if r.subject == subject)
        captions = []
        for c, (turned, sized, rarer_size, rarer_way) in enumerate(coins):
            first = 1 - subject if turned[at] else subject
            names = [
                _name(layout, at, k, int(rarer_size[at]) if sized[at] else None) for k in (first, 1 - first)
            ]
            way = RELATIONS[OPPOSITES[relation] if turned[at] else relation][int(rarer_way[at])]
            captions.append(sentence(TEMPLATES[templates[at, c]], names[0], way, names[1]))
        told.append(tuple(captions))
    return told


def _name(layout: Layout, at: int, k: int, synonym: int | None) -> str:
    size = "" if synonym is None else SIZES["large" if layout.large[at, k] else "small"][synonym]
    texture, colour, shape = (int(x[at, k]) for x in (layout.texture, layout.colour, layout.shape))
    return names_of(TEXTURES[texture], COLOURS[colour], SHAPES[shape], size)
