"""A folder or a zip, seen alike: names of files, and their bytes. Nothing is ever written or unpacked."""

import lzma
import os
import unicodedata
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Protocol, runtime_checkable

from sightline.messages import quoted
from sightline.untrusted import MOST_BYTES, check_memory, check_regular, format_bytes, read_bytes

__all__ = ["UNREADABLE", "Files", "Folder", "Index", "Zip", "check_packing", "files_of", "text_of"]

# A zip can promise terabytes: from this size on, what unpacks to so many times its size is no data.
_LARGE = 1 << 24
_DENSEST = 100
# RuntimeError is a password that is missing, or a compression of tomorrow.
UNREADABLE = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError, ValueError)
_AS_TEXT = 10  # bytes of memory for a byte of a table: its letters, its cells, its rows


@runtime_checkable
class Files(Protocol):
    """Files under one roof."""

    @property
    def where(self) -> str:
        """The folder or the zip, for sentences."""

    def names(self) -> list[str]:
        """Every file, by its path under the roof with ``/`` between folders, sorted."""

    def read(self, name: str) -> bytes:
        """The content of one of them; OSError, with a sentence, if it can't be had."""


class Folder:
    """The files of a folder and of the folders in it; hidden ones are left out."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def where(self) -> str:
        """The folder."""
        return str(self.path)

    def names(self) -> list[str]:
        """Every file in it. Links are followed, round in circles once."""
        found: list[str] = []
        seen: set[str] = set()
        for here, folders, files in os.walk(self.path, followlinks=True):
            real = os.path.realpath(here)
            folders[:] = [] if real in seen else [x for x in folders if not _is_hidden(x)]
            if real not in seen:
                below = Path(here).relative_to(self.path)
                found += [(below / x).as_posix() for x in files if not _is_hidden(x)]
            seen.add(real)
        return sorted(found)

    def read(self, name: str) -> bytes:
        """The content of a file."""
        return read_bytes(self.path / name)


class Zip:
    """The files of a zip, read from it one by one; threads may share it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        check_regular(path)
        try:
            self._zip = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, NotImplementedError, ValueError) as problem:
            raise ValueError(
                f"{str(path)!r} is not a zip or is damaged: {problem}; copy it anew"
            ) from problem

    @property
    def where(self) -> str:
        """The zip."""
        return str(self.path)

    def names(self) -> list[str]:
        """Every file in it."""
        names = (x.filename for x in self._zip.infolist() if not x.is_dir())
        return sorted(x for x in names if not any(map(_is_hidden, x.split("/"))))

    def read(self, name: str) -> bytes:
        """The content of a file."""
        member = self._zip.getinfo(name)
        check_packing(member, self.where)
        _check_unpacked(member, self.where)
        try:
            with self._zip.open(member) as stream:
                return stream.read(member.file_size)  # without a size all is unpacked at once, however much
        except UNREADABLE as problem:
            raise OSError(f"can't read {name!r} in {self.where!r}: {problem}") from problem


def files_of(path: Path) -> Folder | Zip:
    """Open a folder or a zip.

    Raises:
        FileNotFoundError: If there is nothing of that name.
        ValueError: If it is neither.
    """
    if path.is_dir():
        return Folder(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no folder and no zip {str(path)!r}")
    check_regular(path)
    if path.suffix.lower() == ".zip" or zipfile.is_zipfile(path):
        return Zip(path)
    raise ValueError(f"data must be a folder or a zip, {str(path)!r} is neither")


def text_of(content: bytes, name: str) -> str:
    """The text of a file in UTF-8, with or without a mark of it, or in UTF-16 with one.

    Other encodings are refused and not guessed: a wrong guess would train on "cafÃ©" without a word.
    """
    check_memory(_AS_TEXT * len(content), f"reading {name!r} of {format_bytes(len(content))}", "split it")
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return content.decode("utf-16", errors="replace")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = content.count(b"\n", 0, problem.start) + 1
        last = quoted(PurePosixPath(name).name)
        raise ValueError(
            f"a text must be UTF-8, {name!r} has the byte 0x{content[problem.start]:02x} on line {line}; "
            f"if it is Latin-1, convert it: iconv -f latin1 -t utf-8 {last} > new && mv new {last}"
        ) from None


class Index:
    """Finds the file that an annotation means, whichever folder it was put into and however é is written.

    Example:
        >>> index = Index(["set/captions.csv", "set/images/cat.jpg", "old/cat.jpg", "set/dog.jpg"])
        >>> index.find("dog.jpg"), index.find("images/cat.jpg"), index.find("cat.jpg"), index.find("cow.jpg")
        ('set/dog.jpg', 'set/images/cat.jpg', None, None)
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._raw = set(names)
        self._all = {_composed(name): name for name in sorted(self._raw, reverse=True)}
        self._by_last: dict[str, list[str]] = {}
        for name in sorted(self._all):
            self._by_last.setdefault(name.rpartition("/")[2], []).append(name)

    def same_name(self, image: str) -> list[str]:
        """All files of that name, whatever their folders."""
        last = _composed(image.replace("\\", "/")).rpartition("/")[2]
        return [self._all[name] for name in self._by_last.get(last, [])]

    def find(self, image: str, *, near: str = "") -> str | None:
        """The one file of that name: in the folder ``near``, else with the same folders, else anywhere."""
        image = image.replace("\\", "/").removeprefix("./")
        for exact in (f"{near}/{image}" if near else image, image):
            if exact in self._raw:
                return exact
        image = _composed(image)
        for exact in (_composed(f"{near}/{image}") if near else image, image):
            if exact in self._all:
                return self._all[exact]
        same_last = self._by_last.get(image.rpartition("/")[2], [])
        same_end = [name for name in same_last if name.endswith(f"/{image}")]
        for choice in (same_end, same_last):
            if len(choice) == 1:
                return self._all[choice[0]]
        return None


def _composed(name: str) -> str:
    """A name with é as one character: some systems write it as two, and so do the zips made on them."""
    return unicodedata.normalize("NFC", name)


def _is_hidden(part: str) -> bool:
    return (part.startswith(".") and part not in {".", ".."}) or part == "__MACOSX"


def check_packing(member: zipfile.ZipInfo, where: str) -> None:
    """Refuse bzip2, which Python unpacks whole, whatever size the directory says."""
    if member.compress_type == zipfile.ZIP_BZIP2:
        raise OSError(
            f"a file in a zip may not be packed by bzip2, got {member.filename!r} in {where!r}; pack it anew "
            "by deflate, as zip does by default"
        )


def _check_unpacked(member: zipfile.ZipInfo, where: str) -> None:
    """Refuse a file that is too large once it is unpacked, or far larger than data of its size can be."""
    size, what = member.file_size, f"{member.filename!r} in {where!r}"
    if size > MOST_BYTES:
        raise OSError(
            f"a file in a zip may have {format_bytes(MOST_BYTES)}, {what} has {format_bytes(size)}; split it"
        )
    if size > _LARGE and size > _DENSEST * max(1, member.compress_size):
        raise OSError(
            f"a file in a zip may unpack to {_DENSEST} times its size, {what} would from "
            f"{format_bytes(member.compress_size)} to {format_bytes(size)}; unpack it "
            "yourself if you trust it"
        )
