"""The words of the scenes: how a caption is said, and what a caption claims.

    a large striped red star left of a blue ring
    ^ size  texture colour shape
      `---------- subject ---´ relation `- object

A texture is named where there is one, a size now and then; seven ways to put a sentence together.
"""

from dataclasses import dataclass
from typing import NamedTuple

__all__ = [
    "COLOURS",
    "OPPOSITES",
    "RELATIONS",
    "SHAPES",
    "SIZES",
    "TEMPLATES",
    "TEXTURES",
    "ParsedCaption",
    "Phrase",
    "names_of",
    "parse_caption",
    "phrases_of",
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
class ParsedCaption:
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


def parse_caption(caption: str) -> ParsedCaption | None:
    """What a caption claims, or None where it is not a sentence of two things and one relation.

    Example:
        >>> parse_caption("left of the blue ring is a red star").subject.shape
        'star'
        >>> parse_caption("a red star left of")
    """
    words = caption.split()
    phrases, relations = phrases_of(words), _relations_of(words)
    if len(phrases) != 2 or len(relations) != 1:
        return None
    first, second = phrases
    at, name = relations[0]
    if first.at < at < second.at:
        return ParsedCaption(first, name, second)
    return ParsedCaption(second, name, first)  # "above the ring is a star", "a ring with a star above it"


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
