"""Parquet files: the columns of their rows, and the images that lie in them; read by ``pyarrow``, an extra.

Images are structs of ``bytes`` and ``path``, as Hugging Face writes them, plain bytes, or paths of files that
lie beside. They are read a group of rows at a time, when they are asked for.
"""

import bisect
import io
import json
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from sightline.data.sources import Files, Folder, Index
from sightline.data.tables import Row
from sightline.untrusted import check_memory, check_regular

__all__ = ["ParquetFile", "ParquetImages", "parquet_names"]

_AS_ROWS = 10  # bytes of memory for a byte of a column, once it is Python's
_IN_MEMORY = 2 << 30  # bytes of images, as they were encoded


def parquet_names(names: Iterable[str]) -> list[str]:
    """Those files that are parquet by their name."""
    return [name for name in names if name.lower().endswith(".parquet")]


class ParquetFile:
    """One file of a set.

    Raises:
        ImportError: If pyarrow is not installed; the sentence says how it is.
        ValueError: If the file is damaged or none.
    """

    def __init__(self, files: Files, name: str) -> None:
        pyarrow = _pyarrow()
        self.name = name
        try:
            source = files.path / name if isinstance(files, Folder) else io.BytesIO(files.read(name))
            if isinstance(source, Path):
                check_regular(source)
            self._file = pyarrow.parquet.ParquetFile(source)
        except (pyarrow.ArrowException, OSError) as problem:
            raise ValueError(
                f"{name!r} in {files.where!r} can't be read as parquet: {_first(problem)}"
            ) from problem
        self._schema = self._file.schema_arrow
        counts = [self._file.metadata.row_group(i).num_rows for i in range(self._file.num_row_groups)]
        self._ends = list(accumulate(counts))

    def __len__(self) -> int:
        """How many rows there are."""
        return int(self._file.metadata.num_rows)

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self._schema.names)

    def holds_bytes(self, column: str) -> bool:
        """Whether a column holds bytes, or structs with bytes: images, and not their names."""
        types, kind = _pyarrow().types, self._schema.field(column).type
        if types.is_struct(kind):
            return any(kind.field(i).name == "bytes" for i in range(kind.num_fields))
        return bool(types.is_binary(kind) or types.is_large_binary(kind))

    def class_names(self, column: str) -> tuple[str, ...] | None:
        """What Hugging Face notes of a column of classes: their names, in the order of the numbers."""
        try:
            notes = json.loads((self._schema.metadata or {}).get(b"huggingface", b"{}"))
            names = notes["info"]["features"][column]["names"]
        except (ValueError, KeyError, TypeError):
            return None
        return tuple(map(str, names)) if isinstance(names, list) else None

    def rows(self, columns: Sequence[str]) -> list[Row]:
        """All rows, of some columns."""
        check_memory(_AS_ROWS * self.bytes_of(columns), f"reading {self.name!r}", "split it")
        return list(self._read(lambda: self._file.read(columns=list(columns))).to_pylist())

    def bytes_of(self, columns: Sequence[str]) -> int:
        """The size of some columns, once they are unpacked."""
        groups = (self._file.metadata.row_group(i) for i in range(self._file.num_row_groups))
        parts = (group.column(j) for group in groups for j in range(group.num_columns))
        sizes = (x.total_uncompressed_size for x in parts if x.path_in_schema.partition(".")[0] in columns)
        return int(sum(sizes))

    def group_of(self, row: int) -> tuple[int, int]:
        """In which group of rows a row is, and at which place."""
        group = bisect.bisect_right(self._ends, row)
        return group, row - (self._ends[group - 1] if group else 0)

    def group(self, number: int, column: str) -> Any:
        """A column of one group of rows, as pyarrow keeps it."""
        return self._read(lambda: self._file.read_row_group(number, [column], use_threads=False)).column(0)

    def groups(self) -> list[tuple[int, int]]:
        """How many rows each group has, and how many bytes once it is unpacked."""
        groups = (self._file.metadata.row_group(i) for i in range(self._file.num_row_groups))
        return [(int(group.num_rows), int(group.total_byte_size)) for group in groups]

    def rows_of_group(self, number: int, columns: Sequence[str]) -> list[Row]:
        """The rows of one group, of some columns."""
        read = self._read(lambda: self._file.read_row_group(number, columns=list(columns)))
        return list(read.to_pylist())

    def _read(self, read: Any) -> Any:
        try:
            return read()
        except (_pyarrow().ArrowException, OSError) as problem:
            raise OSError(f"{self.name!r} is damaged: {_first(problem)}") from problem


class ParquetImages:
    """The images of some parquet files, as files: ``train.parquet/17`` is that of row 17.

    Args:
        files: Where the parquet files lie, and images that they name by their paths.
        shards: The parquet files, each with the column of its images.
    """

    def __init__(self, files: Files, shards: Sequence[tuple[ParquetFile, str]]) -> None:
        self._files = files
        self._shards = {shard.name: (shard, column) for shard, column in shards}
        self._index: Index | None = None
        self._lock = threading.Lock()  # images are opened from threads
        self._groups: OrderedDict[tuple[str, int], Any] = OrderedDict()

    @property
    def where(self) -> str:
        """The folder, zip or file."""
        return self._files.where

    def names(self) -> list[str]:
        """A name for each row."""
        return [f"{name}/{i}" for name, (shard, _) in self._shards.items() for i in range(len(shard))]

    def read(self, name: str) -> bytes:
        """The bytes of an image, as it was encoded."""
        shard, _, row = name.rpartition("/")
        value = self._value(shard, int(row))
        path = value.get("path") if isinstance(value, dict) else value
        content = value.get("bytes") if isinstance(value, dict) else value
        if isinstance(content, bytes):
            return content
        if not isinstance(path, str):
            raise OSError(f"row {row} of {shard!r} holds no image")
        at = self._find(path, near=shard.rpartition("/")[0])
        if at is None:
            raise OSError(f"the image {path!r} of row {row} is not in {self.where!r}, or more than once")
        return self._files.read(at)

    def _value(self, name: str, row: int) -> Any:
        shard, column = self._shards[name]
        group, at = shard.group_of(row)
        with self._lock:
            if (name, group) not in self._groups:
                self._groups[name, group] = shard.group(group, column)
            self._groups.move_to_end((name, group))
            while len(self._groups) > 1 and sum(x.nbytes for x in self._groups.values()) > _IN_MEMORY:
                self._groups.popitem(last=False)
            return self._groups[name, group][at].as_py()

    def _find(self, path: str, near: str) -> str | None:
        with self._lock:
            if self._index is None:
                self._index = Index(self._files.names())
        return self._index.find(path, near=near)


def _first(problem: BaseException) -> str:
    return " ".join(str(problem).split())[:200]


def _pyarrow() -> Any:
    try:
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.parquet  # noqa: PLC0415  it is pa.parquet
    except ImportError as missing:
        raise ImportError(
            "parquet files are read with pyarrow, which is not installed; pip install 'sightline[parquet]'",
            name="pyarrow",
        ) from missing
    return pa
