"""What there is in a scene and where: thrown, not yet drawn and not yet told."""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sightline.data.counter_rng import CounterRNG, Floats, Ints
from sightline.data.scenes_words import COLOURS, SHAPES, TEXTURES

__all__ = ["ANGLES", "SIDE", "Layout", "random_layout"]

SIDE = 64
# Cosine and sine to ten bits: what is left of a machine's rounding after that is nothing.
ANGLES = tuple((round(math.cos(a) * 1024) / 1024, round(math.sin(a) * 1024) / 1024)
               for a in (2 * math.pi * k / 64 for k in range(64)))  # fmt: skip
_LEVEL = 4  # of two things that overlap, one is nearer and so lower: by this angle at least


class Layout(NamedTuple):
    """Things to draw, (n, K) each; slot 0 and 1 are the pair the captions speak of, the others clutter.

    Attributes:
        there: Whether a slot holds a thing.
        shape, colour, texture: Numbers into the lists of words.
        angle: How far it is turned, in 64ths of a turn.
        x, y, radius: Where its middle is and how far it reaches, in pixels.
        large: Whether each of the pair is large, (n, 2).
        front: Which of slot 0 and 1 is drawn last, (n,): the lower one, as where one looks down at a table.
    """

    there: npt.NDArray[np.bool_]
    shape: Ints
    colour: Ints
    texture: Ints
    angle: Ints
    x: Floats
    y: Floats
    radius: Floats
    large: npt.NDArray[np.bool_]
    front: Ints

    @property
    def overlap(self) -> npt.NDArray[np.bool_]:
        """Whether one of the pair hides a part of the other: they are nearer than both reach, (n,)."""
        dx, dy = self.x[:, 0] - self.x[:, 1], self.y[:, 0] - self.y[:, 1]
        reach = self.radius[:, 0] + self.radius[:, 1]
        return dx * dx + dy * dy < reach * reach


def random_layout(rng: CounterRNG) -> Layout:
    """Throw everything: what there is, and where."""
    n = len(rng)
    hidden = rng.bernoulli(30)  # one of the pair partly hides the other
    shapes = [rng.integers(len(SHAPES)) for _ in range(4)]
    colours = [rng.integers(len(COLOURS)) for _ in range(4)]
    colours[1] = np.where(
        hidden, (colours[0] + 1 + rng.integers(len(COLOURS) - 1)) % len(COLOURS), colours[1]
    )
    for k, others in ((1, (0,)), (2, (0, 1, 0)), (3, (0, 1, 0))):  # no two things alike in both
        for other in others:
            alike = (shapes[k] == shapes[other]) & (colours[k] == colours[other])
            shapes[k] = np.where(alike, (shapes[k] + 1) % len(SHAPES), shapes[k])
    large = [rng.bernoulli(50) for _ in range(2)]
    radii = [np.where(s, rng.uniform(12.5, 14.0), rng.uniform(9.0, 10.5)) for s in large]
    radii += [rng.uniform(3.0, 4.0) for _ in range(2)]
    x, y = _places(rng, hidden, radii)
    n_clutter = rng.integers(3)
    there = np.stack([np.full(n, True), np.full(n, True), n_clutter > 0, n_clutter > 1], axis=1)
    return Layout(
        there=there,
        shape=np.stack(shapes, axis=1),
        colour=np.stack(colours, axis=1),
        texture=np.stack(
            [np.where(rng.bernoulli(40), 0, rng.integers(len(TEXTURES))) for _ in range(4)], axis=1
        ),
        angle=np.stack([(rng.integers(5) - 2) % len(ANGLES) for _ in range(4)], axis=1),
        x=x,
        y=y,
        radius=np.stack(radii, axis=1).astype(np.float32),
        large=np.stack(large, axis=1),
        front=(y[:, 1] > y[:, 0]).astype(np.int64),
    )


def _places(rng: CounterRNG, hidden: npt.NDArray[np.bool_], radii: list[Floats]) -> tuple[Floats, Floats]:
    """Where the middles are, (n, 4) each: the pair in its relation, clutter where there is room."""
    a, b = radii[:2]
    apart = a + b + rng.uniform(2.0, 6.0)
    aside = apart * rng.uniform(-0.45, 0.45)
    upright = rng.bernoulli(50)
    cos, sin = np.array(ANGLES, dtype=np.float32)[_LEVEL + rng.integers(33 - 2 * _LEVEL)].T
    close = np.maximum(a, b)  # about half of the smaller one lies under or over the larger
    dx = np.where(hidden, close * cos, np.where(upright, aside, apart))
    dy = np.where(hidden, close * sin, np.where(upright, apart, aside))
    swap = np.where(rng.bernoulli(50), np.float32(-1), np.float32(1))
    places = []
    for step in (
        dx * swap,
        dy * swap,
    ):  # the pair's extent from the first one's middle, then moved into the picture
        low, high = np.minimum(-a, step - b), np.maximum(a, step + b)
        room = SIDE - (high - low)
        start = room * rng.uniform(0.02, 0.98) - low
        places.append([start, start + step])
    for k in (2, 3):
        best = np.full(len(rng), -np.inf, dtype=np.float32)
        kept = [np.zeros_like(best), np.zeros_like(best)]
        for _ in range(4):
            spot = [rng.uniform(5.0, SIDE - 5.0), rng.uniform(5.0, SIDE - 5.0)]
            gaps = [
                np.sqrt((spot[0] - places[0][j]) ** 2 + (spot[1] - places[1][j]) ** 2) - radii[j]
                for j in range(k)
            ]
            gap = np.minimum.reduce(gaps)
            kept = [np.where(gap > best, new, old) for new, old in zip(spot, kept, strict=True)]
            best = np.maximum(best, gap)
        places[0].append(kept[0])
        places[1].append(kept[1])
    return np.stack(places[0], axis=1).astype(np.float32), np.stack(places[1], axis=1).astype(np.float32)
