"""Where the examples of a tar shard lie: found in one pass over its headers and texts.

A shard groups members by their key, the path up to the first dot of the last part: ``0001.jpg`` and
``0001.json`` are one example, as WebDataset has it. ``.txt`` holds captions, one a line, ``.json`` columns as
a table has them, ``.cls`` a class. Members that can't be used cost themselves alone, and are named among the
problems.
"""

import hashlib
import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from sightline.data.image_tables import is_caption
from sightline.data.images import IMAGE_SUFFIXES
from sightline.data.shard_index import ROW, ShardIndex
from sightline.data.shard_rows import CAPTION, IMAGE, LABEL, PAIR, parse_row, read_text, roles_of
from sightline.untrusted import MOST_BYTES, format_bytes, open_regular

__all__ = ["index_tar"]

_MOST_HEADER = 1 << 20  # bytes of a name or of notes in a header
_MOST_TEXT = 1 << 20  # bytes of an example's text
_MOST_KEPT = 20  # problems of a shard that are named one by one
_MOST_LABELS = 100_000
_AT_ONCE = 1 << 16  # rows that are gathered before they become an array


def index_tar(path: Path) -> ShardIndex:
    """Read the headers and the texts of a shard.

    Raises:
        ValueError: If it is no tar at all.
    """
    with open_regular(path) as file:
        index = _Indexer(file, path.name)
        for key, members in _groups(index):
            index.add(key, members)
        return index.finish()


class _Indexer:
    """An index under way."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self.file, self.name = file, name
        self.size = os.fstat(file.fileno()).st_size
        self._digest = hashlib.blake2b(digest_size=16)
        self._rows: list[tuple[Any, ...]] = []
        self._arrays: list[NDArray[np.void]] = []
        self._keys: set[str] = set()
        self._labels: dict[str, int] = {}
        self._index = ShardIndex(np.empty(0, ROW))
        self._unnamed = 0
        self._cut: list[str] | None = None

    def note(self, kind: str, name: str, sentence: str) -> None:
        """Keep a problem, or count it where there are many."""
        if len(self._index.problems) < _MOST_KEPT:
            self._index.problems.append([kind, f"{self.name}/{name}", sentence])
        else:
            self._unnamed += 1

    def note_cut(self, name: str, sentence: str) -> None:
        """Keep that the rest is lost, whatever else was noted before."""
        self._cut = ["cut off", f"{self.name}/{name}", f"{self.name!r} is {sentence}; copy it anew"]

    def add(self, key: str, members: dict[str, tarfile.TarInfo]) -> None:
        """One example."""
        if key in self._keys:
            sentence = f"the key {key!r} is in {self.name!r} more than once; the first example of it is taken"
            self.note("duplicate key", key, sentence)
            return
        self._keys.add(key)
        image = next((x for ending, x in members.items() if f".{ending}" in IMAGE_SUFFIXES), None)
        text = members.get("txt") or members.get("json")
        try:
            row = self._row(members)
        except ValueError as problem:
            self.note("broken", key, str(problem))
            return
        has_caption, label, languages = roles_of(row)
        if "txt" in members:  # it is what is read later, and no pair
            languages = []
        roles = (
            (IMAGE if image else 0)
            | (CAPTION if has_caption else 0)
            | (LABEL if label is not None else 0)
            | (PAIR if len(languages) > 1 else 0)
        )
        if roles & PAIR and not self._index.languages:
            self._index.languages = languages
        self._digest.update(repr((key, image.size if image else 0, row)).encode(errors="surrogatepass"))
        self._rows.append(
            (
                image.offset_data if image else 0,
                image.size if image else 0,
                text.offset_data if text else 0,
                text.size if text else 0,
                text is not None and text is members.get("txt"),
                -1 if label is None else self._label(label),
                roles,
            )
        )
        if len(self._rows) >= _AT_ONCE:
            self._flush()

    def finish(self) -> ShardIndex:
        """The index, once all is added."""
        self._flush()
        if self._unnamed:
            sentence = f"{self._unnamed:,} more members of {self.name!r} can't be used"
            self._index.problems.append(["broken", self.name, sentence])
        self._index.problems += [] if self._cut is None else [self._cut]
        self._index.rows = np.concatenate([np.empty(0, ROW), *self._arrays])
        self._index.labels = list(self._labels)
        self._index.digest = self._digest.hexdigest()
        return self._index

    def _flush(self) -> None:
        self._arrays.append(np.array(self._rows, ROW))
        self._rows = []

    def _row(self, members: dict[str, tarfile.TarInfo]) -> dict[str, Any]:
        """All that an example says; a text of its own goes before captions among other columns."""
        columns, text, label = (members.get(ending) for ending in ("json", "txt", "cls"))
        row = {} if columns is None else parse_row(self._read(columns), columns.name, plain=False)
        if text is not None:
            row = {key: value for key, value in row.items() if not is_caption(key)}
            row |= parse_row(self._read(text), text.name, plain=True)
        if label is not None:
            row["label"] = read_text(self._read(label), label.name).strip()
        return row

    def _read(self, member: tarfile.TarInfo) -> bytes:
        if member.size > _MOST_TEXT:
            raise ValueError(
                f"a text in a shard may have {format_bytes(_MOST_TEXT)}, {member.name!r} in {self.name!r} "
                f"has {format_bytes(member.size)}"
            )
        return os.pread(self.file.fileno(), member.size, member.offset_data)

    def _label(self, label: str) -> int:
        if label not in self._labels and len(self._labels) >= _MOST_LABELS:
            raise ValueError(f"a set may have {_MOST_LABELS:,} classes, {self.name!r} has more")
        return self._labels.setdefault(label, len(self._labels))


class _Headers(io.RawIOBase):
    """A file of which a header may take a megabyte: one that says it is larger would fill the memory."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def read(self, size: int = -1) -> bytes:
        if size > _MOST_HEADER or size < 0:
            raise tarfile.HeaderError(f"a header has {format_bytes(max(0, size))}")
        return self._file.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()


def _groups(index: _Indexer) -> Iterator[tuple[str, dict[str, tarfile.TarInfo]]]:
    """The members of each key, by their endings, as long as they follow each other."""
    key, members = "", dict[str, tarfile.TarInfo]()
    for member in _members(index):
        folder, slash, last = member.name.removeprefix("./").rpartition("/")
        stem, dot, ending = last.partition(".")
        if not dot or last.startswith("."):
            continue
        own = f"{folder}{slash}{stem}"
        if own != key:
            if members:
                yield key, members
            key, members = own, {}
        if ending.lower() in members:
            sentence = f"{member.name!r} is in {index.name!r} more than once; the first is taken"
            index.note("duplicate key", key, sentence)
            continue
        members[ending.lower()] = member
    if members:
        yield key, members


def _members(index: _Indexer) -> Iterator[tarfile.TarInfo]:
    """The regular files of a tar of bounded size; what else is there is noted."""
    count, before = 0, -1
    try:
        tar = tarfile.open(fileobj=_Headers(index.file), mode="r:", errorlevel=0)  # noqa: SIM115
    except (tarfile.TarError, ValueError, OSError, EOFError) as problem:
        if index.size == 0:
            raise ValueError(f"{index.name!r} is empty, and no tar; copy it anew") from None
        raise ValueError(f"{index.name!r} is not a tar or is damaged: {problem}; copy it anew") from None
    while True:
        try:
            member = tar.next()
        except (tarfile.TarError, ValueError, OSError, EOFError, OverflowError) as problem:
            index.note_cut(f"member {count}", f"damaged or cut off after {count} members: {problem}")
            return
        if member is None:
            # A whole tar ends in zeros; the library stops without a word at what is no header.
            end = os.pread(index.file.fileno(), tarfile.BLOCKSIZE, tar.offset)
            if end != tarfile.NUL * tarfile.BLOCKSIZE:
                index.note_cut(f"member {count}", f"damaged or cut off after {count} members")
            return
        tar.members = []  # type: ignore[attr-defined]  # else it keeps them all
        count += 1
        has_bytes = member.isreg() and not member.issparse()  # of holes a tar has none
        last = member.offset_data + (member.size if has_bytes else 0)
        if member.size < 0 or member.offset <= before or last > index.size:
            name = member.name[:80]
            index.note_cut(name, f"cut off in {name!r}, after {count - 1} members")
            return
        before = member.offset
        if _is_usable(index, member):
            yield member


def _is_usable(index: _Indexer, member: tarfile.TarInfo) -> bool:
    if member.isdir():
        return False
    if not member.isreg() or member.issparse():
        kind = "a link" if member.issym() or member.islnk() else "no regular file"
        sentence = f"a shard holds regular files, {member.name[:80]!r} in {index.name!r} is {kind}"
        index.note("broken", member.name[:80], sentence)
        return False
    if member.size > MOST_BYTES:
        sentence = (
            f"a file in a shard may have {format_bytes(MOST_BYTES)}, {member.name[:80]!r} in {index.name!r} "
            f"has {format_bytes(member.size)}"
        )
        index.note("broken", member.name[:80], sentence)
        return False
    return True
