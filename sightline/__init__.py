"""Sightline: attention, from the equation to the trained model, and a line of sight into any of them.

import sightline as sl

sl.reference.scaled_dot_product_attention(q, k, v, mask)   # the equation, with its weights
sl.attention(q, k, v, sl.masks.causal())                   # the same output, by the fastest exact way
sl.nn.TransformerEncoderLayer(512, 8)                      # torch's layers, drop-in
sl.look(q, k, v).entropy                                   # what it attended to, without the matrix
with sl.watch(model) as seen: model(x)                     # the same of any model
sl.models.Captioner.load("runs/demo")                      # trained by ``sightline train``
"""

from typing import TYPE_CHECKING

from sightline import models, nn, positions
from sightline.attention import masks, reference, scores
from sightline.attention.attend import attention
from sightline.attention.masks import Mask
from sightline.look.sight import Look, Sight
from sightline.look.watch import watch

if TYPE_CHECKING:
    from sightline.look.look import look
else:
    from sightline import look  # a package that can be called: sl.look(q, k, v), sl.look.heads

__version__ = "0.1.0"
__all__ = [
    "Look",
    "Mask",
    "Sight",
    "attention",
    "look",
    "masks",
    "models",
    "nn",
    "positions",
    "reference",
    "scores",
    "watch",
]
