"""The words of the scenes: how a caption is said, and what a caption claims.

    a large striped red star left of a blue ring
    ^ size  texture colour shape
      `---------- subject ---´ relation `- object

A texture is named where there is one, a size now and then; seven ways to put a sentence together.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from sightline.data.counter_rng import CounterRNG
from sightline.data.scenes_layout import Layout

__all__ = [
    "COLOURS",
    "N_CAPTIONS",
    "OPPOSITES",
    "RELATIONS",
    "SHAPES",
    "SIZES",
    "TEMPLATES",
    "TEXTURES",
    "Claim",
    "Phrase",
    "Relation",
    "captions_of",
    "claim_of",
    "names_of",
    "phrases_of",
    "relations_of",
    "sentence",
]

SHAPES = ("circle", "square", "triangle", "cross", "ring", "star")
COLOURS = ("red", "orange", "yellow", "green", "blue", "purple", "pink", "white")
SIZES = {"small": ("small", "little"), "large": ("large", "big")}  # the first is said more often
TEXTURES = ("plain", "striped", "spotted", "checkered")
RELATIONS = {
    "left of": ("left of", "to the left of"),
    "right of": ("right of", "to the right of"),
    "above": ("above", "over"),
    "below": ("below", "under"),
    "in front of": ("in front of", "in front of"),
    "behind": ("behind", "behind"),
}
OPPOSITES = {
    "left of": "right of",
    "right of": "left of",
    "above": "below",
    "below": "above",
    "in front of": "behind",
    "behind": "in front of",
}
TEMPLATES = (
    "a {subject} {relation} a {object}",
    "a {subject} is {relation} a {object}",
    "the {subject} is {relation} the {object}",
    "there is a {subject} {relation} a {object}",
    "a photo of a {subject} {relation} a {object}",
    "{relation} the {object} is a {subject}",
    "a {object} with a {subject} {relation} it",
)

_SIZE = {word: size for size, words in SIZES.items() for word in words}
_RELATION = {tuple(way.split()): name for name, ways in RELATIONS.items() for way in ways}
_LONGEST = max(map(len, _RELATION))


class Phrase(NamedTuple):
    """What a caption says of one thing: the attributes it names, None for the others.

    Attributes:
        at: The place of the shape's word among the caption's words.
    """

    shape: str
    colour: str | None
    size: str | None
    texture: str | None
    at: int


@dataclass(frozen=True)
class Claim:
    """What a whole caption says: one thing stands in a relation to another."""

    subject: Phrase
    relation: str
    object: Phrase


def sentence(template: str, subject: str, relation: str, object: str) -> str:  # noqa: A002
    """A caption.

    Example:
        >>> sentence(TEMPLATES[-1], "red star", "above", "blue ring")
        'a blue ring with a red star above it'
    """
    said = template.format(subject=subject, relation=relation, object=object)
    return said.replace("a orange", "an orange")  # the one adjective that starts with a vowel


def names_of(texture: str, colour: str, shape: str, size: str = "") -> str:
    """How a thing is named: ``small striped red star``; a plain texture and no size go without saying."""
    return " ".join(word for word in (size, "" if texture == "plain" else texture, colour, shape) if word)


def phrases_of(words: list[str]) -> list[Phrase]:
    """Every thing named in a caption: a shape's word with the adjectives right before it.

    Example:
        >>> phrases_of("a big red star above a ring".split())
        [Phrase(shape='star', colour='red', size='large', texture=None, at=3),
         Phrase(shape='ring', colour=None, size=None, texture=None, at=6)]
    """
    found = []
    adjectives: dict[str, str] = {}
    for at, word in enumerate(words):
        if word in SHAPES:
            colour, size, texture = (adjectives.get(x) for x in ("colour", "size", "texture"))
            found.append(Phrase(word, colour, size, texture, at))
        kind = "colour" if word in COLOURS else "size" if word in _SIZE else "texture"
        if word in COLOURS or word in _SIZE or word in TEXTURES:
            adjectives[kind] = _SIZE.get(word, word)
        else:
            adjectives = {}
    return found


def claim_of(caption: str) -> Claim | None:
    """What a caption claims, or None where it is not a sentence of two things and one relation.

    Example:
        >>> claim_of("left of the blue ring is a red star").subject.shape
        'star'
        >>> claim_of("a red star left of")
    """
    words = caption.split()
    phrases, relations = phrases_of(words), _relations_of(words)
    if len(phrases) != 2 or len(relations) != 1:
        return None
    first, second = phrases
    at, name = relations[0]
    if first.at < at < second.at:
        return Claim(first, name, second)
    return Claim(second, name, first)  # "above the ring is a star", "a ring with a star above it"


def _relations_of(words: list[str]) -> list[tuple[int, str]]:
    found, at = [], 0
    while at < len(words):
        for n in range(_LONGEST, 0, -1):
            name = _RELATION.get(tuple(words[at : at + n]))
            if name is not None:
                found.append((at, name))
                at += n - 1
                break
        at += 1
    return found


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
