"""Scores that only drawn scenes allow: is what was said true of the picture, and did the model look there.

=======================  =====================================================================================
``attribute_accuracy``    share of captions that are a whole sentence, and every colour, shape and relation in
                          them is true of the picture
``strict_accuracy``       the same, every size and texture included
``grounding``             share of object words whose attention, heads averaged, peaks in the object's box
``grounding_chance``      what attention that knows nothing would get: the share of the grid that the box is
=======================  =====================================================================================

An object word is a shape's name, "star". Where the picture has no such thing, the word is not grounded.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from sightline.data.scenes import Scene, Thing
from sightline.data.scenes_layout import SIDE
from sightline.data.scenes_words import Phrase, parse_caption, phrases_of
from sightline.evaluate.scores import Scores
from sightline.shapes import Float

__all__ = ["Grounding", "groundings", "is_true", "match_object", "scene_scores"]


class Grounding(NamedTuple):
    """Where the model looked when it said an object's name.

    Attributes:
        word: The word's place in the caption.
        thing: Which thing of the scene it names, None where there is none.
        hit: Whether the attention's peak is in its box.
        chance: The share of the grid's cells that are.
    """

    word: int
    thing: int | None
    hit: bool
    chance: float


def is_true(scene: Scene, caption: str, *, strict: bool = False) -> bool:
    """Whether a caption says something, and all of it is true of the scene.

    Args:
        scene: What is in the picture.
        caption: What was said.
        strict: Check sizes and textures too, not colours, shapes and the relation alone.

    Example:
        >>> from sightline.data.scenes import Relation
        >>> star = Thing("star", "red", "small", "plain", (0, 0, 9, 9))
        >>> ring = Thing("ring", "blue", "large", "striped", (20, 0, 44, 24))
        >>> scene = Scene((star, ring), (Relation(0, "left of", 1), Relation(1, "right of", 0)))
        >>> [is_true(scene, f"a red star {way} a blue ring") for way in ("left of", "right of", "near")]
        [True, False, False]
    """
    claim = parse_caption(caption)
    if claim is None:
        return False
    subjects, objects = _fitting(scene, claim.subject, strict), _fitting(scene, claim.object, strict)
    return any(
        name == claim.relation and subject in subjects and other in objects
        for subject, name, other in scene.relations
    )


def match_object(scene: Scene, phrase: Phrase) -> int | None:
    """Which thing a phrase is about: one of its shape, and rather of its colour; None if there is none."""
    alike = [i for i, thing in enumerate(scene.objects) if thing.shape == phrase.shape]
    return min(alike, key=lambda i: (scene.objects[i].colour != phrase.colour, i), default=None)


def groundings(
    scene: Scene, words: Sequence[str], weights: Float[Tensor, "T H P"], grid: tuple[int, int]
) -> Iterator[Grounding]:
    """Where the attention's peak was for each object word of a caption.

    Args:
        scene: What is in the picture.
        words: The caption, a word for each step.
        weights: Where each step looked: at the cells of the grid, row by row.
        grid: Rows and columns.
    """
    rows, columns = grid
    down = (torch.arange(rows) + 0.5) * (SIDE / rows)
    across = (torch.arange(columns) + 0.5) * (SIDE / columns)
    for phrase in phrases_of(list(words)):
        thing = match_object(scene, phrase)
        if thing is None:
            yield Grounding(phrase.at, None, hit=False, chance=0.0)
            continue
        left, top, right, bottom = scene.objects[thing].box
        inside = ((down >= top) & (down < bottom))[:, None] & ((across >= left) & (across < right))
        peak = int(weights[phrase.at].mean(0).argmax())
        yield Grounding(
            phrase.at, thing, hit=bool(inside.flatten()[peak]), chance=inside.float().mean().item()
        )


def scene_scores(
    words: Sequence[Sequence[str]],
    weights: Sequence[Float[Tensor, "_ H P"]],
    scenes: Sequence[Scene],
    grid: tuple[int, int],
) -> Scores:
    """Score captions of scenes, one each; see the head of this file.

    Args:
        words: The words of each caption.
        weights: What each of its words looked at: the cells of the grid, row by row.
        scenes: What is in each image.
        grid: Rows and columns.

    Raises:
        ValueError: If there is not one caption with its weights for each scene.
    """
    if not len(scenes) == len(words) == len(weights):
        raise ValueError(
            f"each scene needs a caption and its weights, got {len(scenes)} scenes, {len(words)} captions "
            f"and {len(weights)} weights"
        )
    if not scenes:
        raise ValueError("there must be at least one scene to score, got 0")
    captions = [" ".join(caption) for caption in words]
    seen = [
        glance
        for scene, caption, looked in zip(scenes, words, weights, strict=True)
        for glance in groundings(scene, caption, looked.cpu(), grid)
    ]
    true = [float(is_true(s, c)) for s, c in zip(scenes, captions, strict=True)]
    strictly = [float(is_true(s, c, strict=True)) for s, c in zip(scenes, captions, strict=True)]
    total = {
        "attribute_accuracy": _mean(true),
        "strict_accuracy": _mean(strictly),
        "grounding": _mean([glance.hit for glance in seen]),
        "grounding_chance": _mean([glance.chance for glance in seen]),
    }
    return Scores(total=total, each={"attribute_accuracy": true, "strict_accuracy": strictly})


def _fitting(scene: Scene, phrase: Phrase, strict: bool) -> set[int]:
    """The things a phrase is true of."""
    return {i for i, thing in enumerate(scene.objects) if _fits(thing, phrase, strict)}


def _fits(thing: Thing, phrase: Phrase, strict: bool) -> bool:
    claims = [(phrase.shape, thing.shape), (phrase.colour, thing.colour)]
    if strict:
        claims += [(phrase.size, thing.size), (phrase.texture, thing.texture)]
    return all(word is None or word == truth for word, truth in claims)


def _mean(values: Sequence[bool] | Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
