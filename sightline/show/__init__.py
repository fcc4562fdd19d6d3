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

from sightline.show.caption_overlay import CaptionOverlay, Told
from sightline.show.compare import scores
from sightline.show.curves import curves
from sightline.show.heatmap import positions
from sightline.show.layers import entropy
from sightline.show.mass import received, rows
from sightline.show.matrix import mask, masks, weights
from sightline.show.overlay import overlay
from sightline.show.prediction import overlays, prediction
from sightline.show.sights import heads, sight_map

__all__ = [
    "CaptionOverlay",
    "Told",  # until cli/ is rebuilt
    "curves",
    "entropy",
    "heads",
    "mask",
    "masks",
    "overlay",
    "overlays",
    "positions",
    "prediction",
    "received",
    "rows",
    "scores",
    "sight_map",
    "weights",
]
