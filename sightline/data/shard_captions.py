"""Images with captions in shards: captions are read into memory, images when they are needed."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from sightline.data.caption_set import CaptionedImage, CaptionSet
from sightline.data.counter_rng import Ints
from sightline.data.images import digest, read_image
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
        return read_image(io.BytesIO(self._read(name)), size=size, name=name)

    def digest(self, name: str) -> str:
        """The hash of the image's bytes."""
        return digest(self._read(name))

    def _read(self, name: str) -> bytes:
        return self._shards.image(self._shards.find(name))


@dataclass(frozen=True, eq=False)
class CaptionShards(CaptionSet):
    """Images with captions in shards.

    Attributes:
        shards: Where they lie.
        parts: The numbers of the examples of each split.
    """

    shards: Shards = field(kw_only=True)
    parts: Mapping[str, Ints] = field(kw_only=True)

    def digest(self) -> str:
        """Names the captions, and the names and sizes of the images."""
        return self.shards.digest(dict(self.parts))

    def _remedy(self, name: str) -> str:
        return f"name some shards {name}-000000{Path(self.shards.names[0]).suffix}"


def read_caption_shards(paths: Sequence[Path], *, source: str, seed: int = 0) -> CaptionShards:
    """Open tar or parquet shards of images with captions.

    Args:
        paths: The shards.
        source: What the user has called them.
        seed: Deals the examples to splits, where no shard's name tells one.
    """
    shards = Shards(paths, source, IMAGE | CAPTION)
    parts, rule = shards.splits(seed, _SHARE, _SHARE)
    split = {number: name for name, numbers in parts.items() for number in numbers.tolist()}
    records = tuple(
        CaptionedImage(shards.name(number), captions_of(row), split[number]) for number, row in shards.rows()
    )
    return CaptionShards(
        records,
        ShardImages(shards),
        tuple(shards.problems),
        source,
        shards.layout,
        rule,
        shards=shards,
        parts=parts,
    )
