"""The public names of ``sightline``; :mod:`sightline` hands them out when they are first asked for."""

from typing import TYPE_CHECKING

from sightline import nn, positions
from sightline.attention import masks, reference, scores
from sightline.attention.attend import attention
from sightline.attention.masks import Mask
from sightline.edit.edit import edit
from sightline.look.align import align
from sightline.look.sight import Look, Sight
from sightline.watch.monitor import Monitor
from sightline.watch.watch import watch

if TYPE_CHECKING:
    from sightline.look.look import look
else:
    from sightline import look  # a package that can be called

__all__ = [
    "Look",
    "Mask",
    "Monitor",
    "Sight",
    "align",
    "attention",
    "edit",
    "look",
    "masks",
    "nn",
    "positions",
    "reference",
    "scores",
    "watch",
]
