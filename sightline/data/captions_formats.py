"""The four ways in which captions come: Karpathy's JSON, COCO's JSON, Flickr's lines, a table.

Each reader turns one file into :class:`CaptionRecord`, an image as the file names it with its captions; what
the file's name or its neighbours say about splits is added. Which reader fits is found out by looking.
"""

import csv
import io
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from sightline.data.sources import Files, text_of

__all__ = ["CaptionRecord", "read_records"]

_SPLITS = {
    "train": "train", "training": "train", "restval": "train",  # Karpathy's rest of val is trained on
    "val": "val", "valid": "val", "validation": "val", "dev": "val",
    "test": "test", "testing": "test",
}  # fmt: skip
_IMAGE = ("image", "image_name", "filename", "file_name", "file", "name", "path", "image_path", "img")
_CAPTION = re.compile(r"(caption|captions|comment|text|sentence|raw|description)|(caption|sentence)[ _]?\d+")
_TOKEN_LINE = re.compile(r"(\S.*?)#(\d+)[ \t]+(.*)")
_LIST = re.compile(r"(?:^|[._])(train|dev|val|valid|test)(?:images)?\.txt$", re.IGNORECASE)
_OTHER_TASKS = re.compile(r"(instances|person_keypoints|stuff|panoptic|image_info)_")
_DELIMITERS = ",\t;|"


@dataclass
class CaptionRecord:
    """An image as an annotation file names it.

    Attributes:
        image: The name, perhaps with folders before it.
        captions: What was said about it.
        split: The split that is stated, if one is.
    """

    image: str
    captions: list[str] = field(default_factory=list)
    split: str | None = None


def read_records(
    files: Files, names: list[str], only: str | None = None
) -> tuple[str, list[str], list[CaptionRecord]]:
    """Find the caption files and read them.

    Args:
        files: The folder or zip.
        names: Every file in it.
        only: The caption file, if the user has named it.

    Returns:
        The format's name, the caption files, and what they say.
    """
    if not names:
        raise ValueError(f"there must be images and captions, {files.where!r} is empty")
    chosen = [only] if only else _caption_files(names, files.where)
    kinds, found = [], []
    for name in chosen:
        text = text_of(files.read(name), name)
        kind, part = _json(text, name) if name.lower().endswith(".json") else _lines(text, name)
        if kind == "Flickr":
            _take_lists(part, files, name, names)
        kinds.append(kind)
        found += part
    if not any(one.captions for one in found):
        raise ValueError(f"there must be captions, {chosen[0]!r} in {files.where!r} holds none")
    return kinds[0], chosen, found


def _caption_files(names: list[str], where: str) -> list[str]:
    """The caption files of a set: the first kind of name that is there, nearest to the top."""
    tests: tuple[Callable[[str], bool], ...] = (
        lambda x: x.startswith("dataset") and x.endswith(".json"),
        lambda x: x.startswith("captions_") and x.endswith(".json"),
        lambda x: x.endswith(("token.txt", ".token")) and "lemma" not in x,
        lambda x: x in ("captions.csv", "captions.tsv", "captions.txt", "results.csv"),
        lambda x: x.endswith(".json") and not _OTHER_TASKS.match(x),
    )
    for i, test in enumerate(tests):
        fits = [name for name in names if test(name.rpartition("/")[2].lower())]
        if fits and i == 1:
            return fits  # COCO writes one file a split
        top = [name for name in fits if name.count("/") == min(x.count("/") for x in fits)]
        if len(top) > 1:
            raise ValueError(
                f"one caption file is read, {where!r} holds {_listed(top)}; name the one you mean"
            )
        if top:
            return top
    raise ValueError(
        f"there must be captions, {where!r} has {len(names)} files and none is a dataset*.json, "
        "captions_*.json, captions.txt, *token.txt or captions.csv"
    )


def _json(text: str, name: str) -> tuple[str, list[CaptionRecord]]:
    """Karpathy's JSON or COCO's, by what is in it."""
    try:
        content = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as problem:
        raise ValueError(f"{name!r} is not JSON or is cut off: {problem}") from problem
    if isinstance(content, dict) and isinstance(images := content.get("images"), list):
        if isinstance(notes := content.get("annotations"), list):
            return "COCO", _coco(_objects(images), _objects(notes), name)
        if any("sentences" in x for x in _objects(images)):
            return "Karpathy", [_karpathy(x) for x in _objects(images)]
    keys = sorted(content)[:5] if isinstance(content, dict) else type(content).__name__
    raise ValueError(
        "a JSON of captions has 'images' with 'sentences' (Karpathy's) or 'images' and 'annotations' "
        f"(COCO's), {name!r} holds {keys}"
    )


def _karpathy(image: dict[str, Any]) -> CaptionRecord:
    folder, file = image.get("filepath"), str(image.get("filename") or image.get("file_name") or "")
    sentences = image.get("sentences")
    captions = [_sentence(x) for x in sentences] if isinstance(sentences, list) else []
    split = image.get("split")
    return CaptionRecord(
        f"{folder}/{file}" if folder else file, captions, None if split is None else _split(split)
    )


def _sentence(sentence: Any) -> str:
    if isinstance(sentence, dict):
        raw, tokens = sentence.get("raw"), sentence.get("tokens")
        sentence = raw if isinstance(raw, str) else " ".join(map(str, tokens)) if tokens else ""
    return sentence if isinstance(sentence, str) else ""


def _coco(images: list[dict[str, Any]], notes: list[dict[str, Any]], name: str) -> list[CaptionRecord]:
    stated = re.match(r"captions_(train|val|test)", name.rpartition("/")[2].lower())
    split = stated[1] if stated else None
    by_id = {
        str(x.get("id")): CaptionRecord(
            str(x.get("file_name", "")), [], _split(x["split"]) if x.get("split") else split
        )
        for x in images
    }
    for note in notes:
        caption = note.get("caption")
        if isinstance(caption, str):
            by_id.setdefault(str(note.get("image_id")), CaptionRecord("")).captions.append(caption)
    return list(by_id.values())


def _lines(text: str, name: str) -> tuple[str, list[CaptionRecord]]:
    """Flickr's ``image#0<tab>caption`` lines, or a table."""
    lines = [line for line in re.split(r"\r\n?|\n", text) if line.strip()]
    first = lines[0] if lines else ""
    if _TOKEN_LINE.fullmatch(first):
        matches = [(line, _TOKEN_LINE.fullmatch(line)) for line in lines]
        # A line of another form names no image, which is said.
        return "Flickr", _grouped((m[1], m[3], None) if m else ("", line, None) for line, m in matches)
    kind = "table" if name.lower().endswith(("captions.csv", ".tsv")) else "Flickr"
    return kind, _grouped(_table(text, first, name))


def _table(text: str, first: str, name: str) -> Iterable[tuple[str, str, str | None]]:
    """Rows of image, caption and perhaps split, from comma, tab, semicolon or bar separated lines."""
    delimiter = max(_DELIMITERS, key=first.count)
    rows = _rows(text, delimiter, name)
    header = [cell.lower() for cell in rows[0]] if rows else []
    image = next((i for i, cell in enumerate(header) if cell in _IMAGE), None)
    captions = [i for i, cell in enumerate(header) if _CAPTION.fullmatch(cell)]
    split = header.index("split") if "split" in header else None
    if image is None or not captions:
        if len(header) < 2 or not re.search(r"\.\w{3,4}$", header[0]):
            raise ValueError(
                f"a table of captions starts with a line that names its columns, such as image,caption; "
                f"{name!r} starts with {first[:80]!r}"
            )
        split = 2 if all(len(row) > 2 and row[-1].lower() in _SPLITS for row in rows) else None
        rows, header, image, captions = [[], *rows], header[: 2 if split is None else 3], 0, [1]
    for row in rows[1:]:
        cells = _fitted(row, len(header), captions, delimiter, name)
        for column in captions:
            yield cells[image], cells[column], cells[split] if split is not None else None


def _rows(text: str, delimiter: str, name: str) -> list[list[str]]:
    """The cells of a table, without blank lines."""
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


def _fitted(row: list[str], n: int, captions: list[int], delimiter: str, name: str) -> list[str]:
    """A row with a cell for each of n columns: what is too much was cut off a caption without quotes."""
    while len(row) > n and not row[-1]:
        row = row[:-1]
    more = len(row) - n
    if more <= 0:
        return row + [""] * -more
    if len(captions) > 1 and captions[-1] < n - 1:
        raise ValueError(
            f"a row must have as many cells as its header, {name!r} has {n} columns and a row of {len(row)}: "
            f"{delimiter.join(row)[:80]!r}; put captions with {delimiter!r} in them in quotes"
        )
    at = captions[-1]
    return [*row[:at], delimiter.join(row[at : at + more + 1]), *row[at + more + 1 :]]


def _grouped(rows: Iterable[tuple[str, str, str | None]]) -> list[CaptionRecord]:
    """One entry an image and split, in the order of their first rows."""
    found: dict[tuple[str, str | None], CaptionRecord] = {}
    for image, caption, stated in rows:
        split = _split(stated) if stated else None
        found.setdefault((image, split), CaptionRecord(image, [], split)).captions.append(caption)
    return list(found.values())


def _take_lists(found: list[CaptionRecord], files: Files, name: str, names: list[str]) -> None:
    """Take splits from lists of images beside the captions, as Flickr_8k.trainImages.txt.

    A list may leave out what images' names end in: ``1000_a`` for ``1000_a.jpg``.
    """
    folder = name.rpartition("/")[0]
    known = {one.image for one in found} | {_stem(one.image) for one in found}
    split_of: dict[str, str] = {}
    for other in names:
        match = _LIST.search(other.rpartition("/")[2])
        if match and other.rpartition("/")[0] == folder:
            lines = text_of(files.read(other), other).splitlines()
            listed = [line.strip() for line in lines if line.strip()]
            if listed and known.isdisjoint(listed):
                raise ValueError(
                    f"a list of a split names images of {name!r}, such as {found[0].image!r}; {other!r} "
                    f"names none, its first is {listed[0]!r}: write the same names, or take the list away"
                )
            split_of |= dict.fromkeys(listed, _split(match[1]))
    for one in found:
        one.split = one.split or split_of.get(one.image) or split_of.get(_stem(one.image))


def _stem(name: str) -> str:
    return re.sub(r"\.\w{3,4}$", "", name)


def _split(name: Any) -> str:
    lowered = str(name).strip().lower()
    return _SPLITS.get(lowered, lowered)


def _objects(items: list[Any]) -> list[dict[str, Any]]:
    return [item for item in items if isinstance(item, dict)]


def _listed(names: list[str]) -> str:
    shown = ", ".join(map(repr, names[:3]))
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
