"""How a scene is drawn: many at once, with nothing but additions, products and square roots.

Those round the same on every machine; that is why there is no sine, no exponential and no matrix product
here, and why a scene has the same pixels everywhere. Each thing is drawn in a window of its own, with soft
edges, a shadow and a texture; light and grain come last.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from sightline.data.counter_rng import CounterRNG, Floats, Ints
from sightline.data.scenes_layout import ANGLES, SIDE, Layout
from sightline.data.scenes_words import COLOURS, SHAPES

__all__ = ["draw"]

_WINDOW = 32  # a thing and its soft edge fit; so does half of it beyond an edge of the picture
_SMALL_WINDOW = 12  # for clutter
_PAD = _WINDOW // 2 + 2
_RGB = {
    "red": (214, 40, 40),
    "orange": (242, 128, 24),
    "yellow": (240, 214, 40),
    "green": (42, 157, 60),
    "blue": (40, 80, 214),
    "purple": (126, 40, 164),
    "pink": (246, 140, 190),
    "white": (240, 240, 236),
}
_LIGHT_STRIPES = {"red", "blue", "purple", "green"}  # on these a darker tone would not show
_GROUNDS = ((120, 112, 100), (96, 104, 112), (140, 136, 128), (84, 78, 72), (104, 116, 100), (70, 76, 88))


def draw(layout: Layout, rng: CounterRNG) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int8]]:
    """Draw scenes.

    Returns:
        The pictures (n, 3, 64, 64), and whose pixel each is (n, 64, 64): a slot, or -1 for the ground.
    """
    n, k = layout.shape.shape
    side = SIDE + 2 * _PAD
    canvas = np.zeros((n, side, side, 3), dtype=np.float32)
    owner = np.full((n, side, side), -1, dtype=np.int8)
    inside = slice(_PAD, _PAD + SIDE)
    canvas[:, inside, inside] = _ground(rng)
    shadow = rng.uniform(0.15, 0.45)
    for slot in range(k - 1, 1, -1):
        _paste(canvas, owner, layout, np.full(n, slot), shadow, _SMALL_WINDOW)
    for slots in (1 - layout.front, layout.front):
        _paste(canvas, owner, layout, slots, shadow, _WINDOW)
    lit = canvas[:, inside, inside] * _light(rng)
    grain = rng.noise(SIDE * SIDE * 3).reshape(n, SIDE, SIDE, 3).astype(np.float32)
    lit += grain * rng.uniform(0.3, 1.0)[:, None, None, None]
    pictures = np.rint(np.clip(lit, 0, 255)).astype(np.uint8)
    return np.ascontiguousarray(pictures.transpose(0, 3, 1, 2)), owner[:, inside, inside]


def _ground(rng: CounterRNG) -> Floats:
    """A muted ground with soft patches, (n, 64, 64, 3)."""
    n, cells = len(rng), 7
    base = np.array(_GROUNDS, dtype=np.float32)[rng.integers(len(_GROUNDS))]
    knots = rng.noise(cells * cells).reshape(n, cells, cells).astype(np.float32) * np.float32(1.6)
    at = np.arange(SIDE, dtype=np.float32) * np.float32((cells - 1) / SIDE)
    left = at.astype(np.int64)
    share = at - left.astype(np.float32)
    rows = knots[:, left] * (1 - share)[:, None] + knots[:, left + 1] * share[:, None]
    patches = rows[:, :, left] * (1 - share) + rows[:, :, left + 1] * share
    return base[:, None, None, :] + patches[..., None]


def _light(rng: CounterRNG) -> Floats:
    """Light that falls from one side, a little warm or cold, (n, 64, 64, 3)."""
    bright, tint = rng.uniform(0.75, 1.05), rng.uniform(-0.06, 0.06)
    across, down = rng.uniform(-0.2, 0.2), rng.uniform(-0.2, 0.2)
    at = (np.arange(SIDE, dtype=np.float32) - 31.5) / np.float32(SIDE)
    fall = bright[:, None, None] + across[:, None, None] * at + down[:, None, None] * at[:, None]
    tints = np.stack([1 + tint, np.ones_like(tint), 1 - tint], axis=1)
    return fall[..., None] * tints[:, None, None, :]


def _paste(
    canvas: Floats, owner: npt.NDArray[np.int8], layout: Layout, slot: Ints, shadow: Floats, window: int
) -> None:
    """Draw one thing of every scene that has one in its slot."""
    rows = np.flatnonzero(layout.there[np.arange(len(slot)), slot])
    mine = slot[rows]
    x, y, radius = (f[rows, mine] for f in (layout.x, layout.y, layout.radius))
    shape = layout.shape[rows, mine]
    left, top = x.astype(np.int64) - window // 2, y.astype(np.int64) - window // 2
    steps = np.arange(window)
    cos, sin = np.array(ANGLES, dtype=np.float32)[layout.angle[rows, mine]].T[:, :, None, None]
    dx = (left - x + np.float32(0.5)).astype(np.float32)[:, None, None] + steps.astype(np.float32)
    dy = (top - y + np.float32(0.5)).astype(np.float32)[:, None, None] + steps.astype(np.float32)[:, None]
    u, v = dx * cos + dy * sin, dy * cos - dx * sin  # pixels from its middle, turned
    inside = np.empty_like(u)
    for number, name in enumerate(SHAPES):
        some = np.flatnonzero(shape == number)
        reach = radius[some, None, None]
        beyond = _BEYOND[name](u[some] / reach, v[some] / reach)
        inside[some] = np.clip(np.float32(0.5) - beyond * reach, 0, 1)
    paint = _paint(layout.colour[rows, mine], layout.texture[rows, mine], u, v, radius)
    side = canvas.shape[1]
    first = (rows * side + top + _PAD) * side + left + _PAD
    at = (
        first[:, None, None] + steps[:, None] * side + steps
    )  # where its window lies, in the pixels of all scenes
    pixels, owners = canvas.reshape(-1, 3), owner.reshape(-1)
    below = at + 2 * side + 2  # its shadow, first
    pixels[below] = pixels.take(below, axis=0) * (1 - inside * shadow[rows, None, None])[..., None]
    ground = pixels.take(at, axis=0)
    pixels[at] = ground + (paint - ground) * inside[..., None]
    owners[at] = np.where(inside > 0.5, mine[:, None, None].astype(np.int8), owners.take(at))


def _paint(colour: Ints, texture: Ints, u: Floats, v: Floats, radius: Floats) -> Floats:
    """Its colours, (n, 32, 32, 3): two tones where it is striped, spotted or checkered, and a soft shine."""
    light = np.array([_RGB[c] for c in COLOURS], dtype=np.float32)
    second = np.array(
        [[x + (255 - x) * 0.7 if c in _LIGHT_STRIPES else x * 0.42 for x in _RGB[c]] for c in COLOURS],
        dtype=np.float32,
    )
    tone = np.zeros_like(u)
    for number, pattern in enumerate(_PATTERNS):
        some = np.flatnonzero(texture == number)
        tone[some] = pattern(u[some], v[some])
    first, second = light[colour][:, None, None], second[colour][:, None, None]
    shine = 1 - (u + v) * (np.float32(0.09) / radius[:, None, None])
    return (first + (second - first) * tone[..., None]) * shine[..., None]


def _parity(x: Floats) -> Floats:
    whole = np.floor(x)
    return (whole - 2 * np.floor(whole / 2)).astype(np.float32)


def _spots(u: Floats, v: Floats) -> Floats:
    a, b = u / 5 - np.floor(u / 5) - np.float32(0.5), v / 5 - np.floor(v / 5) - np.float32(0.5)
    return (a * a + b * b < 0.1).astype(np.float32)


_PATTERNS: tuple[Callable[[Floats, Floats], Floats], ...] = (
    lambda u, v: np.zeros_like(u),  # noqa: ARG005
    lambda u, v: _parity((u + v) / np.float32(3.4)),
    _spots,
    lambda u, v: np.abs(_parity(u / np.float32(4)) - _parity(v / np.float32(4))),
)


def _length(x: Floats, y: Floats) -> Floats:
    return np.sqrt(x * x + y * y)


def _star(x: Floats, y: Floats) -> Floats:
    """Inside a five-pointed star a point is beyond one of its five lines at most."""
    tips = [ANGLES[round(64 * k / 5) % 64] for k in range(5)]
    lines = np.stack([x * np.float32(sin) - y * np.float32(cos) for cos, sin in tips])
    return np.sort(lines, axis=0)[-2] - np.float32(0.34)


# How far beyond its edge a point is, the thing's radius being one; negative inside.
_BEYOND: dict[str, Callable[[Floats, Floats], Floats]] = {
    "circle": lambda x, y: _length(x, y) - np.float32(0.92),
    "square": lambda x, y: np.maximum(np.abs(x), np.abs(y)) - np.float32(0.82),
    "triangle": lambda x, y: np.maximum(
        y - np.float32(0.66), np.abs(x) * np.float32(0.88) - y * np.float32(0.475) - np.float32(0.5)
    ),
    "cross": lambda x, y: np.minimum(
        np.maximum(np.abs(x) - np.float32(0.95), np.abs(y) - np.float32(0.34)),
        np.maximum(np.abs(y) - np.float32(0.95), np.abs(x) - np.float32(0.34)),
    ),
    "ring": lambda x, y: np.abs(_length(x, y) - np.float32(0.72)) - np.float32(0.25),
    "star": _star,
}
