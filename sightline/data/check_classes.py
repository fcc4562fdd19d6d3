"""What a set of images with classes holds, and what is wrong with it."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from sightline.data.check_captions import find_duplicates
from sightline.data.check_report import Cell, DataReport
from sightline.data.class_set import ClassSet, LabelledImages
from sightline.data.dataset import Problem
from sightline.data.images import digest
from sightline.data.shard_classes import ShardPixels

__all__ = ["check_classes"]

_UNEVEN = 10  # the largest class so many times as large as the smallest
_COLUMNS: MappingProxyType[str, Cell] = MappingProxyType(
    {
        "images": lambda x: f"{x['images']:,}",
        "classes": lambda x: f"{x['classes']:,}",
        "fewest": lambda x: _shown(x["fewest"]),
        "most": lambda x: _shown(x["most"]),
    }
)


def check_classes(classes: ClassSet) -> DataReport:
    """Count images by split and class, and name what was left out, and what is in two splits.

    Args:
        classes: The set; its images are compared as a model would see them.
    """
    parts = {name: classes.parts[name] for name in classes.splits()}
    places = (
        (digest(image), split, _name(part, i))
        for split, part in parts.items()
        for i, image in enumerate(part.images)
        if i not in _broken(part)
    )
    duplicates, repeated = find_duplicates(places)
    broken = [
        Problem("broken", _name(part, i), sentence)
        for part in parts.values()
        for i, sentence in _broken(part).items()
    ]
    splits = {name: _numbers(part, classes.names) for name, part in parts.items()}
    notes = [
        f"{split!r} has no images of its own: {other!r} stands for it"
        for split, other in classes.stand_ins.items()
    ]
    least, most = splits["train"]["fewest"], splits["train"]["most"]
    if most["images"] > _UNEVEN * least["images"]:
        notes.append(
            f"uneven: {most['class']!r} has {most['images']:,} images in train and {least['class']!r} has "
            f"{least['images']:,}"
        )
    if repeated:
        notes.append(f"repeated ({repeated:,}): images that are twice in their split")
    return DataReport(
        source=classes.source,
        rule=classes.rule,
        about=f"{len(classes.names)} classes, {classes.layout}",
        splits=splits,
        columns=_COLUMNS,
        problems=(*classes.problems, *broken, *duplicates),
        facts={"layout": classes.layout, "classes": list(classes.names), "repeated": repeated},
        notes=tuple(notes),
    )


def _numbers(part: LabelledImages, names: tuple[str, ...]) -> dict[str, Any]:
    """One split: images, the classes that it has, the smallest and the largest of all."""
    counts = part.labels.bincount(minlength=len(names)).tolist()
    least, most = min(counts), max(counts)
    return {
        "images": len(part),
        "classes": sum(count > 0 for count in counts),
        "fewest": {"class": names[counts.index(least)], "images": least},
        "most": {"class": names[counts.index(most)], "images": most},
    }


def _broken(part: LabelledImages) -> Mapping[int, str]:
    """The images that were looked at and can't be read; in memory are only those that can."""
    return part.images.broken if isinstance(part.images, ShardPixels) else {}


def _name(part: LabelledImages, i: int) -> str:
    if isinstance(part.images, ShardPixels):
        return part.images.name(i)
    return part.keys[i] if part.keys else f"image {i}"


def _shown(one: dict[str, Any]) -> str:
    return f"{one['images']:,} ({one['class']})"
