"""Images with a class each: from a folder with one subfolder for each class, or from an ``.npz``.

    animals/cat/1.jpg  animals/cat/2.png  animals/dog/1.jpg          split by a stated seed, or
    animals/train/cat/1.jpg ...  animals/test/cat/9.jpg              split as you say

Whatever the files are, grey, with alpha or of another size, bytes ``(N, C, side, side)`` come out; a file
that can't be read is named and left out. ``classes_npz.py`` says what an ``.npz`` holds.
"""

import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from sightline.data.classes_npz import read_npz
from sightline.data.images import BrokenImage, read_image
from sightline.data.labelled import ClassSet, Labelled, fitted, split_off

__all__ = ["read_classes"]

SPLITS = ("train", "val", "test")
_CALLED = {"valid": "val", "validation": "val", "dev": "val"} | {name: name for name in SPLITS}
_SUFFIXES = {
    ".jpg",
    ".jpeg",
    ".png",
    ".webp",
    ".bmp",
    ".gif",
    ".tif",
    ".tiff",
    ".ppm",
    ".pgm",
    ".jp2",
    ".avif",
}
_LEAST = 3  # images of a class: one to learn from, one to choose by, one to be tested on
_IN_MEMORY = 4 << 30  # bytes; a larger set lies in a file that goes away by itself


def read_classes(
    source: Path | str,
    *,
    image_size: int | None = None,
    channels: int | None = None,
    seed: int = 0,
    val: float = 0.1,
    test: float = 0.1,
) -> ClassSet:
    """Read a set of images with classes.

    Args:
        source: A folder, or an ``.npz``.
        image_size: Side of the images; others are scaled and their middle is cut out. Default: 64 for a
            folder, what they are for an ``.npz``.
        channels: 1 for grey, 3 for colour. Default: 3 for a folder, what they are for an ``.npz``.
        seed: Of the split, where the data has none.
        val, test: Shares of each class that are held out, where the data does not say which.

    Raises:
        ValueError: If there are no classes, too few images of one, or arrays that don't fit.
        FileNotFoundError: If there is no such folder or file.
    """
    source = Path(source)
    if not source.exists():
        raise FileNotFoundError(f"there is no folder or .npz {str(source)!r}; --data digits needs no files")
    if channels not in (None, 1, 3):
        raise ValueError(f"images have 1 channel, grey, or 3, colour, got channels={channels}")
    if source.is_dir():
        found = _read_folder(source, image_size or 64, channels or 3)
    elif source.suffix.lower() == ".npz":
        found = read_npz(source, image_size, channels)
    else:
        raise ValueError(f"classes come from a folder or an .npz, {str(source)!r} is neither")
    parts = dict(found.parts)
    everything = parts.pop("all", None)
    if everything is not None:
        _check_counts(everything, found.names)
        parts["test"], parts["train"] = split_off(everything, test, seed)
    if "val" not in parts and val:
        parts["val"], parts["train"] = split_off(parts["train"], val, seed + 1)
    parts.setdefault("val", parts.get("test", parts["train"]))
    parts.setdefault("test", parts["val"])
    _check_train(parts, found.names, source)
    return ClassSet(found.names, parts, found.broken)


def _read_folder(folder: Path, size: int, channels: int) -> ClassSet:
    """Every image of every class, decoded once, by threads."""
    below = _subfolders(folder)
    splits = {_CALLED[x.name.lower()]: x for x in below if x.name.lower() in _CALLED}
    places = splits if splits and len(splits) == len(below) else {"all": folder}
    if "all" not in places and "train" not in places:
        raise ValueError(f"{str(folder)!r} has splits, {', '.join(places)}, but no train among them")
    names = tuple(x.name for x in _subfolders(places.get("train", folder)))
    files: list[tuple[str, int, Path]] = []
    for split, place in places.items():
        for child in _subfolders(place):
            if child.name not in names:
                raise ValueError(
                    f"every class must be in train, {child.name!r} is in {str(place)!r} only; "
                    f"train has {', '.join(names)}"
                )
            inside = sorted(x for x in child.rglob("*") if x.suffix.lower() in _SUFFIXES and x.is_file())
            files += [(split, names.index(child.name), x) for x in inside]
    images, broken = _decoded([path for _, _, path in files], size, channels)
    whole = [i for i in range(len(files)) if i not in broken]
    parts = {}
    for split in places:
        chosen = torch.tensor([i for i in whole if files[i][0] == split], dtype=torch.long)
        labels = torch.tensor([files[i][1] for i in chosen.tolist()], dtype=torch.long)
        parts[split] = Labelled(images[chosen] if len(places) > 1 or broken else images, labels)
    return ClassSet(names, parts, tuple(broken.values()))


def _subfolders(folder: Path) -> list[Path]:
    found = sorted(x for x in folder.iterdir() if x.is_dir() and not x.name.startswith("."))
    if not found:
        inside = sum(x.is_file() for x in folder.iterdir())
        raise ValueError(
            f"a set of classes is a folder with one subfolder for each class, {str(folder)!r} has no "
            f"subfolders and {inside} files; sort the images into subfolders named like their classes"
        )
    return found


def _decoded(paths: Sequence[Path], size: int, channels: int) -> tuple[Tensor, dict[int, str]]:
    """The images as bytes, and a sentence for each that could not be read, by its place."""
    images = _room(len(paths), channels, size)
    broken: dict[int, str] = {}

    def decode(i: int) -> None:
        try:
            images[i] = fitted(read_image(paths[i], size=size), size, channels)
        except BrokenImage as problem:
            broken[i] = str(problem)

    with ThreadPoolExecutor() as pool:
        list(pool.map(decode, range(len(paths))))
    return images, dict(sorted(broken.items()))


def _room(n: int, channels: int, size: int) -> Tensor:
    """Memory for so many images, or a file where they are too many."""
    shape = (n, channels, size, size)
    if n * channels * size * size <= _IN_MEMORY:
        return torch.zeros(shape, dtype=torch.uint8)
    with tempfile.TemporaryFile() as file:  # nameless: gone when the last tensor on it is
        return torch.from_numpy(np.memmap(file, dtype=np.uint8, mode="w+", shape=shape))


def _check_counts(whole: Labelled, names: Sequence[str]) -> None:
    counts = torch.bincount(whole.labels, minlength=len(names)).tolist()
    for name, count in zip(names, counts, strict=True):
        if count < _LEAST:
            raise ValueError(
                f"each class needs at least {_LEAST} images, one to learn from, one to choose by and one to "
                f"be tested on, {name!r} has {count}; add images, or take the class away"
            )


def _check_train(parts: Mapping[str, Labelled], names: Sequence[str], source: Path) -> None:
    if len(names) < 2:
        raise ValueError(f"there must be at least 2 classes to tell apart, {str(source)!r} has {len(names)}")
    counts = torch.bincount(parts["train"].labels, minlength=len(names)).tolist()
    for name, count in zip(names, counts, strict=True):
        if not count:
            raise ValueError(
                f"each class needs at least 1 image in train, {name!r} has 0 in {str(source)!r}; add some"
            )
