"""Packing any set into shards: ``train-000000.tar`` or ``train-000000.parquet``, the same bytes every time.

A folder of shards is written whole or not at all: it is made beside its place, and takes it when all is done.
A pack that was killed leaves that folder behind, hidden, and the next one begins anew.
"""

import io
import json
import shutil
import tarfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, Self, runtime_checkable

from sightline.data.dataset import Dataset
from sightline.data.files import fsync_path, reason
from sightline.data.pack_examples import PackedExample, class_names_of, packed_examples
from sightline.data.shard_files import split_of_shard
from sightline.data.shards import CLASSES
from sightline.messages import logger
from sightline.shapes import did_you_mean
from sightline.untrusted import need, to_json

__all__ = ["FORMATS", "pack"]

_GROUP_BYTES = 1 << 22  # of the rows that parquet reads together
_GROUP_ROWS = 1024
_OnExample = Callable[[int], None]


def pack(
    dataset: Dataset[Any],
    out: Path,
    *,
    form: str = "tar",
    shard_bytes: int = 256_000_000,
    on_example: _OnExample | None = None,
) -> dict[str, int]:
    """Write a set as shards.

    Args:
        dataset: Images with captions, images with classes, or sentence pairs.
        out: The folder to make; it must not be there, or be empty.
        form: ``tar`` or ``parquet``.
        shard_bytes: A shard is closed before it would have more; one example may.
        on_example: Called with the number of examples written so far.

    Returns:
        How many examples each split has.

    Raises:
        ValueError: If a setting is no good, the folder is in use, or the set is empty.
        OSError: If it can't be written.
    """
    if form not in FORMATS:
        raise ValueError(f"unknown format {form!r}, {did_you_mean(form, FORMATS)}")
    if shard_bytes < 1:
        raise ValueError(f"a shard must have at least 1 byte, got {shard_bytes}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"shards are written into a new folder, {str(out)!r} is in use; choose another")
    out = out.absolute()
    beside = out.with_name(f".{out.name}.packing")
    try:
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        counts = _pack_splits(dataset, beside, form, shard_bytes, on_example)
        fsync_path(beside)
        if out.exists():
            out.rmdir()
        beside.rename(out)
    except OSError as problem:
        raise OSError(f"can't write {str(out)!r}: {reason(problem)}; choose another place") from problem
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return counts


def _pack_splits(
    dataset: Dataset[Any], folder: Path, form: str, shard_bytes: int, on_example: _OnExample | None
) -> dict[str, int]:
    done, counts = count(1), {}
    names = class_names_of(dataset)
    for split in dataset.splits():
        if split_of_shard(Path(f"{split}-000000.{form}")) != split:
            logger.warning("a shard's name can't tell the split %r; it is left out", split)
            continue
        counts[split] = 0
        with ExitStack() as stack:
            for example, path in _in_shards(
                packed_examples(dataset, split), folder, split, form, shard_bytes
            ):
                if path is not None:
                    stack.close()
                    writer = stack.enter_context(FORMATS[form](path, names))
                writer.add(f"{counts[split]:08d}", example)
                counts[split] += 1
                if on_example is not None:
                    on_example(next(done))
    if not any(counts.values()):
        raise ValueError(
            f"there must be something to pack, {dataset.source!r} has no example that can be used"
        )
    if names is not None and form == "tar":
        (folder / CLASSES).write_text(to_json(list(names), indent=1) + "\n", encoding="utf-8")
    return counts


def _in_shards(
    examples: Iterator[PackedExample], folder: Path, split: str, form: str, shard_bytes: int
) -> Iterator[tuple[PackedExample, Path | None]]:
    """Each example, and, where a new shard begins, that one's path."""
    number, held = 0, shard_bytes + 1
    for example in examples:
        size = _size(example)
        if held + size > shard_bytes:
            yield example, folder / f"{split}-{number:06d}.{form}"
            number, held = number + 1, size
        else:
            yield example, None
            held += size


def _size(example: PackedExample) -> int:
    texts = sum(len(text.encode()) for text in (*example.captions, *example.sides.values()))
    return len(example.image or b"") + texts + 2 * tarfile.BLOCKSIZE


@runtime_checkable
class _Writer(Protocol):
    """Writes one shard, between ``with`` and its end."""

    def __init__(self, path: Path, classes: tuple[str, ...] | None) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def add(self, key: str, example: PackedExample) -> None:
        """Write an example."""


class _TarWriter:
    """Members without owners and dates, so that the same examples make the same bytes."""

    def __init__(self, path: Path, classes: tuple[str, ...] | None) -> None:  # noqa: ARG002
        self._path, self._tar = path, tarfile.open(path, "w", format=tarfile.USTAR_FORMAT)  # noqa: SIM115

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._tar.close()
        fsync_path(self._path)

    def add(self, key: str, example: PackedExample) -> None:
        if example.image is not None:
            self._member(f"{key}.{example.ending}", example.image)
        if example.label is not None:
            self._member(f"{key}.cls", str(example.label).encode())
        elif example.captions:
            row = {"captions": list(example.captions), "file_name": example.name}
            self._member(f"{key}.json", to_json(row).encode())
        else:
            self._member(f"{key}.json", to_json({"translation": dict(example.sides)}).encode())

    def _member(self, name: str, content: bytes) -> None:
        member = tarfile.TarInfo(name)
        member.size, member.mode = len(content), 0o644
        self._tar.addfile(member, io.BytesIO(content))


class _ParquetWriter:
    """Rows as Hugging Face has them, in groups of some megabytes, which are read as a whole."""

    def __init__(self, path: Path, classes: tuple[str, ...] | None) -> None:
        self._pa = need("pyarrow", "parquet", "parquet")
        need("pyarrow.parquet", "parquet", "parquet")
        self._path, self._classes = path, classes
        self._rows: list[dict[str, Any]] = []
        self._held = 0
        self._file: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._flush()
        self._file.close()
        fsync_path(self._path)

    def add(self, key: str, example: PackedExample) -> None:  # noqa: ARG002
        row: dict[str, Any] = {}
        if example.image is not None:
            row["image"] = {"bytes": example.image, "path": example.name}
        if example.label is not None:
            row["label"] = example.label
        if example.captions:
            row["captions"] = list(example.captions)
        if example.sides:
            row["translation"] = dict(example.sides)
        self._rows.append(row)
        self._held += _size(example)
        if self._held >= _GROUP_BYTES or len(self._rows) >= _GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        if not self._rows:
            return
        table = self._pa.Table.from_pylist(self._rows)
        if self._classes is not None:
            notes = {"info": {"features": {"label": {"names": list(self._classes), "_type": "ClassLabel"}}}}
            table = table.replace_schema_metadata({"huggingface": json.dumps(notes)})
        if self._file is None:
            self._file = self._pa.parquet.ParquetWriter(self._path, table.schema)
        self._file.write_table(table, row_group_size=len(self._rows))
        self._rows, self._held = [], 0


FORMATS: MappingProxyType[str, type[_Writer]] = MappingProxyType(
    {"tar": _TarWriter, "parquet": _ParquetWriter}
)
