"""Reading examples out of one shard: by offset from a tar, by groups of rows from parquet."""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from sightline.data.counter_rng import Ints
from sightline.data.files import OpenFile
from sightline.data.image_tables import is_caption, is_image_column, label_column
from sightline.data.parquet import ParquetFile
from sightline.data.shard_index import ROW, ShardIndex, cached_index
from sightline.data.shard_rows import CAPTION, IMAGE, LABEL, PAIR, parse_row, roles_of
from sightline.data.sources import Folder
from sightline.data.tar_index import index_tar
from sightline.untrusted import check_regular, format_bytes

__all__ = ["BUFFER_BYTES", "Encoded", "ParquetShard", "ShardReader", "TarShard"]

BUFFER_BYTES = 1 << 28  # of images that are shuffled among each other; a group of rows has no more
Encoded = bytes | str  # an image as it was encoded, or why it can't be read
_OPEN = 64  # tars that are kept open
_OPEN_PARQUET = 16
_IN_MEMORY = BUFFER_BYTES + BUFFER_BYTES // 4  # bytes of groups of rows: a buffer, and what comes after it


@runtime_checkable
class ShardReader(Protocol):
    """One shard."""

    path: Path
    index: ShardIndex

    def rows(self) -> Iterator[dict[str, Any]]:
        """What each example says besides its image, in order."""

    def text_bytes(self) -> int:
        """The size of all that the examples say, as it is stored."""

    def image(self, i: int) -> bytes:
        """The bytes of one image, as it was encoded; OSError, with a sentence, if they can't be had."""

    def images(self, numbers: Ints) -> Iterator[Encoded]:
        """Those of some examples, in order: read one after the other."""

    def read_at_once(self) -> int:
        """The most bytes that are read together."""


class _Recent:
    """The things that were asked for last; a thread that still uses one that goes keeps it alive."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._kept: OrderedDict[Any, tuple[Any, int]] = OrderedDict()

    def get(self, key: Any, make: Any, *, most: int) -> Any:
        """The thing of a key, made if it is not there; ``make`` gives it with its size."""
        with self.lock:
            if key not in self._kept:
                thing, size = make()
                held = sum(other for _, other in self._kept.values())
                while self._kept and held + size > most:
                    held -= self._kept.popitem(last=False)[1][1]
                self._kept[key] = thing, size
            self._kept.move_to_end(key)
            return self._kept[key][0]


_TARS, _PARQUETS, _GROUPS = _Recent(), _Recent(), _Recent()  # one bound for all the shards of a process


class TarShard:
    """A tar: examples are read where they lie, a few bytes of text and one image at a time."""

    def __init__(self, path: Path) -> None:
        self.path, self.index = path, cached_index(path, index_tar)
        self._key = object()  # a file that takes its place later is another

    def rows(self) -> Iterator[dict[str, Any]]:
        """The columns of each example."""
        for i, row in enumerate(self.index.rows):
            text = self._read(row["text"], row["text_size"]) if row["text_size"] else None
            name, plain = f"{self.path.name}/{i}", bool(row["plain"])
            yield {} if text is None else parse_row(text, name, plain=plain)

    def text_bytes(self) -> int:
        """The size of all texts."""
        return int(self.index.rows["text_size"].sum(dtype=np.int64))

    def image(self, i: int) -> bytes:
        """The bytes of an image."""
        return self._read(self.index.rows[i]["image"], self.index.rows[i]["image_size"])

    def images(self, numbers: Ints) -> Iterator[Encoded]:
        """The bytes of some images."""
        for i in numbers.tolist():
            try:
                yield self.image(i)
            except OSError as problem:
                yield str(problem)

    def read_at_once(self) -> int:
        """The size of the largest image."""
        return int(self.index.rows["image_size"].max(initial=0))

    def _read(self, offset: int, size: int) -> bytes:
        file: OpenFile = _TARS.get(self._key, lambda: (OpenFile(self.path), 1), most=_OPEN)
        return file.read(offset, size)


class ParquetShard:
    """A parquet file: a group of rows is read as a whole, and kept while the buffer needs it."""

    def __init__(self, path: Path) -> None:
        self.path, self.index = path, cached_index(path, _index_parquet)
        self._key = object()

    def rows(self) -> Iterator[dict[str, Any]]:
        """The columns of each row; no image is read."""
        file = _open_parquet(self.path)
        columns = _text_columns(file)
        for group, (n, _) in enumerate(file.groups()):
            for row in file.rows_of_group(group, columns) if columns else [{}] * n:
                yield {key.lower(): value for key, value in row.items()}

    def text_bytes(self) -> int:
        """The size of the columns without the images."""
        file = _open_parquet(self.path)
        return file.bytes_of(_text_columns(file))

    def image(self, i: int) -> bytes:
        """The bytes of an image."""
        group = int(self.index.rows[i]["image"])
        return self._image(_GROUPS.get((self._key, group), lambda: self._group(group), most=_IN_MEMORY), i)

    def images(self, numbers: Ints) -> Iterator[Encoded]:
        """The bytes of some images; one group of rows is held."""
        groups = self.index.rows["image"][numbers]
        for some in np.split(numbers, np.flatnonzero(np.diff(groups)) + 1):
            try:
                column = self._group(int(self.index.rows[some[0]]["image"]))[0]
            except OSError as problem:
                yield from [str(problem)] * len(some)
                continue
            for i in some.tolist():
                try:
                    yield self._image(column, i)
                except OSError as problem:
                    yield str(problem)

    def read_at_once(self) -> int:
        """The size of the largest group of rows."""
        rows = self.index.rows
        return int(np.bincount(rows["image"], weights=rows["image_size"]).max(initial=0))

    def _group(self, number: int) -> tuple[Any, int]:
        """The images of a group of rows, and their size."""
        file = _PARQUETS.get(self._key, lambda: (_open_parquet(self.path), 1), most=_OPEN_PARQUET)
        image = next((x for x, name in zip(file.columns, _named(file), strict=True) if name is None), None)
        column = None if image is None else file.group(number, image)
        return column, 0 if column is None else column.nbytes

    def _image(self, column: Any, i: int) -> bytes:
        value = None if column is None else column[int(self.index.rows[i]["text"])].as_py()
        content = value.get("bytes") if isinstance(value, dict) else value
        if not isinstance(content, bytes):
            raise OSError(f"row {i} of {self.path.name!r} holds no image")
        return content


def _open_parquet(path: Path) -> ParquetFile:
    check_regular(path)
    return ParquetFile(Folder(path.parent), path.name)


def _named(file: ParquetFile) -> list[str | None]:
    """The columns in small letters; None for that of the images."""
    held = [column for column in file.columns if file.holds_bytes(column)]
    image = held[0] if held else None
    return [None if column == image else column.lower() for column in file.columns]


def _text_columns(file: ParquetFile) -> list[str]:
    return [column for column, name in zip(file.columns, _named(file), strict=True) if name is not None]


def _index_parquet(path: Path) -> ShardIndex:
    """What each row has, by its columns without the images."""
    file = _open_parquet(path)
    names = _named(file)
    plain = [column for column, name in zip(file.columns, names, strict=True) if name and not _is_path(name)]
    label = label_column([column.lower() for column in plain])
    classes = next((file.class_names(x) for x in plain if x.lower() == label), None)
    labels: dict[str, int] = {}
    index = ShardIndex(np.empty(0, ROW), classes=None if classes is None else list(classes))
    digest = hashlib.blake2b(digest_size=16)
    arrays = [np.empty(0, ROW)]
    for group, (n, size) in enumerate(file.groups()):
        if size > BUFFER_BYTES:
            raise ValueError(
                f"a group of rows may have {format_bytes(BUFFER_BYTES)}, group {group} of {str(path)!r} has "
                f"{format_bytes(size)}; write it again with fewer rows a group (row_group_size)"
            )
        rows = file.rows_of_group(group, plain) if plain else [{}] * n
        found = np.zeros(n, ROW)
        found["image"], found["text"], found["image_size"] = group, np.arange(n), size // max(1, n)
        for at, row in enumerate({key.lower(): value for key, value in row.items()} for row in rows):
            has_caption, name, languages = roles_of(row, classes)
            roles = (IMAGE if None in names else 0) | (CAPTION if has_caption else 0)
            roles |= (LABEL if name is not None else 0) | (PAIR if len(languages) > 1 else 0)
            if roles & PAIR and not index.languages:
                index.languages = languages
            number = -1 if name is None else labels.setdefault(name, len(labels))
            found["label"][at], found["roles"][at] = number, roles
            digest.update(repr(row).encode(errors="surrogatepass"))
        arrays.append(found)
    index.rows, index.labels, index.digest = np.concatenate(arrays), list(labels), digest.hexdigest()
    return index


def _is_path(column: str) -> bool:
    return is_image_column(column) and not is_caption(column)
