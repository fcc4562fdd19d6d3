"""Looking at data before training on it: what a set of any kind holds, and what is wrong with it."""

from types import MappingProxyType
from typing import Any

from sightline.data.captions import CaptionSet
from sightline.data.check_captions import check_captions
from sightline.data.check_classes import check_classes
from sightline.data.check_pairs import check_pairs
from sightline.data.check_report import DataReport, OnProgress
from sightline.data.class_set import ClassSet
from sightline.data.dataset import Dataset
from sightline.data.pair_set import PairSet

__all__ = ["MEANINGS", "DataReport", "OnProgress", "check"]

MEANINGS = MappingProxyType(
    {
        "broken": "images that can't be read; they are skipped",
        "cut off": "shards that end too early; what comes before is used",
        "duplicate key": "examples of a shard that have a key of another; they are left out",
        "missing": "images that are named and not there",
        "no caption": "images without a caption",
        "too few": "classes that a training refuses",
        "no class": "images without a class",
        "no word": "captions that are left out",
        "no name": "entries that name no image",
        "too long": "captions of more words than --longest",
        "duplicate": "images that are in more than one split",
        "lacking": "splits that a training needs",
        "none": "splits without a pair",
        "unequal": "splits whose sides differ in length; they can't be paired",
        "empty": "pairs with an empty side; a training refuses them",
        "identical": "pairs with the same text on both sides",
        "ratio": "pairs with one side more than three times as long as the other",
        "double": "pairs that are there more than once",
        "overlap": "sources of another split that are in train",
    }
)  # of the kinds of problems


def check(dataset: Dataset[Any], *, longest: int = 50, on_progress: OnProgress | None = None) -> DataReport:
    """Look at every example of a set.

    Args:
        dataset: Images with captions, sentence pairs (read with ``strict=False``), or images with classes.
        longest: A caption of more words is reported.
        on_progress: Called with the number of images opened so far, for a progress bar.

    Raises:
        ValueError: If not one example can be used.
    """
    if isinstance(dataset, CaptionSet):
        return check_captions(dataset, longest=longest, on_progress=on_progress)
    if isinstance(dataset, PairSet):
        return check_pairs(dataset)
    if isinstance(dataset, ClassSet):
        return check_classes(dataset)
    raise TypeError(f"a set of captions, pairs or classes can be checked, got {type(dataset).__name__}")
