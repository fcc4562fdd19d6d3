"""Images with classes in shards, decoded as they are needed: a set of classes of any size."""

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sightline.data.class_set import ClassSet, LabelledImages, fit_image
from sightline.data.counter_rng import Ints
from sightline.data.dataset import ALL, STATED, Problem
from sightline.data.images import BrokenImage, read_image
from sightline.data.shard_readers import Encoded
from sightline.data.shard_rows import IMAGE, LABEL
from sightline.data.shards import Shards, deal
from sightline.data.stream import Stream, stream_of
from sightline.messages import logger
from sightline.shapes import Shaped

__all__ = ["ClassShards", "ShardPixels", "read_class_shards"]


class ShardPixels:
    """The images of a split as one tensor of bytes would give them, but each is decoded when it is asked for.

    Attributes:
        broken: Why those that could not be read so far can't be, by their places; their pixels are zeros.
    """

    def __init__(self, shards: Shards, numbers: Ints, size: int, channels: int) -> None:
        self._shards, self._numbers, self._size, self._channels = shards, numbers, size, channels
        self.broken: dict[int, str] = {}

    @property
    def shape(self) -> torch.Size:
        """(N, C, h, w)."""
        return torch.Size((len(self._numbers), self._channels, self._size, self._size))

    def __len__(self) -> int:
        """How many there are."""
        return len(self._numbers)

    def __iter__(self) -> Iterator[Shaped[Tensor, "C h w"]]:
        """One after the other."""
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: Any) -> Tensor:
        """One image, or those of a tensor of places or of a slice.

        A broken one is named the first time, and zeros.
        """
        if isinstance(index, slice):
            index = torch.arange(len(self))[index]
        if not isinstance(index, Tensor):
            return self._decoded(int(index) % len(self))
        return self._together([self._decoded(i) for i in index.tolist()])

    def split(self, n: int) -> Iterator[Tensor]:
        """All of them, so many at a time."""
        return (self[i : i + n] for i in range(0, len(self), n))

    def open(self, i: int, encoded: Encoded | None = None) -> Shaped[Tensor, "C h w"]:
        """One image, read now or by a stream.

        Raises:
            BrokenImage: If it can't be read.
        """
        content = self._shards.image(int(self._numbers[i])) if encoded is None else encoded
        if isinstance(content, str):
            raise BrokenImage(content)
        image = read_image(io.BytesIO(content), size=self._size, name=self.name(i))
        return fit_image(image, self._size, self._channels)

    def name(self, i: int) -> str:
        """What one is called: ``train-000003.tar/17``."""
        return self._shards.name(int(self._numbers[i]))

    def stream(self, *, batch_size: int, seed: int, threads: int) -> Stream | None:
        """All of them in an order of each epoch's own; None where they are few enough for any order."""
        return stream_of(self._shards, self._numbers, batch_size=batch_size, seed=seed, threads=threads)

    def decode(self, places: Sequence[int], encoded: Sequence[Encoded]) -> Shaped[Tensor, "B C h w"]:
        """Those that a stream has read; a broken one is named the first time, and zeros."""
        return self._together([self._decoded(i, x) for i, x in zip(places, encoded, strict=True)])

    def _together(self, images: list[Tensor]) -> Tensor:
        return torch.stack(images) if images else torch.zeros(0, *self.shape[1:], dtype=torch.uint8)

    def _decoded(self, i: int, encoded: Encoded | None = None) -> Tensor:
        try:
            return self.open(i, encoded)
        except BrokenImage as problem:
            if i not in self.broken:
                logger.warning("%s; it is left out", problem)
            self.broken[i] = str(problem)
            return torch.zeros(self.shape[1:], dtype=torch.uint8)


@dataclass(frozen=True, slots=True)
class ClassShards(ClassSet):
    """Images with classes in shards; their pixels are :class:`ShardPixels`.

    Attributes:
        whole: All examples, whatever their split.
    """

    whole: LabelledImages | None = field(default=None, kw_only=True)

    def split(self, name: str) -> LabelledImages:
        """The examples of a split, or ``all``."""
        if name == ALL and self.whole is not None:
            return self.whole
        return ClassSet.split(self, name)


def read_class_shards(
    paths: Sequence[Path],
    *,
    source: str,
    image_size: int = 64,
    channels: int = 3,
    seed: int = 0,
    val: float = 0.1,
    test: float = 0.1,
    strict: bool = True,
) -> ClassShards:
    """Open tar or parquet shards of images with classes; arguments as for ``read_classes``.

    Args:
        paths: The shards.
        source: What the user has called them.
        image_size, channels: What images are made to be.
        seed, val, test: Of the deal, where no shard's name tells its split; with a train split alone, val is
            held out of it.
        strict: Refuse a single class.

    Raises:
        ValueError: If there are no classes, or one that is not in train.
    """
    shards = Shards(paths, source, IMAGE | LABEL)
    names, labels = shards.labels()
    parts, rule = shards.splits(seed, val, test, labels)
    if val and rule == STATED and "train" in parts and "val" not in parts:
        parts |= deal(parts["train"], seed, val, 0.0, labels)
        rule = f"{val:g} of each class of train val, by a hash of seed {seed} and the place in the shards"
    if "train" not in parts:
        raise ValueError(f"{source!r} has splits, {', '.join(parts)}, but no train among them")
    trained = np.unique(labels[parts["train"]])
    for split, numbers in parts.items():
        strange = np.setdiff1d(labels[numbers], trained)
        if len(strange):
            raise ValueError(f"every class must be in train, {names[strange[0]]!r} is in {split} only")
    problems = list(shards.problems)
    if len(trained) < 2:
        sentence = f"there must be at least 2 classes to tell apart, {source!r} has {len(trained)}"
        if strict:
            raise ValueError(sentence)
        problems.append(Problem("too few", source, sentence))

    def labelled(numbers: Ints) -> LabelledImages:
        pixels: Any = ShardPixels(shards, numbers, image_size, channels)
        return LabelledImages(pixels, torch.from_numpy(labels[numbers]))

    found = {split: labelled(numbers) for split, numbers in parts.items()}
    return ClassShards(
        tuple(names),
        found,
        tuple(problems),
        _stand_ins(found),
        source,
        shards.layout,
        rule,
        whole=labelled(shards.usable),
    )


def _stand_ins(parts: dict[str, LabelledImages]) -> Mapping[str, str]:
    """Where a split has no images of its own, another stands for it."""
    stand_ins = {}
    for split, others in (("val", ("test", "train")), ("test", ("val",))):
        if split not in parts:
            stand_ins[split] = next(x for x in others if x in parts)
            parts[split] = parts[stand_ins[split]]
    return stand_ins
