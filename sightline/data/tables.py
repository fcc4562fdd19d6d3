"""Tables in text files: cells of CSV and TSV, objects of JSON and JSON lines; a sentence where it is none."""

import csv
import io
from typing import Any, Literal

from sightline.untrusted import parse_json

__all__ = ["DELIMITERS", "Row", "delimiter_of", "read_cells", "read_objects", "read_table"]

DELIMITERS = ",\t;|"
Row = dict[str, Any]


def delimiter_of(line: str) -> str:
    """What parts the cells of a line: the one of comma, tab, semicolon and bar that it has most of."""
    return max(DELIMITERS, key=line.count)


def read_cells(text: str, delimiter: str, name: str) -> list[list[str]]:
    r"""The cells of a table, without blank lines; quotes count where commas or semicolons part them.

    Args:
        text: The table.
        delimiter: What parts the cells.
        name: The file, for sentences.

    Raises:
        ValueError: If a quote is never closed, or a cell is larger than any text.

    Example:
        >>> read_cells('a, "b"\n\n"c, d",e\n', ",", "x.csv")
        [['a', '"b"'], ['c, d', 'e']]
    """
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if delimiter in ",;" else csv.QUOTE_NONE

    def read(*, strict: bool) -> Any:
        return csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, quoting=quoting, strict=strict)

    strictly = read(strict=True)
    try:
        rows = list(read(strict=False))
        if any("\n" in cell for row in rows for cell in row):  # meant so, or a quote that was never closed
            rows = list(strictly)
    except csv.Error as problem:
        line = f" on line {strictly.line_num}; are its quotes closed?" if strictly.line_num else ""
        raise ValueError(f"{name!r} can't be read as a table: {problem}{line}") from problem
    return [[cell.strip() for cell in row] for row in rows if any(cell.strip() for cell in row)]


def read_objects(text: str, name: str) -> list[Row]:
    r"""The objects of a JSON: a list of them, a list under ``data``, or one a line.

    Raises:
        ValueError: If it is no JSON, or something else than objects.

    Example:
        >>> read_objects('{"a": 1}\n\n{"a": 2}\n', "x.jsonl")
        [{'a': 1}, {'a': 2}]
    """
    try:
        content = parse_json(text, repr(name))
        if isinstance(content, dict) and isinstance(content.get("data"), list):
            content = content["data"]
        rows = content if isinstance(content, list) else [content]
    except ValueError:
        rows = [_line(line, number, name) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise ValueError(  # noqa: TRY004  a file of a user
                f"{name!r} must hold objects such as {{...}}, got {_shown(row)} in place {number}"
            )
    return rows


def read_table(text: str, name: str) -> list[Row]:
    r"""The rows of a CSV, a TSV or JSON lines, under the names of their columns, which are made small.

    Raises:
        ValueError: If it is no table, or a row has more cells than there are names.

    Example:
        >>> read_table("File_Name,label\n1.png,cat\n", "metadata.csv")
        [{'file_name': '1.png', 'label': 'cat'}]
    """
    if name.lower().endswith((".jsonl", ".json")):
        return [
            {key.strip().lower(): value for key, value in row.items()} for row in read_objects(text, name)
        ]
    first = next((line for line in text.splitlines() if line.strip()), "")
    rows = read_cells(text, delimiter_of(first), name)
    header = [cell.lower() for cell in rows[0]] if rows else []
    for number, row in enumerate(rows[1:], 2):
        if len(row) > len(header):
            raise ValueError(
                f"a row must have as many cells as its header, {name!r} has {len(header)} columns and "
                f"{len(row)} cells in row {number}; put texts with {delimiter_of(first)!r} in them in quotes"
            )
    return [dict(zip(header, row, strict=False)) for row in rows[1:]]


def _line(line: str, number: int, name: str) -> Any:
    return parse_json(line, f"line {number} of {name!r}")


def _shown(row: Any) -> str:
    return repr(row)[:60]
