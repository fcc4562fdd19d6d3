"""What can be asked of attention weights; ``sl.measures``.

    sl.look(q, k, v, measure=[sl.measures.Entropy(), sl.measures.Mass(groups)])     # while looking
    sight.ask(sl.measures.Coverage(0.9))                                            # afterwards

Subclass :class:`sightline.Measure` for a measure of your own.
"""

from sightline.look.measure import Lse, Measure
from sightline.look.measures_basic import Entropy, Logit, Map, Peak, Received, Rows, Top
from sightline.look.measures_more import (
    Applied,
    Band,
    Columns,
    Coverage,
    Distance,
    Mass,
    Offsets,
    ReceivedFrom,
    Relevance,
    Segments,
    Weighted,
)
from sightline.look.source import Out
from sightline.look.weights import TileWeights

__all__ = [
    "Applied",
    "Band",
    "Columns",
    "Coverage",
    "Distance",
    "Entropy",
    "Logit",
    "Lse",
    "Map",
    "Mass",
    "Measure",
    "Offsets",
    "Out",
    "Peak",
    "Received",
    "ReceivedFrom",
    "Relevance",
    "Rows",
    "Segments",
    "TileWeights",
    "Top",
    "Weighted",
]
