"""Images with classes from an ``.npz``: ``images`` and ``labels``, or ``x_train`` and ``y_train``.

Also ``x_test`` and ``y_test``, ``x_val`` and ``y_val``, and ``classes`` for the names. Images are bytes, or
floats from 0 to 1, laid out ``(N, h, w)``, ``(N, h, w, C)`` or ``(N, C, h, w)``. Labels are names or whole
numbers; where there are ``classes``, numbers count them from 0. Nothing in the file is ever executed.
"""

import math
import tokenize
import zipfile
from pathlib import Path
from typing import IO

import numpy as np
import torch
from torch import Tensor

from sightline.data.class_set import ClassSet, LabelledImages, fit_image
from sightline.data.dataset import SPLITS
from sightline.data.sources import UNREADABLE, check_packing
from sightline.untrusted import check_memory, check_regular, format_bytes

__all__ = ["read_npz"]


def read_npz(path: Path, size: int | None, channels: int | None) -> ClassSet:
    """The arrays of a file, by the names that are usual for them."""
    try:
        _check_headers(path)
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, *UNREADABLE) as problem:
        raise ValueError(f"{str(path)!r} can't be read as an .npz: {problem}") from problem
    keys = {split: (f"x_{split}", f"y_{split}") for split in SPLITS} | {"all": ("images", "labels")}
    pairs = {split: pair for split, pair in keys.items() if pair[0] in arrays and pair[1] in arrays}
    for split, (x, y) in pairs.items():
        if len(np.atleast_1d(arrays[x])) != arrays[y].size:
            raise ValueError(
                f"there must be one label for each image, got {len(np.atleast_1d(arrays[x]))} {x} and "
                f"{arrays[y].size} {y} in {str(path)!r}"
            )
        if not arrays[y].size and split in {"train", "all"}:
            raise ValueError(f"there must be images to learn from, {x} in {str(path)!r} has none; add some")
    pairs = {split: (x, y) for split, (x, y) in pairs.items() if arrays[y].size}  # others are not there
    if not {"train", "all"} & set(pairs):
        raise ValueError(
            f"an .npz of classes holds images and labels, or x_train and y_train, {str(path)!r} holds "
            f"{', '.join(arrays) or 'nothing'}"
        )
    every = np.concatenate([arrays[y].ravel() for _, y in pairs.values()])
    names, coded = _coded(_plain(every, path), arrays.get("classes"), path)
    parts, first = {}, 0
    for split, (x, y) in pairs.items():
        n = arrays[y].size
        labels = torch.from_numpy(coded[first : first + n].astype(np.int64))
        rows = tuple(f"{x}/{i}" for i in range(n))
        parts[split] = LabelledImages(_bytes(arrays[x], x, size, channels), labels, rows)
        first += n
    return ClassSet(names, parts, layout="npz")


def _check_headers(path: Path) -> None:
    """Refuse arrays whose headers promise other sizes than their bytes have, or more than there is room for.

    Raises:
        ValueError: For the first one.
    """
    check_regular(path)
    total = 0
    with zipfile.ZipFile(path) as file:
        for member in file.infolist():
            check_packing(member, str(path))
            with file.open(member) as stream:
                shape, dtype = _header(stream, member.filename)
                promised, there = math.prod(shape) * dtype.itemsize, member.file_size - stream.tell()
            if promised != there and not dtype.hasobject:  # objects are refused by the library
                raise ValueError(
                    f"the header of {member.filename!r} promises {format_bytes(promised)}, it has "
                    f"{format_bytes(there)}"
                )
            total += there
    check_memory(3 * total, f"reading {str(path)!r} of {format_bytes(total)}", "split it")


def _header(stream: IO[bytes], name: str) -> tuple[tuple[int, ...], np.dtype]:
    """The shape and the type that an array's header promises: a text in Python, which may be none.

    Raises:
        ValueError: If it is no header, whichever error this version of Python's parser has for that.
    """
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    try:
        shape, _, dtype = read(stream)
    except (tokenize.TokenError, SyntaxError, TypeError, MemoryError) as problem:
        reason = problem.args[0] if problem.args else "it is nested too deeply"
        raise ValueError(f"the header of {name!r} can't be parsed: {reason}") from problem
    return shape, dtype


def _plain(labels: np.ndarray, path: Path) -> np.ndarray:
    """Labels as texts or whole numbers, however they were kept."""
    if labels.dtype.kind == "S":
        return np.char.decode(labels, "utf-8")
    if labels.dtype.kind in "fb":
        broken = labels[labels != np.floor(labels)]  # what is not a number is not equal to itself
        if broken.size:
            raise ValueError(f"labels are whole numbers or names, {str(path)!r} has {broken[0]}")
        return labels.astype(np.int64)
    return labels


def _coded(labels: np.ndarray, classes: np.ndarray | None, path: Path) -> tuple[tuple[str, ...], np.ndarray]:
    """The names of the classes, and the place of each label among them."""
    values, coded = np.unique(labels, return_inverse=True)
    if classes is None:
        return tuple(map(str, values)), coded
    names = tuple(map(str, _plain(classes.ravel(), path)))
    if not names:
        raise ValueError(f"there must be classes, the array classes in {str(path)!r} is empty; leave it out")
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ValueError(f"each of the classes has a name of its own, {str(path)!r} has {twice[0]!r} twice")
    if labels.dtype.kind == "U":
        strange = [str(value) for value in values if str(value) not in names]
        if strange:
            raise ValueError(f"labels are among {', '.join(names)}, {str(path)!r} has {strange[0]!r}")
        return names, np.array([names.index(str(value)) for value in values], dtype=np.int64)[coded]
    if len(values) and not 0 <= values[0] <= values[-1] < len(names):
        raise ValueError(
            f"labels number the classes from 0 to {len(names) - 1}, {str(path)!r} has {values[0]} to "
            f"{values[-1]}"
        )
    return names, labels


def _bytes(array: np.ndarray, name: str, size: int | None, channels: int | None) -> Tensor:
    """An array of images as bytes (N, C, side, side), whichever of the usual ways it was laid out."""
    if array.dtype.kind == "f" and array.size:
        low, high = float(array.min()), float(array.max())
        if not 0 <= low <= high <= 1:
            raise ValueError(
                f"images are bytes, or floats from 0 to 1, got {array.dtype} from {low:g} to {high:g} for "
                f"{name}; divide them by the largest that there can be"
            )
        array = (array * 255).round().astype(np.uint8)
    if array.dtype != np.uint8:
        raise ValueError(f"images are bytes, or floats from 0 to 1, got {array.dtype} for {name}")
    shape = array.shape
    if array.ndim == 3:
        array = array[..., None]
    if array.ndim == 4 and array.shape[1] in (1, 3) and array.shape[3] not in (1, 3, 4):
        array = array.transpose(0, 2, 3, 1)
    if array.ndim != 4 or array.shape[3] not in (1, 3, 4) or 0 in array.shape[1:3]:
        raise ValueError(
            f"images are (N, h, w), (N, h, w, C) or (N, C, h, w) with 1, 3 or 4 channels, got {shape} "
            f"for {name}"
        )
    if array.shape[3] == 4:  # what is transparent lies on white
        alpha = array[..., 3:] / 255
        array = (array[..., :3] * alpha + 255 * (1 - alpha)).round().astype(np.uint8)
    images = torch.from_numpy(np.ascontiguousarray(array)).permute(0, 3, 1, 2)
    side, c = size or min(images.shape[2:]), channels or images.size(1)
    if images.shape[1:] == (c, side, side):
        return images.contiguous()
    return torch.stack([fit_image(image, side, c) for image in images])
