"""The inputs of a bulk prediction: files, folders, lists and shards, one after the other, read when needed.

=================================  ===============================================================
``photos/``                         every image in the folder and below it, by name
``photos.txt``                      of images: a path a line; of texts: a text a line
``shards/``, ``'train-*.tar'``      the images, or the source texts, of tar or parquet shards
``1.jpg``, ``"Guten Tag!"``         itself
=================================  ===============================================================
"""

import bisect
import hashlib
from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from sightline.border import open_regular, shown_bytes
from sightline.data.class_folders import is_image
from sightline.data.counter_rng import Ints
from sightline.data.files import OpenFile
from sightline.data.images import EncodedImage
from sightline.data.shard_files import find_shards
from sightline.data.shard_rows import CAPTION, IMAGE, PAIR, captions_of, sides_of
from sightline.data.shards import Shards
from sightline.data.sources import Folder
from sightline.tasks.run import Run

__all__ = ["BulkInput", "BulkInputs", "bulk_inputs"]

_LONGEST = 1 << 20  # bytes of a line


class BulkInput(NamedTuple):
    """One input: what the result calls it, and what the model takes, or why it can't be had."""

    name: str
    value: Any


@runtime_checkable
class BulkInputs(Protocol):
    """Inputs that are counted before any is read."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> BulkInput:
        """One of them; OSError or ValueError, with a sentence, if it can't be had."""
        ...

    def name(self, index: int) -> str:
        """What the result calls it."""
        ...

    def digest(self) -> str:
        """Names them all."""
        ...


def bulk_inputs(run: Run, places: Sequence[str]) -> BulkInputs:
    """The inputs that a user names.

    Args:
        run: Whose task says whether inputs are images or texts.
        places: Files, folders, patterns of shards, or texts.

    Raises:
        ValueError: If there is nothing, or a place holds no inputs.
        OSError: If a file is not there.
    """
    found = _Chain([_source(run, place) for place in places])
    if not len(found):
        raise ValueError(f"there must be something to predict, {', '.join(map(repr, places))} hold nothing")
    return found


def _source(run: Run, place: str) -> BulkInputs:
    path, images = Path(place), run.task.input_is_file
    shards = find_shards(path) if images or _may_be_shards(place) else None
    if shards is not None:
        return _ShardImages(shards, place) if images else _ShardTexts(shards, place, _language(run))
    if path.suffix.lower() == ".txt" and (images or _is_file(path)):
        return _Lines(path, images=images)
    if not images:
        return _Plain([place], images=False)
    if path.is_dir():
        names = [name for name in Folder(path).names() if is_image(name)]
        if not names:
            raise ValueError(f"a folder of images holds some, {place!r} has none")
        return _Plain([str(path / name) for name in names], images=True)
    return _Plain([place], images=True)


def _may_be_shards(text: str) -> bool:
    """Whether a text names shards: one to be translated may have stars, braces and any length."""
    if text.lower().endswith((".tar", ".parquet")):
        return True
    try:
        return Path(text).is_dir()
    except OSError:  # too long for a name
        return False


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


def _language(run: Run) -> str:
    """What the run calls the language that it reads."""
    return str(run.config.get("data", {}).get("source") or "source")


class _Plain:
    """Paths or texts in memory."""

    def __init__(self, texts: list[str], *, images: bool) -> None:
        self._texts, self._images = texts, images

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, index: int) -> BulkInput:
        text = self._texts[index]
        return BulkInput(text, Path(text) if self._images else text)

    def name(self, index: int) -> str:
        return self._texts[index]

    def digest(self) -> str:
        return _digest(text.encode(errors="surrogatepass") for text in self._texts)


class _Lines:
    """The lines of a file; where each begins is kept, 8 bytes a line.

    A path is taken from the folder of the list, where it is not absolute; such lists may have empty lines.
    """

    def __init__(self, path: Path, *, images: bool) -> None:
        self._path, self._images, self._file = path, images, OpenFile(path)
        self._ends, self._digest = _line_ends(path, empty=not images)

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, index: int) -> BulkInput:
        text = self.name(index)
        return BulkInput(text, self._path.parent / text if self._images else text)

    def name(self, index: int) -> str:
        start, end = int(self._ends[index]), int(self._ends[index + 1])
        line = self._file.read(start, end - start)
        return line.split(b"\n")[0].decode("utf-8", errors="replace").strip().removeprefix("\ufeff")

    def digest(self) -> str:
        return self._digest


def _line_ends(path: Path, *, empty: bool) -> tuple[Ints, str]:
    """Where lines begin, and the last ends; and a name for the whole."""
    digest, starts, at = hashlib.blake2b(digest_size=16), array("q"), 0
    with open_regular(path) as file:
        for line in iter(lambda: file.readline(_LONGEST + 1), b""):
            if len(line) > _LONGEST:
                raise ValueError(
                    f"a line of a list may have {shown_bytes(_LONGEST)}, line {len(starts) + 1} of "
                    f"{str(path)!r} has more"
                )
            digest.update(line)
            if line.strip() or empty:
                starts.append(at)
            at += len(line)
    return np.array([*starts, at], np.int64), digest.hexdigest()


class _ShardImages:
    """The images of shards."""

    def __init__(self, paths: Sequence[Path], place: str) -> None:
        self._shards = Shards(paths, place, IMAGE)

    def __len__(self) -> int:
        return len(self._shards.usable)

    def __getitem__(self, index: int) -> BulkInput:
        number = int(self._shards.usable[index])
        name = self._shards.name(number)
        return BulkInput(name, EncodedImage(name, self._shards.image(number)))

    def name(self, index: int) -> str:
        return self._shards.name(int(self._shards.usable[index]))

    def digest(self) -> str:
        return self._shards.digest({})


class _ShardTexts(_ShardImages):
    """The texts of shards: of pairs the side of the run's language, else the first one; else a caption."""

    def __init__(self, paths: Sequence[Path], place: str, language: str) -> None:
        everything = Shards(paths, place, 0)
        there = everything.languages
        self._language = language if language in there else there[0] if there else None
        self._shards = Shards(paths, place, CAPTION if self._language is None else PAIR)

    def __getitem__(self, index: int) -> BulkInput:
        number = int(self._shards.usable[index])
        row = self._shards.row(number)
        text = captions_of(row)[0] if self._language is None else sides_of(row).get(self._language, "")
        return BulkInput(self._shards.name(number), text)


class _Chain:
    """Several sources, one after the other."""

    def __init__(self, sources: Sequence[BulkInputs]) -> None:
        self._sources, self._ends = sources, list(accumulate(map(len, sources)))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: int) -> BulkInput:
        source, i = self._place(index)
        return source[i]

    def name(self, index: int) -> str:
        source, i = self._place(index)
        return source.name(i)

    def digest(self) -> str:
        return _digest(f"{len(source)} {source.digest()}".encode() for source in self._sources)

    def _place(self, index: int) -> tuple[BulkInputs, int]:
        at = bisect.bisect_right(self._ends, index)
        return self._sources[at], index - (self._ends[at - 1] if at else 0)


def _digest(parts: Iterator[bytes]) -> str:
    found = hashlib.blake2b(digest_size=16)
    for part in parts:
        found.update(len(part).to_bytes(8, "big") + part)
    return found.hexdigest()
