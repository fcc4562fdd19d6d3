"""The embedded captioning set: photos in miniature, drawn rather than stored.

A scene is 64 x 64 pixels: two things of some shape, colour, size and texture stand in a relation to each
other, among clutter, in uneven light. It has five captions, and, because we drew it, the box of everything
and which word names what. A scene is a function of (seed, split, index) alone, the same on every machine.

    scenes = Scenes(1000, seed=0, split="test")
    scenes.open(3)          # uint8 (3, 64, 64)
    scenes.captions(3)      # five sentences
    scenes.scene(3)         # what is in it, and where

====================  =============================================
``counter_rng.py``     random numbers, the same on every machine
``scenes_layout.py``   what there is, and where
``scenes_draw.py``     the picture of it
``scenes_words.py``    the vocabulary, and what a caption claims
``scenes_captions.py``     relations and captions
====================  =============================================
"""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sightline.data.captions import DRAWN_SIZE, CaptionedImage, CaptionSet
from sightline.data.counter_rng import CounterRNG, Ints
from sightline.data.dataset import SPLITS
from sightline.data.images import digest, resize_crop
from sightline.data.scenes_captions import Relation, captions_of, relations_of
from sightline.data.scenes_draw import draw
from sightline.data.scenes_layout import SIDE, Layout, random_layout
from sightline.data.scenes_words import COLOURS, SHAPES, TEXTURES, phrases_of
from sightline.shapes import Shaped, did_you_mean

__all__ = ["Relation", "Scene", "SceneImages", "Scenes", "Thing", "scenes_set"]

_BLOCK = 64  # scenes drawn at once: their canvases stay in the processor's cache


@dataclass(frozen=True, slots=True)
class Thing:
    """One thing in a scene.

    Attributes:
        size: ``small`` or ``large``; ``tiny`` for clutter, of which no caption speaks.
        box: Left, top, right, bottom of what is seen of it, in pixels; right and bottom are one beyond.
    """

    shape: str
    colour: str
    size: str
    texture: str
    box: tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Scene:
    """What is in a picture.

    Attributes:
        objects: The pair that captions speak of, then clutter.
        relations: All that hold between any two of them.
    """

    objects: tuple[Thing, ...]
    relations: tuple[Relation, ...]


class Scenes:
    """Scenes of one split; drawn when first asked for, then kept in memory (12 kB each).

    Args:
        n: How many there are. Scene ``i`` does not depend on it.
        seed: Another seed, other scenes.
        split: ``train``, ``val`` or ``test``: streams that have nothing in common.

    Example:
        >>> scenes = Scenes(7, seed=0, split="train")
        >>> scenes.open(5).shape
        torch.Size([3, 64, 64])
        >>> scenes.captions(5)[0]
        'left of the striped orange star is a pink triangle'
    """

    def __init__(self, n: int, seed: int = 0, split: str = "train") -> None:
        if n < 0:
            raise ValueError(f"the number of scenes must be at least 0, got {n}")
        if split not in SPLITS:
            raise ValueError(f"unknown split {split!r} of the scenes, {did_you_mean(split, SPLITS)}")
        self.n, self.seed, self.split = n, seed, split
        self._told: dict[int, tuple[Layout, list[tuple[str, ...]]]] = {}
        self._drawn: dict[int, _Drawn] = {}
        self._lock = threading.RLock()  # pictures are opened from threads, ahead of their use

    def __len__(self) -> int:
        return self.n

    def open(self, i: int) -> Shaped[Tensor, "3 64 64"]:
        """The picture, uint8."""
        drawn, at = self._picture(i)
        return torch.from_numpy(drawn.pictures[at].copy())

    def captions(self, i: int) -> tuple[str, ...]:
        """Its five captions; nothing is drawn for them."""
        number, at = self._place(i)
        return self._words(number)[1][at]

    def scene(self, i: int) -> Scene:
        """What is in it."""
        drawn, at = self._picture(i)
        return _scene(drawn.layout, drawn.boxes, at)

    def named(self, i: int) -> tuple[tuple[tuple[int, int], ...], ...]:
        """For each caption, which of its words names which thing: pairs (word, thing)."""
        scene = self.scene(i)
        return tuple(tuple(_named(scene, caption)) for caption in self.captions(i))

    def _place(self, i: int) -> tuple[int, int]:
        if not 0 <= i < self.n:
            raise IndexError(f"a scene's number must be from 0 to {self.n - 1}, got {i}")
        return divmod(i, _BLOCK)

    def _indices(self, number: int) -> range:
        return range(number * _BLOCK, min((number + 1) * _BLOCK, self.n))

    def _words(self, number: int) -> tuple[Layout, list[tuple[str, ...]]]:
        with self._lock:
            if number not in self._told:
                layout = random_layout(CounterRNG(self.seed, f"{self.split} layout", self._indices(number)))
                words = CounterRNG(self.seed, f"{self.split} words", self._indices(number))
                self._told[number] = layout, captions_of(layout, words)
            return self._told[number]

    def _picture(self, i: int) -> tuple["_Drawn", int]:
        number, at = self._place(i)
        with self._lock:
            if number not in self._drawn:
                layout, _ = self._words(number)
                paint = CounterRNG(self.seed, f"{self.split} paint", self._indices(number))
                pictures, owner = draw(layout, paint)
                self._drawn[number] = _Drawn(layout, pictures, _boxes(owner, layout.shape.shape[1]))
            return self._drawn[number], at


class _Drawn(NamedTuple):
    layout: Layout
    pictures: npt.NDArray[np.uint8]
    boxes: Ints


def _boxes(owner: npt.NDArray[np.int8], k: int) -> Ints:
    """What is seen of each slot, (n, K, 4); right = 0 where nothing is."""
    boxes = np.zeros((len(owner), k, 4), dtype=np.int64)
    for slot in range(k):
        seen = owner == slot
        for axis, first in (
            (1, 0),
            (2, 1),
        ):  # down the columns: left and right; along the rows: top and bottom
            line = seen.any(axis=axis)
            boxes[:, slot, first] = line.argmax(axis=1)
            boxes[:, slot, first + 2] = np.where(line.any(axis=1), SIDE - line[:, ::-1].argmax(axis=1), 0)
    return boxes


def _scene(layout: Layout, boxes: Ints, at: int) -> Scene:
    slots = [k for k in range(boxes.shape[1]) if layout.there[at, k] and boxes[at, k, 2] > 0]
    things = tuple(_thing(layout, boxes, at, k) for k in slots)
    return Scene(things, tuple(relations_of(layout, at, slots)))


def _thing(layout: Layout, boxes: Ints, at: int, k: int) -> Thing:
    left, top, right, bottom = boxes[at, k].tolist()
    return Thing(
        shape=SHAPES[layout.shape[at, k]],
        colour=COLOURS[layout.colour[at, k]],
        size=("large" if layout.large[at, k] else "small") if k < 2 else "tiny",
        texture=TEXTURES[layout.texture[at, k]],
        box=(left, top, right, bottom),
    )


def _named(scene: Scene, caption: str) -> Iterator[tuple[int, int]]:
    for phrase in phrases_of(caption.split()):
        for number, thing in enumerate(scene.objects[:2]):
            if (thing.shape, thing.colour) == (phrase.shape, phrase.colour):
                yield phrase.at, number


class SceneImages:
    """The pictures of scenes under names such as ``test/17``, as a set of captions wants them."""

    def __init__(self, splits: dict[str, Scenes]) -> None:
        self.splits = splits

    def open(self, name: str, *, size: int | None = None) -> Shaped[Tensor, "3 h w"]:
        """The bytes of red, green and blue; a square of ``size`` if one is given."""
        scenes, i = self._find(name)
        picture = scenes.open(i)
        return picture if size in {None, SIDE} else resize_crop(picture, size)

    def digest(self, name: str) -> str:
        """The hash of the pixels."""
        return digest(self.open(name))

    def scene(self, name: str) -> Scene:
        """What is in the picture of this name."""
        scenes, i = self._find(name)
        return scenes.scene(i)

    def _find(self, name: str) -> tuple[Scenes, int]:
        split, _, number = name.partition("/")
        if split not in self.splits or not number.isdecimal():
            raise ValueError(f"a scene's name is a split and a number, such as 'test/17', got {name!r}")
        return self.splits[split], int(number)


def scenes_set(n_train: int, n_val: int, n_test: int, seed: int = 0) -> CaptionSet:
    """Scenes as a set of images with captions.

    Example:
        >>> found = scenes_set(5, 2, 3, seed=0)
        >>> found.splits(), found.split("val")[1].name
        ({'train': 5, 'val': 2, 'test': 3}, 'val/1')
    """
    counts = dict(zip(SPLITS, (n_train, n_val, n_test), strict=True))
    splits = {split: Scenes(n, seed, split) for split, n in counts.items()}
    records = [
        CaptionedImage(f"{split}/{i}", scenes.captions(i), split)
        for split, scenes in splits.items()
        for i in range(len(scenes))
    ]
    return CaptionSet(tuple(records), SceneImages(splits), source="scenes", layout="scenes", rule=DRAWN_SIZE)
