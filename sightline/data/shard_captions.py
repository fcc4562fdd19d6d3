"""Images with captions in shards, read as they are needed: a set of captions of any size."""

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from torch import Tensor

from sightline.data.caption_set import CaptionedImage, CaptionSet, clean
from sightline.data.counter_rng import Ints
from sightline.data.dataset import ALL, find_split, missing_split
from sightline.data.images import BrokenImage, digest, read_image
from sightline.data.shard_examples import ShardExamples
from sightline.data.shard_rows import CAPTION, IMAGE, captions_of
from sightline.data.shards import Shards
from sightline.shapes import Shaped

__all__ = ["CaptionShards", "ShardImages", "read_caption_shards"]

_SHARE = 0.1  # of the examples, for val and for test


class ShardImages:
    """Images that lie in shards, by names such as ``train-000003.tar/17``."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards

    def open(self, name: str, *, size: int | None = None) -> Shaped[Tensor, "3 h w"]:
        """Read and decode one image."""
        return read_image(io.BytesIO(self.read(name)), size=size, name=name)

    def digest(self, name: str) -> str:
        """The hash of the image's bytes."""
        return digest(self.read(name))

    def read(self, name: str) -> bytes:
        """The bytes of an image, as it was encoded."""
        try:
            return self._shards.image(self._shards.find(name))
        except OSError as problem:
            raise BrokenImage(f"the image {name!r} can't be read: {problem}") from problem


class CaptionRecords(ShardExamples[CaptionedImage]):
    """The images of a split with their captions; each is read when it is asked for."""

    @property
    def most_captions(self) -> int:
        """The most captions of one example."""
        return int(self._shards.column("captions")[self._numbers].max(initial=1))


@dataclass(frozen=True, eq=False)
class CaptionShards(CaptionSet):
    """Images with captions in shards.

    Attributes:
        shards: Where they lie.
        parts: The numbers of the examples of each split.
    """

    shards: Shards = field(kw_only=True)
    parts: Mapping[str, Ints] = field(kw_only=True)

    def splits(self) -> dict[str, int]:
        """How many images each split has: train, val and test first."""
        return {name: len(part) for name, part in self.parts.items()}

    def split(self, name: str) -> CaptionRecords:
        """The images of one split, or ``all``, unread."""
        found = find_split(name, self.parts)
        if found is None and name != ALL:
            remedy = f"name some shards {name}-000000{Path(self.shards.names[0]).suffix}"
            raise missing_split(name, self.splits(), self.source, remedy=remedy)
        numbers = self.shards.usable if found is None else self.parts[found]
        return CaptionRecords(self.shards, numbers, partial(_read, self.shards, self.parts))

    def digest(self) -> str:
        """Names the captions, and the names and sizes of the images."""
        return self.shards.digest(dict(self.parts))

    def lines(self, split: str) -> Iterator[str]:
        """Every caption of a split, cleaned, one after the other."""
        return (clean(caption) for record in self.split(split) for caption in record.captions)


def read_caption_shards(paths: Sequence[Path], *, source: str, seed: int = 0) -> CaptionShards:
    """Open tar or parquet shards of images with captions.

    Args:
        paths: The shards.
        source: What the user has called them.
        seed: Deals the examples to splits, where no shard's name tells one.
    """
    shards = Shards(paths, source, IMAGE | CAPTION)
    parts, rule = shards.splits(seed, _SHARE, _SHARE)
    return CaptionShards(
        CaptionRecords(shards, shards.usable, partial(_read, shards, parts)),
        ShardImages(shards),
        tuple(shards.problems),
        source,
        shards.layout,
        rule,
        shards=shards,
        parts=parts,
    )


def _read(shards: Shards, parts: Mapping[str, Ints], number: int) -> CaptionedImage:
    """An image's name, its captions and its split."""
    split = next(name for name, part in parts.items() if _holds(part, number))
    return CaptionedImage(shards.name(number), captions_of(shards.row(number)), split)


def _holds(part: Ints, number: int) -> bool:
    at = int(np.searchsorted(part, number))
    return at < len(part) and int(part[at]) == number
