"""What figures and pages need of a prediction, as protocols: any record with these fields can be drawn.

The records of :mod:`sightline.tasks` have them; so does a dataclass of your own.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from sightline.show.caption_overlay import Box

__all__ = ["AlternativeRecord", "AttentionRecord", "GridKeys", "PredictionRecord", "crop_note", "name_of"]

_ASPECT = 0.01  # a smaller difference between two ratios of sides is rounding
_ORIENTATION, _SIDEWAYS = 0x0112, range(5, 9)  # the EXIF tag, and its values for a camera held upright


@runtime_checkable
class GridKeys(Protocol):
    """Keys that are the patches of an image, row by row."""

    @property
    def rows(self) -> int:
        """Rows of patches."""

    @property
    def columns(self) -> int:
        """Columns of patches."""

    @property
    def image(self) -> Tensor:
        """``(3, h, w)`` or ``(1, h, w)`` uint8: the model's crop."""

    @property
    def boxes(self) -> Mapping[int, Box]:
        """For some queries, by index, the box of the object that the query names, in pixels."""


@runtime_checkable
class AttentionRecord(Protocol):
    """The attention of one prediction."""

    @property
    def weights(self) -> Tensor:
        """``(L, H, T, S)``: layers, heads, queries, keys."""

    @property
    def queries(self) -> Sequence[str]:
        """T words; of a classifier, the class alone."""

    @property
    def keys(self) -> Sequence[str] | GridKeys:
        """S words, or a grid of S patches."""

    @property
    def summary(self) -> Tensor:
        """``(T, S)``: the one map to show first."""

    @property
    def summary_label(self) -> str:
        """What the summary is, such as "the mean of 8 heads, 4 of each layer"."""

    def select(self, *, layer: int | None = None, head: int | None = None) -> "AttentionRecord":
        """One layer, one head, or one head of one layer; ValueError if there is none."""


@runtime_checkable
class AlternativeRecord(Protocol):
    """Another output for the same input."""

    @property
    def text(self) -> str:
        """The output."""

    @property
    def score(self) -> float:
        """Its score."""


@runtime_checkable
class PredictionRecord(Protocol):
    """What a model made of one input."""

    @property
    def input(self) -> Any:
        """A path or a sentence."""

    @property
    def text(self) -> str:
        """The caption, the translation or the class."""

    @property
    def score(self) -> float:
        """The score of the text."""

    @property
    def alternatives(self) -> Sequence[AlternativeRecord]:
        """All outputs that were kept, best first; the first is the text."""

    @property
    def attention(self) -> AttentionRecord | None:
        """None if it was not recorded."""

    @property
    def references(self) -> Sequence[str]:
        """What people wrote, in an evaluation."""

    @property
    def metrics(self) -> Mapping[str, float]:
        """The scores of this prediction alone, in an evaluation."""


def name_of(source: Any) -> str:
    """What to call the input of a prediction over an image: the name of its file, if it has one.

    Example:
        >>> name_of(Path("photos/dog.jpg")), name_of(object())
        ('dog.jpg', '')
    """
    return Path(source).name if isinstance(source, str | Path) else ""


def crop_note(source: Any, image: Tensor) -> str:
    """A sentence that says what part of a file the model saw; empty if it saw all, or if there is no file.

    Args:
        source: The input of a prediction. Only the path of an image file is looked at.
        image: ``(C, h, w)``, the model's crop.
    """
    size = _file_size(source)
    if size is None:
        return ""
    (width, height), (h, w) = size, image.shape[1:]
    if abs(width / height - w / h) < _ASPECT:
        return ""
    scale = min(width / w, height / h)
    return (
        f"The image as the model sees it: the middle {round(scale * w)} x {round(scale * h)} "
        f"of {width} x {height} pixels."
    )


def _file_size(source: Any) -> tuple[int, int] | None:
    """Width and height of an image file, turned upright; None if it is not the path of one."""
    from PIL import Image  # noqa: PLC0415

    try:
        path = Path(source)
        if not path.is_file():
            return None
        with Image.open(path) as file:
            width, height = file.size
            turned = file.getexif().get(_ORIENTATION, 1) in _SIDEWAYS
    except Exception:  # noqa: BLE001  a decoder raises anything; without a size there is no note
        return None
    return (height, width) if turned else (width, height)
