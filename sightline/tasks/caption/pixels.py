"""The pictures of a split, wherever they are kept: on the device, on disk, or as a frozen encoder's grids."""

import io
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from sightline.data.augment import Augment, apply_augment, as_floats
from sightline.data.captions import CaptionedImage, CaptionSet
from sightline.data.counter_rng import random_integers
from sightline.data.features import Features, cache_features
from sightline.data.images import BrokenImage, read_image
from sightline.data.shard_readers import Encoded
from sightline.messages import logger
from sightline.models.caption_encoders import pretrained_grid, pretrained_network, signature_of
from sightline.shapes import Float, Int, Shaped

__all__ = [
    "Grids",
    "Pictures",
    "Pixels",
    "Streamed",
    "load_grids",
    "no_image_error",
    "read_all",
    "read_images",
]

_VIEW = 7  # the stream of draws that picks a view


@runtime_checkable
class Pictures(Protocol):
    """The pictures of a split, wherever they are kept."""

    def load(self, indices: Sequence[int], epoch: int) -> Tensor | None:
        """What has to be read for a batch, on the CPU; None where all is on the device."""
        ...

    def take(
        self, loaded: Tensor | None, indices: Int[Tensor, " B"], epoch: Int[Tensor, ""] | None
    ) -> Tensor:
        """What the model takes for a batch, on the device; without an epoch nothing is augmented."""
        ...

    def to(self, device: torch.device) -> None:
        """Move to the device."""
        ...


class Pixels:
    """All pictures as bytes on the device, augmented there."""

    def __init__(self, images: Shaped[Tensor, "n 3 h w"], augment: Augment, seed: int) -> None:
        self.images = images
        self._augment = augment
        self._seed = seed

    def load(self, indices: Sequence[int], epoch: int) -> None:
        """Nothing: all is there."""

    def take(
        self, loaded: Tensor | None, indices: Int[Tensor, " B"], epoch: Int[Tensor, ""] | None
    ) -> Float[Tensor, "B 3 h w"]:
        """Floats from -1 to 1."""
        images = self.images[indices] if loaded is None else loaded
        if epoch is None:
            return as_floats(images)
        return apply_augment(images, self._augment, seed=self._seed, epoch=epoch, indices=indices)

    def to(self, device: torch.device) -> None:
        """Move to the device."""
        self.images = self.images.to(device)


class Streamed(Pixels):
    """Pictures read anew for every batch, where there are too many to keep."""

    def __init__(
        self, captions: CaptionSet, records: Sequence[CaptionedImage], size: int, augment: Augment, seed: int
    ) -> None:
        super().__init__(torch.empty(0, 3, size, size, dtype=torch.uint8), augment, seed)
        self._captions, self._records, self._size = captions, records, size
        self.broken: set[int] = set()  # those met so far

    def load(self, indices: Sequence[int], epoch: int) -> Tensor:  # type: ignore[override]  # noqa: ARG002
        """Read them; a broken one is named the first time, and black: who loads it leaves it out."""
        return self.decode(indices, [None] * len(indices))

    def decode(self, indices: Sequence[int], encoded: Sequence[Encoded | None]) -> Shaped[Tensor, "B 3 h w"]:
        """The same for those that a stream has read."""
        images = torch.zeros(len(indices), 3, self._size, self._size, dtype=torch.uint8)
        for row, (i, content) in enumerate(zip(indices, encoded, strict=True)):
            try:
                images[row] = self._opened(self._records[i], content)
            except BrokenImage as problem:
                if i not in self.broken:
                    logger.warning("%s; it is left out", problem)
                self.broken.add(i)
        return images

    def _opened(self, record: CaptionedImage, encoded: Encoded | None) -> Shaped[Tensor, "3 h w"]:
        if encoded is None:
            return self._captions.open(record, size=self._size)
        if isinstance(encoded, str):
            raise BrokenImage(encoded)
        return read_image(io.BytesIO(encoded), size=self._size, name=record.name)

    def to(self, device: torch.device) -> None:
        """Nothing is kept."""


class Grids:
    """The grids of a frozen encoder, one or more views of each picture, the first without augmentation.

    Args:
        features: The grids on disk, without broken pictures.
        rows: Their number in ``features``, for each picture.
        seed: Of the run; draws the views.
        resident: Whether to keep all on the device, or to read each batch from the disk's cache.
    """

    def __init__(self, features: Features, rows: Sequence[int], seed: int, *, resident: bool) -> None:
        self._features, self._rows, self._seed = features, rows, seed
        self._grids: Float[Tensor, "n views P C"] | None = None
        if resident:
            views = [features.whole(view)[list(rows)] for view in range(features.views)]
            self._grids = torch.stack(views, dim=1)

    def load(self, indices: Sequence[int], epoch: int) -> Float[Tensor, "B P C"] | None:
        """One view of each, another one each epoch; None where all is on the device."""
        if self._grids is not None:
            return None
        views = random_integers(self._features.views, self._seed, epoch, torch.tensor(indices), stream=_VIEW)
        return self._features.grids([self._rows[i] for i in indices], views.tolist())

    def take(
        self, loaded: Tensor | None, indices: Int[Tensor, " B"], epoch: Int[Tensor, ""] | None
    ) -> Float[Tensor, "B P C"]:
        """One view of each on the device; without an epoch the first."""
        if self._grids is None:
            if epoch is not None and loaded is not None:
                return loaded
            return self._features.grids([self._rows[i] for i in indices.tolist()]).to(indices.device)
        if epoch is None or self._grids.size(1) == 1:
            return self._grids[indices, 0]
        view = random_integers(self._grids.size(1), self._seed, epoch, indices, stream=_VIEW)
        return self._grids[indices, view]

    def to(self, device: torch.device) -> None:
        """Move to the device what is in memory."""
        if self._grids is not None:
            self._grids = self._grids.to(device)


def load_grids(
    captions: CaptionSet,
    records: Sequence[CaptionedImage],
    *,
    encoder: str,
    size: int,
    views: int,
    seed: int,
    device: torch.device,
    folder: str | None,
    resident_bytes: int,
) -> tuple[Grids, list[CaptionedImage]]:
    """The grids of a frozen encoder, from disk or computed now; broken pictures are logged and left out."""
    net = pretrained_network(encoder).to(device)
    tenths = 0

    def report(done: int, total: int) -> None:
        nonlocal tenths
        if 10 * done // total > tenths:
            tenths = 10 * done // total
            logger.info("grids of %s: %d of %d", encoder, done, total)

    features = cache_features(
        captions,
        records,
        encode=lambda images: pretrained_grid(net, images, size),
        signature=signature_of(encoder, net, size),
        size=size,
        views=views,
        folder=None if folder is None else Path(folder),
        device=device,
        progress=report,
    )
    for problem in features.broken.values():
        logger.warning("%s; it is left out", problem)
    rows = [i for i in range(len(records)) if i not in features.broken]
    if not rows:
        raise no_image_error(captions, len(records))
    n_bytes = len(rows) * views * features.shape[0] * features.shape[1] * 2
    grids = Grids(features, rows, seed, resident=n_bytes <= resident_bytes)
    return grids, [records[i] for i in rows]


def read_all(
    captions: CaptionSet, records: Sequence[CaptionedImage], size: int, *, threads: int = 2
) -> tuple[Shaped[Tensor, "n 3 size size"], list[CaptionedImage]]:
    """Read all pictures; those that are broken are logged and left out.

    Raises:
        ValueError: If not one could be read.
    """
    images, good = read_images(captions, records, size, threads=threads)
    if not good:
        raise no_image_error(captions, len(records))
    return images, good


def no_image_error(captions: CaptionSet, n: int) -> ValueError:
    """The sentence for a split without a picture that can be read."""
    return ValueError(f"not one of {n} images of {captions.source!r} could be read")


def read_images(
    captions: CaptionSet, records: Sequence[CaptionedImage], size: int, *, threads: int = 2
) -> tuple[Shaped[Tensor, "n 3 size size"], list[CaptionedImage]]:
    """The pictures that can be read, perhaps none; the others are logged."""

    def opened(record: CaptionedImage) -> Tensor | None:
        try:
            return captions.open(record, size=size)
        except BrokenImage as problem:
            logger.warning("%s; it is left out", problem)
            return None

    images = torch.empty(len(records), 3, size, size, dtype=torch.uint8)
    good: list[CaptionedImage] = []
    with ThreadPoolExecutor(max(1, threads)) as pool:
        for record, image in zip(records, pool.map(opened, records), strict=True):
            if image is not None:
                images[len(good)] = image
                good.append(record)
    return images[: len(good)], good
