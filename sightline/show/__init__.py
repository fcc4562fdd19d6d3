"""Figures: every function takes tensors and returns a matplotlib ``Figure``, to be saved or shown by you.

    figure = sightline.show.weights(weights, queries=words, keys=words)
    figure.savefig("weights.png")

Nothing goes through ``pyplot``: no window opens, no figure stays behind, threads don't meet.
"""

try:
    import matplotlib as mpl  # noqa: F401
except ImportError as missing:
    raise ImportError(
        "sightline.show draws with matplotlib, which is not installed; pip install 'sightline[show]'",
        name="matplotlib",
    ) from missing

from sightline.show.compare import scores
from sightline.show.curves import curves
from sightline.show.heatmap import positions
from sightline.show.layers import entropy
from sightline.show.mass import received, rows
from sightline.show.matrix import mask, masks, weights
from sightline.show.overlay import overlay
from sightline.show.sights import heads, sight_map
from sightline.show.told import Told

__all__ = [
    "Told",
    "curves",
    "entropy",
    "heads",
    "mask",
    "masks",
    "overlay",
    "positions",
    "received",
    "rows",
    "scores",
    "sight_map",
    "weights",
]
