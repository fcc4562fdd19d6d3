"""Tables of sentence pairs: TSV, with or without a line of names, and JSON lines."""

import json
from collections.abc import Mapping

__all__ = ["is_language", "tables"]

_ROLES = frozenset({"source", "target", "src", "tgt"})
_Columns = dict[str, list[str]]


def tables(
    files: Mapping[str, str], *, source: str | None = None, target: str | None = None
) -> dict[str, _Columns]:
    r"""The columns of each table of a set.

    The first line of a TSV holds names if two of its cells or more are such: names of languages, ``source``
    and ``target``, or those that are asked for; and so it is in all TSV files of a set, or in none. Without
    names there are two columns, the source's and the target's.

    Args:
        files: The texts of ``.tsv`` and ``.jsonl`` files, by their names.
        source, target: What the two languages are called, if that was said.

    Example:
        >>> tables({"x.tsv": "en\tde\na dog\tein Hund\n"})
        {'x.tsv': {'en': ['a dog'], 'de': ['ein Hund']}}
        >>> tables({"x.tsv": "dog\tHund\n"}, source="en")
        {'x.tsv': {'en': ['dog'], 'target': ['Hund']}}
    """
    rows = {name: _rows(name, text) for name, text in files.items() if name.lower().endswith(".tsv")}
    named = {name: _is_header(lines[0], source, target) for name, lines in rows.items()}
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
        else _json_lines(name, text)
        for name, text in files.items()
    }


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


def _is_header(cells: list[str], source: str | None, target: str | None) -> bool:
    return sum(x in (source, target) or x.lower() in _ROLES or is_language(x) for x in cells) > 1


def _rows(name: str, text: str) -> list[list[str]]:
    """The cells of each line, as many on each."""
    numbered = [(i, line.split("\t")) for i, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not numbered:
        raise ValueError(f"{name} is empty; it must hold a pair a line, source, tab, target")
    first, width = numbered[0][0], len(numbered[0][1])
    for number, row in numbered:
        if len(row) != width or len(row) < 2:
            raise ValueError(
                f"each line of {name} must have as many tabs as the first, got {len(row)} columns on line "
                f"{number} and {width} on line {first}; two columns or more make pairs"
            )
    return [[cell.strip() for cell in row] for _, row in numbered]


def _columns(name: str, rows: list[list[str]], unnamed: tuple[str, ...]) -> _Columns:
    """The columns under their names: those given, else those of the first line."""
    names, body = (list(unnamed), rows) if unnamed else (rows[0], rows[1:])
    if len(set(names)) < len(names):
        raise ValueError(f"the columns of {name} must differ, got {', '.join(names)}; rename one of them")
    if len(names) != len(rows[0]):
        raise ValueError(
            f"without a first line of names a table has two columns, got {len(rows[0])} in {name}; write "
            "names above them, such as en, tab, de, tab, notes, and choose with --source and --target"
        )
    return {column: [row[i] for row in body] for i, column in enumerate(names)}


def _json_lines(name: str, text: str) -> _Columns:
    columns: _Columns = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        row = _object(name, number, line)
        if columns and set(row) != set(columns):
            raise ValueError(
                f"each line of {name} must have the same keys, got {sorted(row)} on line {number} and "
                f"{sorted(columns)} before"
            )
        for key, value in row.items():
            columns.setdefault(key, []).append(" ".join(value.split()))
    if not columns:
        raise ValueError(f'{name} is empty; it must hold a pair a line, {{"en": "...", "de": "..."}}')
    return columns


def _object(name: str, number: int, line: str) -> dict[str, str]:
    """The texts of one line of JSON."""
    try:
        row = json.loads(line)
    except json.JSONDecodeError as problem:
        raise ValueError(f"line {number} of {name} is no JSON: {problem.msg}") from None
    except RecursionError:
        row = None  # brackets in brackets, and no object of texts
    if not isinstance(row, dict) or not row or not all(isinstance(value, str) for value in row.values()):
        raise ValueError(
            f'each line of {name} must be an object of texts such as {{"en": "...", "de": "..."}}, got '
            f"{line[:60]!r} on line {number}"
        )
    for letter in "".join((*row, *row.values())):
        if "\ud800" <= letter <= "\udfff":
            raise ValueError(
                f"a text must be of whole characters, line {number} of {name} has \\u{ord(letter):04x}, half "
                "of one; write both halves, or leave it out"
            )
    return row
