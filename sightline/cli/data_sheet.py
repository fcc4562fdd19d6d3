"""The contact sheet of ``sightline data check``: some images of each split, and the first broken ones."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from torch import Tensor

from sightline.data.captions import CaptionSet
from sightline.data.check import DataReport
from sightline.data.class_set import ClassSet
from sightline.data.dataset import Dataset
from sightline.data.images import resize_crop
from sightline.show.contact import contact_sheet as draw_sheet

__all__ = ["contact_sheet"]

_PIXELS = 240  # a tile's side
_BROKEN = 6  # tiles for images that can't be read
_TILES = {"train": 12, "val": 6, "test": 6}


class _Tile(NamedTuple):
    image: Tensor | None
    text: str
    label: str


def contact_sheet(dataset: Dataset[Any], report: DataReport) -> Figure:
    """Some images of each split, drawn by a hash of their names, and the first broken ones.

    Raises:
        ValueError: If the set has no images.
    """
    broken = {problem.name: problem.sentence for problem in report.by_kind().get("broken", [])}
    if isinstance(dataset, CaptionSet):
        tiles = list(_captioned(dataset, broken, report))
    elif isinstance(dataset, ClassSet):
        tiles = list(_classified(dataset, report))
    else:
        raise ValueError(  # noqa: TRY004  of a user's choice
            f"a contact sheet is of images, {report.source!r} has {report.about}; leave out --out"
        )
    tiles += [
        _Tile(None, text, f"broken  {Path(name).name}") for name, text in list(broken.items())[:_BROKEN]
    ]
    counts = ", ".join(f"{name} {numbers['images']:,}" for name, numbers in report.splits.items())
    return draw_sheet(
        [tile.image for tile in tiles],
        [tile.text for tile in tiles],
        labels=[tile.label for tile in tiles],
        title=f"{Path(report.source).name}: {counts}",
    )


def _captioned(captions: CaptionSet, broken: dict[str, str], report: DataReport) -> Iterator[_Tile]:
    for split in report.splits:
        records = [x for x in captions.split(split) if x.name not in broken]
        records.sort(key=lambda x: _hash(x.name))
        for record in records[: _TILES.get(split, 6)]:
            label = f"{record.split}  {Path(record.name).name}"
            yield _Tile(captions.open(record, size=_PIXELS), record.captions[0], label)


def _classified(classes: ClassSet, report: DataReport) -> Iterator[_Tile]:
    for split in report.splits:
        part = classes.parts[split]
        keys = part.keys or tuple(map(str, range(len(part))))
        for i in sorted(range(len(part)), key=lambda i: _hash(keys[i]))[: _TILES.get(split, 6)]:
            image, label = part[i]
            shown = resize_crop(image.expand(3, -1, -1), _PIXELS)
            yield _Tile(shown, classes.names[label], f"{split}  {Path(keys[i]).name}")


def _hash(name: str) -> bytes:
    return hashlib.sha256(name.encode(errors="surrogatepass")).digest()
