"""Images with a class each: from a folder with one subfolder for each class, or from an ``.npz``.

    animals/cat/1.jpg  animals/cat/2.png  animals/dog/1.jpg          split by a stated seed, or
    animals/train/cat/1.jpg ...  animals/test/cat/9.jpg              split as you say

Whatever the files are, grey, with alpha or of another size, bytes ``(N, C, side, side)`` come out; a file
that can't be read is named and left out. ``classes_npz.py`` says what an ``.npz`` holds.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import Tensor

from sightline.data.class_set import SPLITS, ClassSet, LabelledImages, empty_images, fit_image, split_off
from sightline.data.classes_npz import read_npz
from sightline.data.images import BrokenImage, read_image

__all__ = ["read_classes"]

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
    ".jfif",
    ".heic",  # can't be read, and is named
    ".heif",
}


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
        val, test: Shares of each class that are held out, where the data does not say which; where none are,
            the one stands for the other, and the train split for both.

    Raises:
        ValueError: If there are no classes, too few images of one, or arrays that don't fit.
        FileNotFoundError: If there is no such folder or file.
    """
    source = Path(source)
    if not source.exists():
        raise FileNotFoundError(f"there is no folder or .npz {str(source)!r}; --data digits needs no files")
    if channels not in (None, 1, 3):
        raise ValueError(f"images have 1 channel, grey, or 3, colour, got channels={channels}")
    if image_size is not None and image_size < 1:
        raise ValueError(f"image_size must be at least 1 pixel, got {image_size}")
    if source.is_dir():
        found = _read_folder(source, image_size or 64, channels or 3)
    elif source.suffix.lower() == ".npz":
        found = read_npz(source, image_size, channels)
    else:
        raise ValueError(f"classes come from a folder or an .npz, {str(source)!r} is neither")
    if len(found.names) < 2:
        n = len(found.names)
        raise ValueError(f"there must be at least 2 classes to tell apart, {str(source)!r} has {n}")
    return _split(found, seed, val, test)


def _read_folder(folder: Path, size: int, channels: int) -> ClassSet:
    """Every image of every class, decoded once, by threads."""
    below = _subfolders(folder)
    splits = {_CALLED[x.name.lower()]: x for x in below if x.name.lower() in _CALLED}
    strange = [x for x in below if x not in splits.values()]
    if strange and any(_has_folders(x) for x in splits.values()):  # else a class may be called so
        raise ValueError(
            f"a folder of splits holds {', '.join(SPLITS[:-1])} and {SPLITS[-1]}, each once, {str(folder)!r} "
            f"has {strange[0].name!r} too; move it away"
        )
    places = splits if splits and not strange else {"all": folder}
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
    everything = LabelledImages(images, torch.tensor([label for _, label, _ in files], dtype=torch.long))
    if len(places) == 1 and not broken:
        return ClassSet(names, dict.fromkeys(places, everything))
    parts = {}
    for split in places:
        whole = [i for i, file in enumerate(files) if file[0] == split and i not in broken]
        parts[split] = everything.select(torch.tensor(whole, dtype=torch.long))
    return ClassSet(names, parts, tuple(broken.values()))


def _has_folders(folder: Path) -> bool:
    return any(x.is_dir() for x in folder.iterdir())


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
    images = empty_images(len(paths), channels, size, size)
    broken: dict[int, str] = {}

    def decode(i: int) -> None:
        try:
            images[i] = fit_image(read_image(paths[i], size=size), size, channels)
        except BrokenImage as problem:
            broken[i] = str(problem)

    with ThreadPoolExecutor() as pool:
        list(pool.map(decode, range(len(paths))))
    return images, dict(sorted(broken.items()))


def _split(found: ClassSet, seed: int, val: float, test: float) -> ClassSet:
    """Hold out what the data has not held out itself; where nothing is, another split stands for it."""
    parts = dict(found.parts)
    whole = "all" in parts
    if whole:
        parts["train"] = parts.pop("all")
    shares = {"test": test if whole else 0.0, "val": val}
    held = {split: share for split, share in shares.items() if share and split not in parts}
    _check_counts(parts["train"], found, list(held), whole=whole)
    for split, share in held.items():
        parts[split], parts["train"] = split_off(parts["train"], share, seed + (split == "val"))
    _check_left(parts["train"], found.names, held)
    stand_ins = {}
    for split, others in (("val", ("test", "train")), ("test", ("val",))):
        if split not in parts:
            stand_ins[split] = next(x for x in others if x in parts)
            parts[split] = parts[stand_ins[split]]
    return ClassSet(found.names, parts, found.broken, stand_ins)


def _check_counts(train: LabelledImages, found: ClassSet, held: Sequence[str], *, whole: bool) -> None:
    """Refuse a class of which there are too few to learn from and to hold out."""
    least, where = 1 + len(held), "" if whole else " in train"
    uses = {"val": "one to choose by", "test": "one to be tested on"}
    listed = ", ".join(["one to learn from", *(uses[split] for split in reversed(held))])
    for name, count in zip(found.names, _counted(train, found.names), strict=True):
        if count < least:
            n = len(found.broken)
            left_out = f"; {n} files were left out, the first: {found.broken[0]}" if n else ""
            raise ValueError(
                f"each class needs at least {least} image{'s' * (least > 1)}{where}, {listed}, {name!r} has "
                f"{count}; add images, or take the class away{left_out}"
            )


def _check_left(train: LabelledImages, names: Sequence[str], held: Mapping[str, float]) -> None:
    for name, count in zip(names, _counted(train, names), strict=True):
        if not count:
            shares = " and ".join(f"{split}={share:g}" for split, share in held.items())
            raise ValueError(
                f"each class needs at least 1 image to learn from, {name!r} has none left, {shares} took "
                "all; hold out less"
            )


def _counted(part: LabelledImages, names: Sequence[str]) -> list[int]:
    return torch.bincount(part.labels, minlength=len(names)).tolist()
