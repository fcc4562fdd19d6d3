"""What is known of a call apart from its weights: its shape if it was left out, and who named its padding."""

from typing import NamedTuple

from torch import Tensor

from sightline.shapes import Int

__all__ = ["NO_PADDING", "UNKNOWN_PADDING", "CallShape"]

NO_PADDING = ""  # nobody has said that anything is padding
UNKNOWN_PADDING = "unknown"  # somebody has, of a sequence of another length


class CallShape(NamedTuple):
    """A call that was not measured: all that is known is where it leaves those after it."""

    lead: tuple[int, ...]
    t: int
    s: int
    parents: Int[Tensor, " B"] | None = None
