"""What an example of a shard says besides its image: captions, a class, two sides of a pair."""

from collections.abc import Mapping
from typing import Any

from sightline.data.caption_set import clean
from sightline.data.image_tables import caption_texts, is_caption, is_image_column, label_column, label_name
from sightline.untrusted import parse_json

__all__ = [
    "CAPTION",
    "IMAGE",
    "LABEL",
    "PAIR",
    "captions_of",
    "parse_row",
    "read_text",
    "roles_of",
    "sides_of",
]

IMAGE, CAPTION, LABEL, PAIR = 1, 2, 4, 8  # what an example has
_TRANSLATION = "translation"  # where Hugging Face keeps both sides of a pair
_NOTES = frozenset({"split", "key", "url", "id", "__key__", "__url__"})


def parse_row(content: bytes, name: str, *, plain: bool) -> dict[str, Any]:
    r"""The columns of an example: an object of JSON, or, of a plain text, captions, one a line.

    Raises:
        ValueError: If it is no object, or no UTF-8.

    Example:
        >>> parse_row(b'{"Label": 3}', "0001.json", plain=False), parse_row(b"a\nb\n", "1.txt", plain=True)
        ({'label': 3}, {'text': ['a', 'b']})
    """
    text = read_text(content, name)
    if plain:
        return {"text": [line for line in text.splitlines() if line.strip()]}
    row = parse_json(text, repr(name))
    if not isinstance(row, dict):
        raise ValueError(f"the JSON of an example is an object, {name!r} holds {text[:40]!r}")  # noqa: TRY004
    return {key.strip().lower(): value for key, value in row.items()}


def read_text(content: bytes, name: str) -> str:
    """A text of an example, which is UTF-8."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise ValueError(
            f"a text in a shard must be UTF-8, {name!r} has the byte 0x{content[problem.start]:02x}"
        ) from None


def captions_of(row: Mapping[str, Any]) -> tuple[str, ...]:
    """The captions of an example that have a word, with one space between words."""
    texts = [text for column in row if is_caption(column) for text in caption_texts(row[column])]
    return tuple(" ".join(text.split()) for text in texts if clean(text))


def sides_of(row: Mapping[str, Any]) -> dict[str, str]:
    """The texts of a pair by their languages: all texts that are no class, name of an image or note."""
    inner = row.get(_TRANSLATION)
    if isinstance(inner, Mapping):
        return {key: " ".join(value.split()) for key, value in inner.items() if isinstance(value, str)}
    label = label_column(list(row))
    return {
        key: " ".join(value.split())
        for key, value in row.items()
        if isinstance(value, str) and key != label and key not in _NOTES and not is_image_column(key)
    }


def roles_of(
    row: Mapping[str, Any], classes: tuple[str, ...] | None = None
) -> tuple[bool, str | None, list[str]]:
    """Whether an example has a caption, its class, and the languages of its texts."""
    column = label_column(list(row))
    label = None if column is None else label_name(row[column], classes)
    return bool(captions_of(row)), label, list(sides_of(row))
