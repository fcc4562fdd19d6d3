"""A classification run, opened: its model, the names of its classes, the data it was trained on."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from sightline.cli.runs import kind_in, settings_in
from sightline.data.class_set import ClassSet, fit_image
from sightline.data.images import read_image
from sightline.models.vit import VisionTransformer
from sightline.settings import from_json
from sightline.shapes import Shaped
from sightline.train.classifying import ClassData, read_source

__all__ = ["ClassRun", "open_run", "read_pictures", "tell"]

_NAMED = 5  # broken files that are named one by one


@dataclass(frozen=True)
class ClassRun:
    """A trained classifier with what belongs to it."""

    folder: Path
    model: VisionTransformer
    data: ClassData

    @property
    def names(self) -> tuple[str, ...]:
        """Of the classes, in the order of the logits."""
        return self.data.names

    def images(self, source: str | None = None) -> ClassSet:
        """The data of the run, or another set read the same way; its classes are the model's, in any order.

        What could not be read, and how the data differs from what it was, is told on standard error.

        Raises:
            ValueError: If it is not there any more, or has other classes.
        """
        data = self.data if source is None else replace(self.data, source=source)
        if data.source != "digits" and not Path(data.source).exists():
            raise ValueError(
                f"the data of {str(self.folder)!r} was {data.source!r}, which is not there any more; "
                "say where it is with --data"
                if source is None
                else f"--data must be a folder, an .npz or 'digits', {source!r} does not exist"
            )
        config = self.model.config
        found = read_source(data, image_size=config.image_size, channels=config.channels)
        strange = sorted(set(found.names) ^ set(self.names))
        if strange:
            raise ValueError(
                f"the classes of {data.source!r} must be those of the run, {len(self.names)} of them, got "
                f"{len(found.names)}; {strange[0]!r} is in one of the two only"
            )
        tell(found)
        if source is None and data.counts and list(data.counts) != found.counts:
            before, now = (", ".join(map(str, counts)) for counts in (data.counts, found.counts))
            sys.stderr.write(
                f"the data has changed: train, val and test had {before} images, now {now}; where a seed "
                "splits them, some that were learned from may be tested on\n"
            )
        return _in_order(found, self.names)


def open_run(folder: Path, device: torch.device) -> ClassRun:
    """Load a run.

    Raises:
        ValueError: If the folder is no classification run, or a file in it is missing or damaged.
    """
    kind_in(folder, "classify")
    model = VisionTransformer.load(folder, device)
    settings = {k: v for k, v in settings_in(folder, "data").items() if k != "augment"}
    data = from_json(ClassData, settings, where=str(folder / "config.json"))
    if len(data.names) != model.config.n_classes:
        raise ValueError(
            f"the config in {str(folder)!r} names {len(data.names)} classes and its model has "
            f"{model.config.n_classes}; the two belong to different runs"
        )
    return ClassRun(folder, model, data)


def tell(images: ClassSet) -> None:
    """Say on standard error what could not be read, and which split stands for another."""
    for problem in images.problems[:_NAMED]:
        sys.stderr.write(f"left out: {problem.sentence}\n")
    if len(images.problems) > _NAMED:
        sys.stderr.write(f"left out: {len(images.problems) - _NAMED} more files that can't be read\n")
    for split, other in images.stand_ins.items():
        sys.stderr.write(f"{split!r} has no images of its own, those of {other!r} stand for it\n")


def _in_order(images: ClassSet, names: tuple[str, ...]) -> ClassSet:
    """The same set with its classes in the order of these names."""
    if images.names == names:
        return images
    place = torch.tensor([names.index(name) for name in images.names])
    parts = {split: replace(part, labels=place[part.labels]) for split, part in images.parts.items()}
    return replace(images, names=names, parts=parts)


def read_pictures(paths: Sequence[Path], run: ClassRun) -> Shaped[Tensor, "n C h w"]:
    """Pictures from files, of any size and colours, as the model sees them."""
    for path in paths:
        if path.is_dir():
            raise ValueError(f"an image is a file, {str(path)!r} is a folder; try {path / '*'}")
    config = run.model.config
    size, channels = config.image_size, config.channels
    return torch.stack([fit_image(read_image(path, size=size), size, channels) for path in paths])
