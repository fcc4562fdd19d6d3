"""What a caption file says: Karpathy's JSON, COCO's JSON, Flickr's lines, a table.

Each parser turns the text of one file into :class:`CaptionRecord`, an image as the file names it with its
captions and the split that it states.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from sightline import untrusted
from sightline.data.dataset import SPLITS, split_name
from sightline.data.image_tables import IMAGE_COLUMNS, is_caption
from sightline.data.tables import delimiter_of, read_cells

__all__ = ["CaptionRecord", "parse_json", "parse_lines"]

_KINDS = {type(None): "null", bool: "a boolean", str: "a text", list: "a list"}  # of JSON that is no object
_TOKEN_LINE = re.compile(r"(\S.*?)#(\d+)[ \t]+(.*)")


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


def parse_json(text: str, name: str) -> tuple[str, list[CaptionRecord]]:
    """Karpathy's JSON or COCO's, by what is in it."""
    content = untrusted.parse_json(text, repr(name))
    if isinstance(content, dict) and isinstance(images := content.get("images"), list):
        if isinstance(notes := content.get("annotations"), list):
            return "COCO", _coco(_objects(images), _objects(notes), name)
        if any("sentences" in x for x in _objects(images)):
            return "Karpathy", [_karpathy(x) for x in _objects(images)]
    keys = sorted(content)[:5] if isinstance(content, dict) else _KINDS.get(type(content), "a number")
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
        f"{folder}/{file}" if folder else file, captions, None if split is None else split_name(str(split))
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
            str(x.get("file_name", "")), [], split_name(str(x["split"])) if x.get("split") else split
        )
        for x in images
    }
    for note in notes:
        caption = note.get("caption")
        if isinstance(caption, str):
            by_id.setdefault(str(note.get("image_id")), CaptionRecord("")).captions.append(caption)
    return list(by_id.values())


def parse_lines(text: str, name: str) -> tuple[str, list[CaptionRecord]]:
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
    delimiter = delimiter_of(first)
    rows = read_cells(text, delimiter, name)
    header = [cell.lower() for cell in rows[0]] if rows else []
    image = next((i for i, cell in enumerate(header) if cell in IMAGE_COLUMNS), None)
    captions = [i for i, cell in enumerate(header) if is_caption(cell)]
    split = header.index("split") if "split" in header else None
    if image is None or not captions:
        if len(header) < 2 or not re.search(r"\.\w{3,4}$", header[0]):
            raise ValueError(
                f"a table of captions starts with a line that names its columns, such as image,caption; "
                f"{name!r} starts with {first[:80]!r}"
            )
        split = 2 if all(len(row) > 2 and split_name(row[-1]) in SPLITS for row in rows) else None
        rows, header, image, captions = [[], *rows], header[: 2 if split is None else 3], 0, [1]
    for row in rows[1:]:
        cells = _fitted(row, len(header), captions, delimiter, name)
        for column in captions:
            yield cells[image], cells[column], cells[split] if split is not None else None


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
        split = split_name(stated) if stated else None
        found.setdefault((image, split), CaptionRecord(image, [], split)).captions.append(caption)
    return list(found.values())


def _objects(items: list[Any]) -> list[dict[str, Any]]:
    return [item for item in items if isinstance(item, dict)]
