"""Images with classes from an ``.npz``: ``images`` and ``labels``, or ``x_train`` and ``y_train``.

Also ``x_test`` and ``y_test``, ``x_val`` and ``y_val``, and ``classes`` for the names. Images are bytes, or
floats from 0 to 1, laid out ``(N, h, w)``, ``(N, h, w, C)`` or ``(N, C, h, w)``. Nothing in the file is ever
executed.
"""

import zipfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from sightline.data.labelled import ClassSet, Labelled, fitted

__all__ = ["read_npz"]

_SPLITS = ("train", "val", "test")


def read_npz(path: Path, size: int | None, channels: int | None) -> ClassSet:
    """The arrays of a file, by the names that are usual for them."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as problem:
        raise ValueError(f"{str(path)!r} can't be read as an .npz: {problem}") from problem
    keys = {split: (f"x_{split}", f"y_{split}") for split in _SPLITS} | {"all": ("images", "labels")}
    pairs = {split: pair for split, pair in keys.items() if pair[0] in arrays and pair[1] in arrays}
    if not {"train", "all"} & set(pairs):
        raise ValueError(
            f"an .npz of classes holds images and labels, or x_train and y_train, {str(path)!r} holds "
            f"{', '.join(arrays) or 'nothing'}"
        )
    every = np.concatenate([arrays[y].ravel() for _, y in pairs.values()])
    values, coded = np.unique(every, return_inverse=True)
    names = tuple(map(str, arrays.get("classes", values)))
    if "classes" in arrays and every.dtype.kind in "iu":
        if len(values) and not 0 <= values[0] <= values[-1] < len(names):
            raise ValueError(
                f"labels number the classes from 0 to {len(names) - 1}, {str(path)!r} has {values[0]} to "
                f"{values[-1]}"
            )
        coded = every
    parts, first = {}, 0
    for split, (x, y) in pairs.items():
        n = arrays[y].size
        if len(arrays[x]) != n:
            raise ValueError(f"there must be one label for each image, got {len(arrays[x])} {x} and {n} {y}")
        labels = torch.from_numpy(coded[first : first + n].astype(np.int64))
        parts[split] = Labelled(_bytes(arrays[x], x, size, channels), labels)
        first += n
    return ClassSet(names, parts)


def _bytes(array: np.ndarray, name: str, size: int | None, channels: int | None) -> Tensor:
    """An array of images as bytes (N, C, side, side), whichever of the usual ways it was laid out."""
    if array.dtype.kind == "f" and array.size and array.min() >= 0 and array.max() <= 1:
        array = (array * 255).round().astype(np.uint8)
    if array.dtype != np.uint8:
        raise ValueError(f"images are bytes, or floats from 0 to 1, got {array.dtype} for {name}")
    if array.ndim == 3:
        array = array[..., None]
    if array.ndim == 4 and array.shape[1] in (1, 3) and array.shape[3] not in (1, 3, 4):
        array = array.transpose(0, 2, 3, 1)
    if array.ndim != 4 or array.shape[3] not in (1, 3, 4):
        raise ValueError(
            f"images are (N, h, w), (N, h, w, C) or (N, C, h, w) with 1, 3 or 4 channels, got {array.shape} "
            f"for {name}"
        )
    if array.shape[3] == 4:  # what is transparent lies on white
        alpha = array[..., 3:] / 255
        array = (array[..., :3] * alpha + 255 * (1 - alpha)).round().astype(np.uint8)
    images = torch.from_numpy(np.ascontiguousarray(array)).permute(0, 3, 1, 2)
    side, c = size or min(images.shape[2:]), channels or images.size(1)
    if images.shape[1:] == (c, side, side):
        return images.contiguous()
    return torch.stack([fitted(image, side, c) for image in images])
