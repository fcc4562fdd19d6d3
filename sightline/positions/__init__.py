"""Positions: attention does not know the order of its inputs, so it is added to them or to queries and keys.

==========================  ==================================================================
to learn about              read
==========================  ==================================================================
sines and cosines           ``sinusoidal.py``: a fixed vector for every position, added
images                      ``grid.py``: half the channels for the row, half for the column
a trained table             ``learned.py``: one parameter vector for every position, added
relative positions          ``rotary.py``: queries and keys are turned, nothing is added
neighbours in an image      ``relative.py``: a learned bias for each distance, added to the scores
==========================  ==================================================================
"""

from sightline.positions.grid import SinusoidalPositions2d, sinusoidal_2d
from sightline.positions.learned import LearnedPositions
from sightline.positions.relative import RelativeBias2d
from sightline.positions.rotary import Rotary
from sightline.positions.sinusoidal import SinusoidalPositions, shift_matrix, sinusoidal

__all__ = [
    "POSITIONS",
    "LearnedPositions",
    "RelativeBias2d",
    "Rotary",
    "SinusoidalPositions",
    "SinusoidalPositions2d",
    "shift_matrix",
    "sinusoidal",
    "sinusoidal_2d",
]

POSITIONS = ("sinusoidal", "learned", "rotary")  # what a model's setting may name
