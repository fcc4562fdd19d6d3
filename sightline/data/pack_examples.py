"""The examples of any set as they go into shards: encoded images, and what is said of each."""

import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from sightline.data.caption_set import CaptionSet
from sightline.data.class_set import ClassSet, LabelledImages
from sightline.data.classes import class_files
from sightline.data.dataset import Dataset
from sightline.data.image_files import ImageFiles
from sightline.data.images import BrokenImage, read_image
from sightline.data.pair_set import PairSet
from sightline.data.shard_captions import ShardImages
from sightline.data.shard_classes import ShardPixels
from sightline.messages import logger

__all__ = ["PackedExample", "class_names_of", "packed_examples"]

_ENDINGS = {"JPEG": "jpg", "JPEG2000": "jp2", "TIFF": "tif", "PPM": "ppm"}  # of others, the format's own name
_SMALL = 8  # pixels a side: enough to know that an image can be read


@dataclass(frozen=True, slots=True)
class PackedExample:
    """One example.

    Attributes:
        name: What the data calls it.
        image: Its image as it was encoded; None for a pair.
        ending: Of a file of that image: ``jpg``, ``png``.
        captions: What was said of it.
        label: The number of its class.
        sides: The two texts of a pair, by language.
    """

    name: str
    image: bytes | None = None
    ending: str = ""
    captions: tuple[str, ...] = ()
    label: int | None = None
    sides: Mapping[str, str] = field(default_factory=dict)


def packed_examples(dataset: Dataset[Any], split: str) -> Iterator[PackedExample]:
    """The examples of a split in their order; an image that can't be read is logged and left out.

    Raises:
        TypeError: If the set is of another kind than captions, classes and pairs.
    """
    if isinstance(dataset, CaptionSet):
        return _captioned(dataset, split)
    if isinstance(dataset, ClassSet):
        return _classified(dataset, split)
    if isinstance(dataset, PairSet):
        return _paired(dataset, split)
    raise TypeError(f"a set of captions, pairs or classes can be packed, got {type(dataset).__name__}")


def class_names_of(dataset: Dataset[Any]) -> tuple[str, ...] | None:
    """The names of the classes, where it is a set of classes."""
    return dataset.names if isinstance(dataset, ClassSet) else None


def _captioned(dataset: CaptionSet, split: str) -> Iterator[PackedExample]:
    read = _reader(dataset)
    for record in dataset.split(split):
        image = _encoded(record.name, partial(read, record.name))
        if image is not None:
            yield PackedExample(record.name, *image, captions=record.captions)


def _reader(dataset: CaptionSet) -> Callable[[str], bytes]:
    """How the encoded image of a name is had; one that is drawn is encoded."""
    images = dataset.images
    if isinstance(images, ImageFiles):
        return lambda name: images.files.read(images.paths[name])
    if isinstance(images, ShardImages):
        return images.read
    return lambda name: _png(images.open(name))


def _classified(dataset: ClassSet, split: str) -> Iterator[PackedExample]:
    part = dataset.split(split)
    read = _class_reader(dataset, part)
    for i, label in enumerate(part.labels.tolist()):
        name = part.keys[i] if part.keys else f"{split} {i}"
        image = _encoded(name, partial(read, i))
        if image is not None:
            yield PackedExample(name, *image, label=label)


def _class_reader(dataset: ClassSet, part: LabelledImages) -> Callable[[int], bytes]:
    images = part.images
    if isinstance(images, ShardPixels):
        return images.read
    if part.keys and Path(dataset.source).exists():
        files = class_files(Path(dataset.source))
        return lambda i: files.read(part.keys[i])
    return lambda i: _png(images[i])  # an array, or an embedded set


def _paired(dataset: PairSet, split: str) -> Iterator[PackedExample]:
    languages = (dataset.source_language, dataset.target_language)
    for number, pair in enumerate(dataset.split(split), 1):
        if pair.source and pair.target:
            yield PackedExample(f"{split} {number}", sides=dict(zip(languages, pair, strict=True)))
        else:
            logger.warning("pair %d of %s has an empty side; it is left out", number, split)


def _encoded(name: str, read: Callable[[], bytes]) -> tuple[bytes, str] | None:
    """An image as it was encoded, and its ending; None, and a line, if it can't be read."""
    try:
        content = read()
        read_image(io.BytesIO(content), size=_SMALL, name=name)
    except (BrokenImage, OSError) as problem:
        logger.warning("%s; it is left out", problem)
        return None
    from PIL import Image  # noqa: PLC0415  an extra

    with Image.open(io.BytesIO(content)) as picture:
        form = picture.format or "PNG"
    return content, _ENDINGS.get(form, form.lower())


def _png(image: Tensor) -> bytes:
    from PIL import Image  # noqa: PLC0415  an extra

    pixels = image[0] if len(image) == 1 else image.permute(1, 2, 0)
    content = io.BytesIO()
    Image.fromarray(pixels.contiguous().numpy()).save(content, format="PNG")
    return content.getvalue()
