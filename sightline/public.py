"""The public names of ``sightline``; :mod:`sightline` hands them out when they are first asked for."""

from sightline import models, nn, positions, tasks
from sightline.attention import masks, reference, scores
from sightline.attention.attend import attention
from sightline.attention.masks import Mask
from sightline.look.look import look
from sightline.look.sight import Look, Sight
from sightline.look.watch import watch

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
    "tasks",
    "watch",
]
