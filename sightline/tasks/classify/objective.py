"""Learning to classify: images lie on the device as bytes and are augmented there, a batch at a time."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.data.augment import apply_augment, mix, partners
from sightline.data.batches import shuffled_batches
from sightline.data.class_set import ClassSet
from sightline.data.shard_classes import ShardPixels
from sightline.models.vit import VisionTransformer
from sightline.settings import as_json
from sightline.shapes import Int, Shaped
from sightline.tasks.classify.data import ClassifyData
from sightline.train.config import TrainConfig
from sightline.train.objective import Loss, Objective
from sightline.train.processes import spread

__all__ = ["ClassBatch", "ClassifyObjective", "Score"]

Score = Callable[[Tensor, Tensor], Mapping[str, float]]

_RESIDENT = 4 << 30  # bytes of images that are kept on the device
_LEFT_OUT = -100  # the class of an image that can't be read: cross-entropy passes over it
_AT_ONCE = 512  # images of the validation split
_WHOLE_BATCHES = 8  # from so many on, an epoch leaves out the rest that fills no batch


@dataclass(frozen=True, eq=False)
class ClassBatch:
    """Some images.

    Attributes:
        indices: Which of the training split.
        epoch: A tensor, so that the device need not wait for the host.
        labels: Their classes.
        others: Which images they are mixed with, and ``other_labels`` theirs; None without mixing.
        images, other_images: Bytes, where they don't lie on the device.
    """

    indices: Int[Tensor, " B"]
    epoch: Int[Tensor, ""]
    labels: Int[Tensor, " B"]
    others: Int[Tensor, " B"] | None = None
    other_labels: Int[Tensor, " B"] | None = None
    images: Shaped[Tensor, "B C h w"] | None = None
    other_images: Shaped[Tensor, "B C h w"] | None = None


class ClassifyObjective(Objective):
    """Classes of the train split, scored on the validation split.

    Attributes:
        stream: Reads the images of the train split, where they are too many for any order.

    Args:
        images: The set.
        train: Settings of the loop: batch size, seed, label smoothing.
        data: Settings of the data; they go into the run's config, with the names of the classes.
        score: Scores logits against labels.
    """

    kind = "classify"
    may_change = frozenset({"source"})  # data may move
    one_shape = True

    def __init__(self, images: ClassSet, train: TrainConfig, data: ClassifyData, *, score: Score) -> None:
        self.images, self.train, self.settings, self.augment = images, train, data, data.augment
        self.score = score
        self._split = images.split("train")
        pixels, threads = self._split.images, train.threads
        self.stream = (
            pixels.stream(batch_size=train.batch_size, seed=train.seed, threads=threads)
            if isinstance(pixels, ShardPixels)
            else None
        )
        self._resident: Tensor | None = None

    def digest(self) -> str:
        """Names the classes of the images in their order; the images themselves are too many bytes."""
        return self.images.digest()

    def prepare(self, device: torch.device) -> None:
        """Bring the images to the device, if they fit."""
        images = self._split.images
        if not isinstance(images, ShardPixels) and images.nbytes <= _RESIDENT:
            self._resident = images.to(device)

    def plan(self, epoch: int) -> Sequence[Sequence[int]]:
        """Batches, all of one size where there are several."""
        batches: Sequence[Sequence[int]]
        if self.stream is not None:
            batches = self.stream.plan()
        else:
            batches = shuffled_batches(len(self._split), self.train.batch_size, self.train.seed, epoch)
        if len(batches) > _WHOLE_BATCHES and len(batches[-1]) < self.train.batch_size:
            return batches[:-1]
        return batches

    def load(self, indices: Sequence[int], epoch: int) -> ClassBatch:
        """Which images, and which they meet; their bytes too, where the device has not got them."""
        labels = self._split.labels
        pixels: Tensor | ShardPixels = self._split.images
        images: Tensor | None = None
        if self.stream is not None and isinstance(pixels, ShardPixels):
            indices, encoded = self.stream.read(indices, epoch)
            images = pixels.decode(indices, encoded)
        chosen = torch.tensor(indices)
        if self.stream is None and self._resident is None:
            images = pixels[chosen]
        others = other_images = None
        if self.augment.mixes:
            n = len(labels) if self.stream is None else len(indices)
            others = partners(n, seed=self.train.seed, epoch=epoch, indices=chosen)
            if self.stream is not None and images is not None:
                others, other_images = chosen[others], images[others]  # of the same batch
            elif self._resident is None:
                other_images = pixels[others]
        return ClassBatch(
            images=images,
            other_images=other_images,
            indices=chosen,
            epoch=torch.tensor(epoch),
            labels=_readable(pixels, chosen, labels[chosen]),  # now it is known which can't be read
            others=others,
            other_labels=None if others is None else _readable(pixels, others, labels[others]),
        )

    def loss(self, model: nn.Module, batch: ClassBatch) -> Loss:
        """Cross-entropy with the image's class, or with both classes of a mixed one by their shares."""
        with torch.no_grad():
            images, share = self.augmented(batch)
        logits = model(images).float()
        smoothing = self.train.label_smoothing
        losses = F.cross_entropy(logits, batch.labels, label_smoothing=smoothing, reduction="none")
        if share is not None and batch.other_labels is not None:
            other = F.cross_entropy(logits, batch.other_labels, label_smoothing=smoothing, reduction="none")
            losses = share * losses + (1 - share) * other
        terms = (batch.labels != _LEFT_OUT).sum().float()
        return Loss(losses.sum(), terms)

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Scores on the validation split."""
        assert isinstance(model, VisionTransformer)  # noqa: S101 - what this task is for
        split = self.images.split("val")

        def predict(indices: Int[Tensor, " B"]) -> tuple[Tensor, Tensor]:
            logits = model.predict(split.images[indices], views=self.settings.views).cpu()
            return logits, _readable(split.images, indices, split.labels[indices])

        parts = list(spread(predict, torch.arange(len(split)).split(_AT_ONCE)))
        logits, labels = (torch.cat(part) for part in zip(*parts, strict=True))
        readable = labels != _LEFT_OUT
        if not readable.any():
            raise ValueError(f"not one of {len(split)} images of {self.images.source!r} could be read")
        return dict(self.score(logits[readable], labels[readable]))

    def data(self) -> dict[str, Any]:
        """What later commands need: the classes' names, where the images are, how they were split."""
        return as_json(self.settings) | {"names": list(self.images.names), "counts": self.images.counts}

    def augmented(self, batch: ClassBatch) -> tuple[Tensor, Tensor | None]:
        """The batch as floats, mixed where it is to be; the share of each image's own class."""
        seed, epoch = self.train.seed, batch.epoch
        images = self._bytes(batch.images, batch.indices)
        x = apply_augment(images, self.augment, seed=seed, epoch=epoch, indices=batch.indices)
        if batch.others is None:
            return x, None
        others = self._bytes(batch.other_images, batch.others)
        # The partner is changed by draws of its own meeting, not by those of its own turn in the epoch.
        y = apply_augment(others, self.augment, seed=~seed, epoch=epoch, indices=batch.indices)
        return mix(x, y, self.augment, seed=seed, epoch=epoch, indices=batch.indices)

    def _bytes(self, streamed: Tensor | None, indices: Tensor) -> Tensor:
        if streamed is not None:
            return streamed
        assert self._resident is not None  # noqa: S101 - load sent no bytes because they are here
        return self._resident[indices]


def _readable(images: Tensor | ShardPixels, indices: Int[Tensor, " B"], labels: Int[Tensor, " B"]) -> Tensor:
    """The labels of some images that were read; of those that could not be, one that counts for nothing."""
    if not isinstance(images, ShardPixels) or not images.broken:
        return labels
    broken = torch.tensor([i in images.broken for i in indices.tolist()])
    return labels.masked_fill(broken, _LEFT_OUT)
