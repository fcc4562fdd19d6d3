"""A split of a set of captions as a training takes it: pictures, and captions as ids."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from sightline.data.captions import CaptionedImage
from sightline.shapes import Int
from sightline.tasks.caption.pixels import Pictures, Streamed

__all__ = ["Split"]


@dataclass(frozen=True, eq=False)
class Split:
    """The images of a split and their captions as ids.

    Attributes:
        records: What was said, as it was written.
        pictures: What the model sees.
        ids: BOS, words, EOS, padded; a row of PAD where an image has fewer captions than the most.
    """

    records: Sequence[CaptionedImage]
    pictures: Pictures
    ids: Int[Tensor, "n C L"]

    def readable_rows(self, indices: Sequence[int]) -> list[int]:
        """The rows of a batch that was loaded whose pictures could be read."""
        broken = self.pictures.broken if isinstance(self.pictures, Streamed) else ()
        return [row for row, i in enumerate(indices) if i not in broken]
