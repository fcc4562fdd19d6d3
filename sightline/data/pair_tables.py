"""Tables of sentence pairs: TSV, CSV and Tatoeba's lines, with or without a line of names; JSON; parquet."""

import json
from collections.abc import Mapping
from typing import Any

from sightline.data.parquet import ParquetFile
from sightline.data.tables import delimiter_of, read_cells, read_objects
from sightline.untrusted import parse_json

__all__ = ["is_language", "parquet_columns", "tables"]

_ROLES = frozenset({"source", "target", "src", "tgt"})
_TRANSLATION = "translation"  # where Hugging Face keeps both sides
_Columns = dict[str, list[str]]


def tables(
    files: Mapping[str, str], *, source: str | None = None, target: str | None = None
) -> dict[str, _Columns]:
    r"""The columns of each table of a set.

    The first line of a table holds names if two of its cells or more are such: names of languages, ``source``
    and ``target``, or those that are asked for; and so it is in all tables of a set, or in none. Without
    names there are two columns, the source's and the target's; Tatoeba's lines may have further ones.

    Args:
        files: The texts of ``.tsv``, ``.csv``, ``.txt``, ``.jsonl`` and ``.json`` files, by their names.
        source, target: What the two languages are called, if that was said.

    Example:
        >>> tables({"x.tsv": "en\tde\na dog\tein Hund\n"})
        {'x.tsv': {'en': ['a dog'], 'de': ['ein Hund']}}
        >>> tables({"x.csv": 'dog,"Hund, m."\n'}, source="en")
        {'x.csv': {'en': ['dog'], 'target': ['Hund, m.']}}
    """
    rows = {name: _rows(name, text) for name, text in files.items() if not _is_json(name)}
    named = {name: _is_header(cells[0], source, target) for name, cells in rows.items()}
    if len(set(named.values())) > 1:
        has, lacks = (next(name for name in named if named[name] is is_so) for is_so in (True, False))
        raise ValueError(
            f"the first line must hold names in all tables or in none, got {', '.join(rows[has][0])} in "
            f"{has} and {', '.join(rows[lacks][0])[:60]!r} in {lacks}; write names above each"
        )
    unnamed = (source or "source", target or "target")
    return {
        name: _columns(name, rows[name], () if named[name] else unnamed)
        if name in rows
        else _json_columns(name, text)
        for name, text in files.items()
    }


def parquet_columns(file: ParquetFile) -> _Columns:
    """The texts of a parquet file: its columns of texts, or both sides under ``translation``."""
    rows = [row.get(_TRANSLATION, row) or {} for row in file.rows(file.columns)]
    names = dict.fromkeys(name for row in rows for name, value in row.items() if isinstance(value, str))
    texts = [(i, {name: row.get(name) for name in names}) for i, row in enumerate(rows, 1)]
    return _gathered(file.name, texts if names else [], "row")


def is_language(name: str) -> bool:
    """Whether a name is a language's, as a code or in English; ``babel`` knows.

    Example:
        >>> [is_language(name) for name in ("de", "pt-BR", "eng", "German", "dog")]
        [True, True, True, True, False]
    """
    try:
        from babel import Locale, UnknownLocaleError  # noqa: PLC0415  babel is an extra
    except ImportError:
        raise ImportError(
            "the names of languages need babel; pip install 'sightline[train]'", name="babel"
        ) from None
    try:
        Locale.parse(name.replace("-", "_"))
    except (UnknownLocaleError, ValueError):
        return name.casefold() in {known.casefold() for known in Locale("en").languages.values()}
    return True


def _is_json(name: str) -> bool:
    return name.lower().endswith((".jsonl", ".json"))


def _is_header(cells: list[str], source: str | None, target: str | None) -> bool:
    return sum(x in (source, target) or x.lower() in _ROLES or _language(x) is not None for x in cells) > 1


def _language(cell: str) -> str | None:
    """The language that a cell names: by itself, or as "English words" does by its first word."""
    first = cell.partition(" ")[0]
    if is_language(cell):
        return cell
    return first if len(first) > 3 and is_language(first) else None


def _rows(name: str, text: str) -> list[list[str]]:
    """The cells of each row, as many on each."""
    numbered = _numbered(name, text)
    if not numbered:
        raise ValueError(f"{name} is empty; it must hold a pair a line, source, tab, target")
    first, width = numbered[0][0], len(numbered[0][1])
    if name.lower().endswith(".txt") and width > 2:  # what follows is an attribution, on some lines
        numbered, width = [(number, row[:2] if len(row) > 2 else row) for number, row in numbered], 2
    for number, row in numbered:
        if len(row) != width or len(row) < 2:
            raise ValueError(
                f"each line of {name} must have as many columns as the first, got {len(row)} columns on line "
                f"{number} and {width} on line {first}; two columns or more make pairs"
            )
    return [[cell.strip() for cell in row] for _, row in numbered]


def _numbered(name: str, text: str) -> list[tuple[int, list[str]]]:
    if name.lower().endswith(".csv"):
        first = next((line for line in text.splitlines() if line.strip()), "")
        return list(enumerate(read_cells(text, delimiter_of(first), name), 1))
    rows = [(i, line.split("\t")) for i, line in enumerate(text.split("\n"), 1) if line.strip()]
    numbers = all(
        len(row) == 4 and row[0].strip().isdecimal() and row[2].strip().isdecimal() for _, row in rows
    )
    return [(i, [row[1], row[3]]) for i, row in rows] if numbers else rows  # Tatoeba's own, with ids


def _columns(name: str, rows: list[list[str]], unnamed: tuple[str, ...]) -> _Columns:
    """The columns under their names: those given, else those of the first line."""
    names = list(unnamed) if unnamed else [_language(cell) or cell for cell in rows[0]]
    body = rows if unnamed else rows[1:]
    if len(set(names)) < len(names):
        raise ValueError(f"the columns of {name} must differ, got {', '.join(names)}; rename one of them")
    if len(names) != len(rows[0]):
        raise ValueError(
            f"without a first line of names a table has two columns, got {len(rows[0])} in {name}; write "
            "names above them, such as en, tab, de, tab, notes, and choose with --source and --target"
        )
    return {column: [row[i] for row in body] for i, column in enumerate(names)}


def _json_columns(name: str, text: str) -> _Columns:
    if name.lower().endswith(".json"):
        rows = list(enumerate(read_objects(text, name), 1))
    else:
        lines = enumerate(text.split("\n"), 1)
        rows = [(number, _parsed(name, number, line)) for number, line in lines if line.strip()]
    return _gathered(name, [(number, _sides(row)) for number, row in rows], "line")


def _parsed(name: str, number: int, line: str) -> Any:
    return parse_json(line, f"line {number} of {name}")


def _sides(row: Any) -> Any:
    """The two sides of a row, and perhaps more: under ``translation``, or the row itself."""
    return row[_TRANSLATION] if isinstance(row, dict) and isinstance(row.get(_TRANSLATION), dict) else row


def _gathered(name: str, rows: list[tuple[int, Any]], unit: str) -> _Columns:
    """The columns of rows that are objects of texts, all with the same keys."""
    columns: _Columns = {}
    for number, row in rows:
        _check_texts(name, number, row, unit)
        if columns and set(row) != set(columns):
            raise ValueError(
                f"each {unit} of {name} must have the same keys, got {sorted(row)} on {unit} {number} and "
                f"{sorted(columns)} before"
            )
        for key, value in row.items():
            columns.setdefault(key, []).append(" ".join((value or "").split()))
    if not columns:
        raise ValueError(f'{name} is empty; it must hold a pair a {unit}, {{"en": "...", "de": "..."}}')
    return columns


def _check_texts(name: str, number: int, row: Any, unit: str) -> None:
    if not isinstance(row, dict) or not row or not all(isinstance(x, str | None) for x in row.values()):
        shown = row if isinstance(row, str) else json.dumps(row, default=str)
        raise ValueError(
            f'each {unit} of {name} must be an object of texts such as {{"en": "...", "de": "..."}}, got '
            f"{shown[:60]!r} on {unit} {number}"
        )
    for letter in "".join((*row, *filter(None, row.values()))):
        if "\ud800" <= letter <= "\udfff":
            raise ValueError(
                f"a text must be of whole characters, {unit} {number} of {name} has \\u{ord(letter):04x}, "
                "half of one; write both halves, or leave it out"
            )
