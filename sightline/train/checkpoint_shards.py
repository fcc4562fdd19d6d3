"""Tensors of a checkpoint where they are sharded: torch.distributed.checkpoint, as safetensors.

Each process writes its own part to a file of its own, and any number of processes reads the parts that it
needs. Nothing is pickled: where each part belongs stands in the files' headers.
"""

import warnings
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sightline.train.processes import spread
from sightline.train.sharding import local
from sightline.untrusted import check_regular

__all__ = ["ShardedTensors", "check_shards", "checksums", "save_shards"]

_BLOCK = 1 << 22


class ShardedTensors(NamedTuple):
    """The tensors of a sharded checkpoint, read when it is known where to."""

    folder: Path

    def shapes(self) -> dict[str, tuple[torch.Size, torch.dtype]]:
        """The shape and type of each, by name."""
        from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader  # noqa: PLC0415

        known: Any = HuggingFaceStorageReader(str(self.folder)).read_metadata().state_dict_metadata
        return {name: (about.size, about.properties.dtype) for name, about in known.items()}

    def read_into(self, targets: Mapping[str, Tensor]) -> None:
        """Fill these tensors, whole ones or parts; no process waits for another."""
        from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader  # noqa: PLC0415
        from torch.distributed.checkpoint.state_dict_loader import load  # noqa: PLC0415

        reader = HuggingFaceStorageReader(str(self.folder))
        with _quietly():
            load(dict(targets), storage_reader=reader, no_dist=True)


def save_shards(tensors: Mapping[str, Tensor], folder: Path) -> None:
    """Write named tensors, each process its parts; tied ones under each name. All must call it.

    Raises:
        OSError: In every process, if one of them can't write.
    """
    from torch.distributed.checkpoint.api import CheckpointException  # noqa: PLC0415
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter  # noqa: PLC0415
    from torch.distributed.checkpoint.state_dict_saver import save  # noqa: PLC0415

    seen: set[int] = set()
    own: dict[str, Any] = {}
    for name, tensor in tensors.items():
        at = local(tensor).data_ptr()
        own[name] = tensor.detach().clone() if at in seen else tensor.detach()
        seen.add(at)
    writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
    try:
        with _quietly():
            save(own, storage_writer=writer)
    except CheckpointException as problem:
        reasons = [str(failure[0]).partition("\n")[0] for failure in problem.failures.values()]
        raise OSError(f"process {next(iter(problem.failures))}: {reasons[0]}") from problem


def checksums(folder: Path) -> dict[str, list[int]]:
    """Length and checksum of each file of tensors; the processes share the reading."""
    files = sorted(path.name for path in folder.glob("*.safetensors"))
    return dict(zip(files, spread(lambda name: _checksum(folder / name), files), strict=True))


def check_shards(folder: Path, expected: Mapping[str, list[int]]) -> None:
    """Compare the files of a checkpoint with what was written.

    Raises:
        ValueError: If one is missing, or not as it was.
    """
    for name, (length, crc32) in expected.items():
        check_regular(folder / name)
        size, checksum = _checksum(folder / name)
        if size != length:
            raise ValueError(f"{name} has {size} bytes where {length} were written")
        if checksum != crc32:
            raise ValueError(f"the checksum of {name} is wrong")


def _checksum(path: Path) -> list[int]:
    size = checksum = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            size, checksum = size + len(block), zlib.crc32(block, checksum)
    return [size, checksum]


@contextmanager
def _quietly() -> Iterator[None]:
    """Without the library's notes on how it was called."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
