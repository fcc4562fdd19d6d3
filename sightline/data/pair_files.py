"""The texts that sentence pairs are read from: files in a folder or a zip, their lines and their columns."""

import json
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from sightline.data.sources import Zip, files_of, text_of

__all__ = ["TABLES", "lines", "names_in", "split_name", "table", "texts_in"]

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


def names_in(path: Path) -> list[str]:
    """The files of a folder, or anywhere in a zip, that may hold pairs by their name."""
    names = sorted(x.name for x in path.iterdir() if x.is_file()) if path.is_dir() else Zip(path).names()
    return [name for name in names if _is_text(PurePosixPath(name).name)]


def texts_in(path: Path) -> Iterator[tuple[str, str]]:
    """The names and texts of the files that may hold pairs."""
    if not path.exists():
        raise FileNotFoundError(f"there is nothing at {str(path)!r}; --data takes a folder, a zip or 'dates'")
    if path.suffix in TABLES and path.is_file():
        yield path.name, text_of(path.read_bytes(), path.name)
        return
    if not path.is_dir() and path.suffix != ".zip":
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


def table(name: str, text: str) -> dict[str, list[str]]:
    r"""The columns of a TSV or JSON lines file.

    Example:
        >>> table("x.tsv", "en\tde\na dog\tein Hund\n")
        {'en': ['a dog'], 'de': ['ein Hund']}
    """
    return _json_lines(name, text) if name.endswith(".jsonl") else _tab_separated(name, text)


def _tab_separated(name: str, text: str) -> dict[str, list[str]]:
    numbered = [(i, line.split("\t")) for i, line in enumerate(text.split("\n"), 1) if line.strip()]
    rows = [row for _, row in numbered]
    for number, row in numbered:
        if len(row) != len(rows[0]) or len(row) < 2:
            raise ValueError(
                f"each line of {name} must have as many tabs as the first, got {len(row)} columns on line "
                f"{number} and {len(rows[0])} on line {numbered[0][0]}; two columns or more make pairs"
            )
    if not rows:
        raise ValueError(f"{name} is empty; it must hold a pair a line, source, tab, target")
    names = [cell.strip() for cell in rows[0]]
    is_header = all(re.fullmatch(r"[A-Za-z_-]{2,10}", cell) for cell in names)
    if is_header and len(set(names)) < len(names):
        raise ValueError(f"the columns of {name} must differ, got {', '.join(names)} on its first line")
    if not is_header:
        if len(names) > 2:
            raise ValueError(
                f"without a first line of names a table has two columns, got {len(names)} in {name}; write "
                "names above them, such as en, tab, de, tab, notes, and choose with --source and --target"
            )
        names = ["source", "target"]
    body = rows[1:] if is_header else rows
    return {column: [row[i].strip() for row in body] for i, column in enumerate(names)}


def _json_lines(name: str, text: str) -> dict[str, list[str]]:
    columns: dict[str, list[str]] = {}
    count = 0
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as problem:
            raise ValueError(f"line {number} of {name} is no JSON: {problem.msg}") from None
        if not isinstance(row, dict) or not all(isinstance(value, str) for value in row.values()):
            raise ValueError(
                f'each line of {name} must be an object of texts such as {{"en": "...", "de": "..."}}, got '
                f"{line[:60]!r} on line {number}"
            )
        if count and set(row) != set(columns):
            raise ValueError(
                f"each line of {name} must have the same keys, got {sorted(row)} on line {number} and "
                f"{sorted(columns)} before"
            )
        for key, value in row.items():
            columns.setdefault(key, []).append(" ".join(value.split()))
        count += 1
    if not count:
        raise ValueError(f'{name} is empty; it must hold a pair a line, {{"en": "...", "de": "..."}}')
    return columns
