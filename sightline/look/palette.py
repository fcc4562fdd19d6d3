"""The colours of all that Sightline draws: pages, figures, notebooks, terminals; no other file has its own.

Scales are lines of even lightness in OKLCh, a space in which equal steps look equal, so that twice the weight
looks twice as far from nothing. Colours are (red, green, blue) in bytes.
"""

import math
from collections.abc import Callable

__all__ = ["LINES", "THEME", "VEIL", "Colour", "difference", "glow", "hexadecimal", "scale", "weight"]

Colour = tuple[int, int, int]

# Of text, lines and surfaces: on light paper, and on dark.
THEME = {
    "paper": ("#fdfdfc", "#16181d"),
    "card": ("#f4f5f5", "#1f2228"),
    "ink": ("#1b1e24", "#e8eaed"),
    "soft": ("#565c66", "#a6acb7"),
    "line": ("#dcdfe3", "#363b44"),
    "accent": ("#b4460b", "#ff9f5f"),  # what is picked, and nothing else
    "link": ("#0c6b78", "#5cc3cf"),  # what belongs to it
    "alarm": ("#a3261b", "#ff9d92"),
}
VEIL: Colour = (14, 16, 22)  # over an image, where there is little weight


def weight(share: float, *, dark: bool = False) -> Colour:
    """The colour of a weight from 0, which is the paper's, to 1.

    Example:
        >>> weight(0.0), weight(0.0, dark=True)
        ((250, 250, 250), (21, 24, 43))
    """
    if dark:
        return _oklch(
            0.215 + 0.735 * share, 0.015 + 0.125 * math.sin(math.pi * (0.06 + 0.8 * share)), 277 - 82 * share
        )
    return _oklch(0.985 - 0.655 * share, 0.14 * math.sin(math.pi / 2 * share**0.85), 205 + 72 * share)


def difference(share: float, *, dark: bool = False) -> Colour:
    """The colour of a difference from -1, blue-green, over 0, the paper's, to 1, orange."""
    size = abs(share)
    light = 0.215 + 0.6 * size if dark else 0.985 - 0.45 * size
    return _oklch(light, 0.15 * size**0.8, 215.0 if share < 0 else 55.0 if dark else 50.0)


def glow(share: float) -> Colour:
    """The colour of a weight that is painted over an image: from ember to light yellow."""
    return _oklch(0.58 + 0.34 * share, 0.17 - 0.05 * share, 42 + 48 * share)


def scale(colour: Callable[..., Colour], n: int, *, least: float = 0.0, **options: bool) -> list[Colour]:
    """A scale at n even steps from ``least`` to 1.

    Example:
        >>> scale(weight, 3) == [weight(0.0), weight(0.5), weight(1.0)]
        True
    """
    return [colour(least + (1 - least) * i / (n - 1), **options) for i in range(n)]


def hexadecimal(colour: Colour) -> str:
    """As style sheets and figures write it.

    Example:
        >>> hexadecimal((255, 0, 10))
        '#ff000a'
    """
    return "#{:02x}{:02x}{:02x}".format(*colour)


def _oklch(light: float, chroma: float, hue: float) -> Colour:
    """A colour by its lightness, how much colour it has, and which one, in degrees."""
    a, b = chroma * math.cos(math.radians(hue)), chroma * math.sin(math.radians(hue))
    x = (light + 0.3963377774 * a + 0.2158037573 * b) ** 3
    y = (light - 0.1055613458 * a - 0.0638541728 * b) ** 3
    z = (light - 0.0894841775 * a - 1.291485548 * b) ** 3
    linear = (
        4.0767416621 * x - 3.3077115913 * y + 0.2309699292 * z,
        -1.2684380046 * x + 2.6097574011 * y - 0.3413193965 * z,
        -0.0041960863 * x - 0.7034186147 * y + 1.707614701 * z,
    )
    red, green, blue = (round(255 * _gamma(min(max(v, 0.0), 1.0))) for v in linear)
    return red, green, blue


def _gamma(x: float) -> float:
    return 12.92 * x if x <= 0.0031308 else 1.055 * x ** (1 / 2.4) - 0.055


# Of several lines in one figure, told apart by hue and by lightness too.
LINES = tuple(
    hexadecimal(_oklch(light, chroma, hue))
    for light, chroma, hue in (
        (0.49, 0.085, 210.0),  # near to the link's
        (0.55, 0.16, 45.0),  # and to the accent's
        (0.40, 0.13, 277.0),
        (0.66, 0.13, 80.0),
        (0.58, 0.12, 145.0),
        (0.50, 0.15, 345.0),
        (0.70, 0.09, 235.0),
        (0.46, 0.01, 260.0),
    )
)
