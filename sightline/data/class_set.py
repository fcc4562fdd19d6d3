"""Images with a class each, in memory as bytes, and how they are split and made to fit a model."""

import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import overload

import numpy as np
import torch
from torch import Tensor

from sightline.data.augment_ops import grey
from sightline.data.dataset import (
    ALL,
    SPLITS,
    STATED,
    Problem,
    digest_of,
    find_split,
    in_order,
    missing_split,
)
from sightline.data.images import resize_crop
from sightline.shapes import Bool, Int, Shaped

__all__ = ["ClassSet", "LabelledImages", "empty_images", "fit_image", "hold_out"]

IN_MEMORY = 4 << 30  # bytes; more images lie in a file that goes away by itself
_AT_ONCE = 4096  # images that are copied from one file to another at a time


@dataclass(frozen=True, slots=True)
class LabelledImages(Sequence[tuple[Tensor, int]]):
    """The examples of one split: a sequence of images with their labels.

    Attributes:
        images: Bytes.
        labels: A class for each.
        keys: What the data calls each image; none where it has no names.
    """

    images: Shaped[Tensor, "N C h w"]
    labels: Int[Tensor, " N"]
    keys: tuple[str, ...] = ()

    def __len__(self) -> int:
        """How many there are."""
        return self.labels.numel()

    @overload
    def __getitem__(self, index: int) -> tuple[Tensor, int]: ...
    @overload
    def __getitem__(self, index: slice) -> "LabelledImages": ...
    def __getitem__(self, index: int | slice) -> "tuple[Tensor, int] | LabelledImages":
        """One image and its label, or the examples of a slice."""
        if isinstance(index, slice):
            return LabelledImages(self.images[index], self.labels[index], self.keys[index])
        return self.images[index], int(self.labels[index])

    def select(self, indices: Int[Tensor, " n"]) -> "LabelledImages":
        """Some of them; in a file, where they are too many for memory."""
        labels = self.labels[indices]
        keys = tuple(self.keys[i] for i in indices.tolist()) if self.keys else ()
        if self.images[:1].nbytes * len(indices) <= IN_MEMORY:
            return LabelledImages(self.images[indices], labels, keys)
        images = empty_images(len(indices), *self.images.shape[1:])
        for to, which in zip(images.split(_AT_ONCE), indices.split(_AT_ONCE), strict=True):
            to.copy_(self.images[which])
        return LabelledImages(images, labels, keys)


@dataclass(frozen=True, slots=True)
class ClassSet:
    """A set of images with classes, split: a :class:`~sightline.data.dataset.Dataset`.

    Attributes:
        names: Of the classes, in the order of their labels.
        parts: The examples of each split, by its name.
        problems: What was left out, and why.
        stand_ins: Splits without images of their own, and whose they have: ``{"test": "val"}``.
        source: The folder, the file, or the embedded set's name.
        layout: Which of the formats it has.
        rule: How the splits came about.
    """

    names: tuple[str, ...]
    parts: Mapping[str, LabelledImages]
    problems: Sequence[Problem] = ()
    stand_ins: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    layout: str = ""
    rule: str = STATED

    @property
    def counts(self) -> list[int]:
        """How many images there are to learn from, to choose by and to be tested on."""
        return [len(self.parts[name]) for name in SPLITS if name in self.parts]

    def splits(self) -> dict[str, int]:
        """How many images each split has of its own: train, val and test first."""
        return in_order({name: len(part) for name, part in self.parts.items() if name not in self.stand_ins})

    def split(self, name: str) -> LabelledImages:
        """The examples of a split, or ``all``; of one without images of its own, those that stand for it."""
        found = find_split(name, self.parts)
        if found is not None:
            return self.parts[found]
        if name != ALL:
            raise missing_split(name, self.splits(), self.source)
        own = [self.parts[split] for split in self.splits()]
        return LabelledImages(
            torch.cat([part.images for part in own]),
            torch.cat([part.labels for part in own]),
            tuple(key for part in own for key in part.keys),
        )

    def digest(self) -> str:
        """Names the classes of the images in their order; the images themselves are too many bytes."""
        return digest_of(self.split(name).labels.tolist() for name in ("train", "val"))


def empty_images(n: int, channels: int, height: int, width: int) -> Shaped[Tensor, "n channels height width"]:
    """Memory for the bytes of so many images, or a file where they are too many."""
    shape = (n, channels, height, width)
    if math.prod(shape) <= IN_MEMORY:
        return torch.zeros(shape, dtype=torch.uint8)
    with tempfile.TemporaryFile() as file:  # nameless: gone when the last tensor on it is
        return torch.from_numpy(np.memmap(file, dtype=np.uint8, mode="w+", shape=shape))


def hold_out(labels: Int[Tensor, " N"], share: float, seed: int) -> Bool[Tensor, " N"]:
    """Choose a share of each class, at least one of it, by torch's generator: True for what is held out.

    Example:
        >>> hold_out(torch.arange(10) % 2, 0.2, seed=0).sum()
        tensor(2)
    """
    if not 0 < share < 1:
        raise ValueError(f"the share to hold out must lie in (0, 1), got {share}")
    generator = torch.Generator().manual_seed(seed)
    held = torch.zeros(len(labels), dtype=torch.bool)
    for label in labels.unique():
        members = (labels == label).nonzero().flatten()
        chosen = torch.randperm(len(members), generator=generator)[: max(1, round(share * len(members)))]
        held[members[chosen]] = True
    return held


def fit_image(image: Shaped[Tensor, "C h w"], size: int, channels: int) -> Shaped[Tensor, "c size size"]:
    """Make one image what a model takes: its side and its channels, whatever it was.

    Example:
        >>> fit_image(torch.zeros(3, 20, 30, dtype=torch.uint8), 8, channels=1).shape
        torch.Size([1, 8, 8])
    """
    if image.size(0) == 1 and channels == 3:
        image = image.expand(3, -1, -1)
    elif image.size(0) == 3 and channels == 1:
        image = grey(image[None].float())[0].round().to(torch.uint8)
    return image.contiguous() if image.shape[1:] == (size, size) else resize_crop(image, size)
