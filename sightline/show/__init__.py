"""Figures and pages. Every function here returns a matplotlib ``Figure``, for you to save or show.

    figure = sightline.show.weights(weights, queries=words, keys=words)
    figure.savefig("weights.png")

    figure = sightline.show.prediction(p)         # of a run: an overlay or an alignment, by its keys

    sightline.show.page(seen).save("page.html")   # views to walk through

Pages of text, one HTML file each, come from :mod:`sightline.show.pages`. Nothing goes through ``pyplot``:
no window opens, no figure stays in memory, threads don't share state.
"""

try:
    import matplotlib as mpl  # noqa: F401
except ImportError as missing:
    raise ImportError(
        "sightline.show draws with matplotlib, which is not installed; pip install 'sightline[show]'",
        name="matplotlib",
    ) from missing

from sightline.show import pages
from sightline.show.beam_tree import beam_tree
from sightline.show.caption_overlay import CaptionOverlay
from sightline.show.compare import scores
from sightline.show.curves import curves
from sightline.show.explorer import Page, Step, page
from sightline.show.heatmap import positions
from sightline.show.layers import entropy
from sightline.show.mass import received, rows
from sightline.show.matrix import mask, masks, weights
from sightline.show.overlay import overlay
from sightline.show.prediction import overlays, prediction
from sightline.show.sights import heads, sight_map

__all__ = [
    "CaptionOverlay",
    "Page",
    "Step",
    "beam_tree",
    "curves",
    "entropy",
    "heads",
    "mask",
    "masks",
    "overlay",
    "overlays",
    "page",
    "pages",
    "positions",
    "prediction",
    "received",
    "rows",
    "scores",
    "sight_map",
    "weights",
]
