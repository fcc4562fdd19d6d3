"""The texts that sentence pairs are read from: files in a folder or a zip, and their lines."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from sightline.data.pair_tables import is_language
from sightline.data.sources import Zip, files_of, text_of

__all__ = ["TABLES", "is_table", "lines", "names_in", "parallel_in", "split_name", "texts_in"]

TABLES = (".tsv", ".jsonl")
_SPLIT = re.compile(r"(training|train|validation|valid|val|dev|test)([._-].*)?")
_CANONICAL = (("training", "train"), ("validation", "val"), ("valid", "val"), ("dev", "val"))


def split_name(stem: str) -> str:
    """The name of a split by a file's stem: several spellings are one.

    Example:
        >>> split_name("dev"), split_name("test_2016"), split_name("train")
        ('val', 'test_2016', 'train')
    """
    for spelling, name in _CANONICAL:
        if stem.startswith(spelling):
            return name + stem.removeprefix(spelling)
    return stem


def is_table(path: Path) -> bool:
    """Whether a place is a single table, a set by itself."""
    return path.suffix.lower() in TABLES and not path.is_dir()


def names_in(path: Path) -> list[str]:
    """The files of a folder, or anywhere in a zip, that may hold pairs by their name."""
    return [name for name in _all_in(path) if _is_text(PurePosixPath(name).name)]


def parallel_in(path: Path) -> list[str]:
    """The files of a folder or a zip that differ in their ending alone, and that is a language's.

    They are parallel texts, whether or not they have the name of a split.
    """
    parts = [name.rpartition(".") for name in _all_in(path)]
    languages = {ending for ending in {ending for _, _, ending in parts} if is_language(ending)}
    texts = [(stem, ending) for stem, _, ending in parts if stem and ending in languages]
    stems = Counter(stem for stem, _ in texts)
    return [f"{stem}.{ending}" for stem, ending in texts if stems[stem] > 1]


def _all_in(path: Path) -> list[str]:
    return sorted(x.name for x in path.iterdir() if x.is_file()) if path.is_dir() else Zip(path).names()


def texts_in(path: Path) -> Iterator[tuple[str, str]]:
    """The names and texts of the files that may hold pairs."""
    if not path.exists():
        raise FileNotFoundError(
            f"there is nothing at {str(path)!r}; sentence pairs are a folder, a .zip, a .tsv, a .jsonl, or "
            "'dates', the embedded set"
        )
    if is_table(path):
        yield path.name, text_of(path.read_bytes(), path.name)
        return
    if not path.is_dir() and path.suffix.lower() != ".zip":
        raise ValueError(f"pairs are read from a folder, a .zip, a .tsv or a .jsonl, got {str(path)!r}")
    files, found = files_of(path), dict[str, str]()
    for name in names_in(path):
        last = PurePosixPath(name).name
        if found.setdefault(last, name) != name:
            raise ValueError(
                f"each text must be in {str(path)!r} once, got {found[last]!r} and {name!r}; make a zip of "
                "one of the folders"
            )
        yield last, text_of(files.read(name), last)


def _is_text(name: str) -> bool:
    stem, _, ending = name.rpartition(".")
    return bool(_SPLIT.fullmatch(stem)) and not stem.startswith(".") and 0 < len(ending) <= 10


def lines(text: str) -> list[str]:
    """The lines of a text; only a newline ends one, as ``wc -l`` counts them."""
    found = [line.strip() for line in text.split("\n")]
    return found if found[-1] else found[:-1]
