"""A frozen encoder's view of every picture, computed once and kept on disk.

    kept = cache_features(set, records, encode=..., signature="lite0 224", size=224, views=4, folder=cache)
    kept.grid(17, view=2)                 # (P, C), float16, read from the disk's cache as it is needed

A file holds one view of a few hundred pictures. Its name is a hash of all that went into it: the contents
of the pictures, the view, and the signature of the network and its preprocessing. So a file is either right
or not there; a picture that changes, or another network, gets another file, and a set that was
half done goes on where it stopped. A file that is damaged is known by its checksum, and made anew.

Which views there are says ``views.py``.
"""

import hashlib
import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sightline.data.batches import prefetch
from sightline.data.captions import CaptionedImage, CaptionSet
from sightline.data.files import atomic_write, user_cache
from sightline.data.images import BrokenImage, normalise
from sightline.data.views import view_of
from sightline.shapes import Float, Shaped

__all__ = ["Features", "cache_features", "cache_folder"]

SHARD = 256  # pictures in a file: 32 MB of 7 x 7 x 1280 in float16

Encode = Callable[[Float[Tensor, "B 3 size size"]], Float[Tensor, "B P C"]]


@dataclass(frozen=True, eq=False)
class Features:
    """Feature grids of some pictures in some views, on disk.

    Attributes:
        broken: What is wrong with the pictures that can't be read, by their number; their grids are zeros.
        shape: Of a grid, (P, C).
        views: How many views of each picture there are.
    """

    broken: dict[int, str]
    shape: tuple[int, int]
    views: int
    _n: int
    _files: tuple[tuple[Any, ...], ...]  # for each view, the slices of its open files

    def __len__(self) -> int:
        """How many pictures there are."""
        return self._n

    def grid(self, i: int, view: int = 0) -> Float[Tensor, "P C"]:
        """One picture's grid in one view, float16."""
        grid: Tensor = self._files[view][i // SHARD][i % SHARD]
        return grid

    def grids(self, indices: Sequence[int], views: Sequence[int] | int = 0) -> Float[Tensor, "B P C"]:
        """The grids of some pictures, each in its own view or all in one."""
        chosen = [views] * len(indices) if isinstance(views, int) else views
        return torch.stack([self.grid(i, view) for i, view in zip(indices, chosen, strict=True)])

    def whole(self, view: int = 0) -> Float[Tensor, "N P C"]:
        """All pictures' grids in one view, in memory: for a device that has room for them."""
        return torch.cat([part[:] for part in self._files[view]])


def cache_features(
    images: CaptionSet,
    records: Sequence[CaptionedImage],
    *,
    encode: Encode,
    signature: str,
    size: int,
    views: int = 1,
    folder: Path | str | None = None,
    device: torch.device | str = "cpu",
    batch_size: int = 64,
    threads: int = 2,
    progress: Callable[[int, int], None] | None = None,
) -> Features:
    """Open the kept features of some pictures, having computed those that are missing.

    Args:
        images: The set that opens the pictures and knows their content.
        records: Which pictures, in the order in which they are asked for later.
        encode: The frozen network: pictures of ``normalise`` to grids; both on ``device``.
        signature: What tells this network, its weights and its preprocessing from any other.
        size: Side of the square pictures that the network sees.
        views: How many views of each picture.
        folder: Where to keep them; default: :func:`cache_folder`.
        device: Where the network is.
        batch_size: Pictures that the network sees at a time.
        threads: How many pictures are decoded at once, ahead of the network.
        progress: Told how many grids of how many are there, after each batch that had to be computed.

    Raises:
        OSError: If the folder can't be written to.
        ValueError: If there is no picture, or no view.
    """
    if not records or views < 1:
        raise ValueError(f"features need at least one picture and one view, got {len(records)} and {views}")
    making = _FeatureWriter(
        images=images,
        records=records,
        digests=[_digest(images, record) for record in records],
        encode=encode,
        signature=signature,
        size=size,
        views=views,
        folder=cache_folder() if folder is None else Path(folder),
        device=device,
        batch_size=batch_size,
        threads=threads,
        progress=progress,
    )
    files, broken = [], {}
    for view in range(views):
        parts = []
        for first in range(0, len(records), SHARD):
            part, bad = making.shard(view, first)
            parts.append(part)
            broken.update({first + i: sentence for i, sentence in bad.items()})
        files.append(tuple(parts))
    p, c = files[0][0].get_shape()[1:]
    return Features(broken=broken, shape=(p, c), views=views, _n=len(records), _files=tuple(files))


def cache_folder() -> Path:
    """Where features are kept unless told otherwise: ``SIGHTLINE_CACHE``, or the user's own cache."""
    return user_cache("features")


def _digest(images: CaptionSet, record: CaptionedImage) -> str:
    try:
        return images.image_digest(record)
    except BrokenImage:
        return f"broken {record.name}"


def _name(signature: str, size: int, view: int, digests: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps([signature, size, view, *digests]).encode()).hexdigest()[:32]


@dataclass(frozen=True, kw_only=True)
class _FeatureWriter:
    """What :func:`cache_features` was asked, and how a file of it is opened or made."""

    images: CaptionSet
    records: Sequence[CaptionedImage]
    digests: Sequence[str]
    encode: Encode
    signature: str
    size: int
    views: int
    folder: Path
    device: torch.device | str
    batch_size: int
    threads: int
    progress: Callable[[int, int], None] | None

    def shard(self, view: int, first: int) -> tuple[Any, dict[int, str]]:
        """One view of the pictures from ``first`` on: their grids, and what is wrong with them."""
        last = min(first + SHARD, len(self.records))
        name = _name(self.signature, self.size, view, self.digests[first:last])
        path = self.folder / f"{name}.safetensors"
        found = _opened(path, last - first)
        if found is None:
            _write(path, *self._computed(view, first, last), self.signature, view)
            found = _opened(path, last - first)
        if found is None:
            raise OSError(f"can't read {str(path)!r}, which was just written; is the disk sound?")
        return found

    def _computed(self, view: int, first: int, last: int) -> tuple[Float[Tensor, "n P C"], dict[int, str]]:
        grids, bad = [], {}
        numbers = range(first, last)
        with (
            prefetch(
                lambda i: self._load(i, view), numbers, threads=self.threads, depth=2 * self.batch_size
            ) as loaded,
            torch.no_grad(),
        ):
            for start in range(first, last, self.batch_size):
                batch = numbers[start - first : start - first + self.batch_size]
                pictures, problems = zip(*(next(loaded) for _ in batch), strict=True)
                bad.update({i - first: said for i, said in zip(batch, problems, strict=True) if said})
                found = self.encode(normalise(torch.stack(pictures).to(self.device)))
                grids.append(found.to("cpu", torch.float16))
                if self.progress is not None:
                    n = len(self.records)
                    self.progress(view * n + batch[-1] + 1, self.views * n)
        whole = torch.cat(grids)
        whole[list(bad)] = 0.0
        return whole, bad

    def _load(self, i: int, view: int) -> tuple[Shaped[Tensor, "3 size size"], str | None]:
        """A picture in a view; black, with the reason, if it can't be read."""
        try:
            picture = self.images.open(self.records[i], size=self.size if view < 2 else None)
        except BrokenImage as problem:
            return torch.zeros(3, self.size, self.size, dtype=torch.uint8), str(problem)
        return view_of(picture, view, self.size, digest=self.digests[i]), None


def _write(path: Path, grids: Tensor, bad: dict[int, str], signature: str, view: int) -> None:
    from safetensors import SafetensorError  # noqa: PLC0415
    from safetensors.torch import save_file  # noqa: PLC0415

    notes = {"signature": signature, "view": str(view), "broken": json.dumps(bad)}
    notes["crc32"] = _checksum(grids, notes["broken"])
    with atomic_write(path, remedy="set SIGHTLINE_CACHE to a folder with room") as beside:
        try:
            save_file({"grids": grids.contiguous()}, beside, metadata=notes)
        except SafetensorError as problem:  # its own kind of error, a full disk included
            raise OSError(str(problem)) from problem


def _opened(path: Path, n: int) -> tuple[Any, dict[int, str]] | None:
    """A file's n grids, mapped into memory, and its broken pictures; None if it is not there or damaged."""
    from safetensors import SafetensorError, safe_open  # noqa: PLC0415

    try:
        file: Any = safe_open(path, framework="pt")
        notes, grids = file.metadata() or {}, file.get_slice("grids")
        whole = grids[:]
        if whole.dim() != 3 or len(whole) != n or "broken" not in notes:
            return None
        if "crc32" in notes and notes["crc32"] != _checksum(whole, notes["broken"]):
            return None  # of those that earlier versions wrote, nothing is known
        return grids, {int(i): str(sentence) for i, sentence in json.loads(notes["broken"]).items()}
    except (FileNotFoundError, SafetensorError, ValueError, AttributeError):
        return None


def _checksum(grids: Tensor, broken: str) -> str:
    checksum = zlib.crc32(broken.encode())
    return f"{zlib.crc32(grids.contiguous().numpy().data, checksum):08x}"
