"""Images with a class each, in memory as bytes, and how they are split and made to fit a model."""

import math
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from sightline.data.augment_ops import grey
from sightline.data.images import resize_crop
from sightline.shapes import Int, Shaped, did_you_mean

__all__ = ["SPLITS", "ClassSet", "LabelledImages", "empty_images", "fit_image", "split_off"]

SPLITS = ("train", "val", "test")
IN_MEMORY = 4 << 30  # bytes; more images lie in a file that goes away by itself
_AT_ONCE = 4096  # images that are copied from one file to another at a time


@dataclass(frozen=True, slots=True)
class LabelledImages:
    """The examples of one split.

    Attributes:
        images: Bytes.
        labels: A class for each.
    """

    images: Shaped[Tensor, "N C h w"]
    labels: Int[Tensor, " N"]

    def __len__(self) -> int:
        """How many there are."""
        return self.labels.numel()

    def select(self, indices: Int[Tensor, " n"]) -> "LabelledImages":
        """Some of them; in a file, where they are too many for memory."""
        labels = self.labels[indices]
        if self.images[:1].nbytes * len(indices) <= IN_MEMORY:
            return LabelledImages(self.images[indices], labels)
        images = empty_images(len(indices), *self.images.shape[1:])
        for to, which in zip(images.split(_AT_ONCE), indices.split(_AT_ONCE), strict=True):
            to.copy_(self.images[which])
        return LabelledImages(images, labels)


@dataclass(frozen=True, slots=True)
class ClassSet:
    """A set of images with classes, split.

    Attributes:
        names: Of the classes, in the order of their labels.
        parts: The examples of each split, by its name.
        broken: A sentence about each file that was left out.
        stand_ins: Splits without images of their own, and whose they have: ``{"test": "val"}``.
    """

    names: tuple[str, ...]
    parts: Mapping[str, LabelledImages]
    broken: tuple[str, ...] = ()
    stand_ins: Mapping[str, str] = field(default_factory=dict)

    @property
    def counts(self) -> list[int]:
        """How many images there are to learn from, to choose by and to be tested on."""
        return [len(self.parts[name]) for name in SPLITS if name in self.parts]

    def split(self, name: str) -> LabelledImages:
        """The examples of a split: ``train``, ``val`` or ``test``."""
        if name not in self.parts:
            raise ValueError(f"unknown split {name!r}, {did_you_mean(name, self.parts)}")
        return self.parts[name]


def empty_images(n: int, channels: int, height: int, width: int) -> Shaped[Tensor, "n channels height width"]:
    """Memory for the bytes of so many images, or a file where they are too many."""
    shape = (n, channels, height, width)
    if math.prod(shape) <= IN_MEMORY:
        return torch.zeros(shape, dtype=torch.uint8)
    with tempfile.TemporaryFile() as file:  # nameless: gone when the last tensor on it is
        return torch.from_numpy(np.memmap(file, dtype=np.uint8, mode="w+", shape=shape))


def split_off(whole: LabelledImages, share: float, seed: int) -> tuple[LabelledImages, LabelledImages]:
    """Hold out a share of each class, at least one image of it: what is held out, and the rest.

    Example:
        >>> whole = LabelledImages(torch.zeros(10, 1, 2, 2, dtype=torch.uint8), torch.arange(10) % 2)
        >>> held, rest = split_off(whole, 0.2, seed=0)
        >>> sorted(held.labels.tolist()), len(rest)
        ([0, 1], 8)
    """
    if not 0 < share < 1:
        raise ValueError(f"the share to hold out must lie in (0, 1), got {share}")
    generator = torch.Generator().manual_seed(seed)
    held = torch.zeros(len(whole), dtype=torch.bool)
    for label in whole.labels.unique():
        members = (whole.labels == label).nonzero().flatten()
        chosen = torch.randperm(len(members), generator=generator)[: max(1, round(share * len(members)))]
        held[members[chosen]] = True
    return whole.select(held.nonzero().flatten()), whole.select((~held).nonzero().flatten())


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
