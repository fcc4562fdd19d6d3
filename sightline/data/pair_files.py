"""The texts that sentence pairs are read from: files in a folder or a zip, their lines and their columns."""

import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

__all__ = ["TABLES", "lines", "split_name", "table", "texts_in"]

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


def texts_in(path: Path) -> Iterator[tuple[str, str]]:
    """The names and texts of the files that may hold pairs."""
    if path.is_dir():
        for file in sorted(path.iterdir()):
            if file.is_file() and _is_text(file.name):
                yield file.name, _decoded(file.read_bytes(), file.name)
    elif path.suffix == ".zip":
        try:
            with zipfile.ZipFile(path) as archive:
                for name in sorted(archive.namelist()):
                    last = PurePosixPath(name).name
                    if last and _is_text(last):
                        yield last, _decoded(archive.read(name), last)
        except zipfile.BadZipFile:
            raise ValueError(f"{str(path)!r} is called a zip but is none, or is cut short") from None
    elif path.suffix in TABLES:
        yield path.name, _decoded(path.read_bytes(), path.name)
    elif path.exists():
        raise ValueError(f"pairs are read from a folder, a .zip, a .tsv or a .jsonl, got {str(path)!r}")
    else:
        raise FileNotFoundError(f"there is nothing at {str(path)!r}; --data takes a folder, a zip or 'dates'")


def _is_text(name: str) -> bool:
    stem, _, ending = name.rpartition(".")
    return bool(_SPLIT.fullmatch(stem)) and not stem.startswith(".") and 0 < len(ending) <= 10


def _decoded(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise ValueError(
            f"{name} must be UTF-8, got the byte 0x{data[problem.start]:02x} at {problem.start}; "
            "convert it, for instance with iconv -f latin1 -t utf-8"
        ) from None


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
    rows = [line.split("\t") for line in text.split("\n") if line.strip()]
    for number, row in enumerate(rows, 1):
        if len(row) != len(rows[0]) or len(row) < 2:
            raise ValueError(
                f"each line of {name} must have as many tabs as the first, got {len(row)} columns on line "
                f"{number} and {len(rows[0])} on line 1; two columns or more make pairs"
            )
    if not rows:
        raise ValueError(f"{name} is empty; it must hold a pair a line, source, tab, target")
    is_header = all(re.fullmatch(r"[A-Za-z_-]{2,10}", cell.strip()) for cell in rows[0])
    names = [cell.strip() for cell in rows[0]] if is_header else ["source", "target"]
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
    return columns
