"""Images with captions or classes in tables: Hugging Face's ``imagefolder``, parquet, and ``labels.csv``.

====================================  ===================================================================
``metadata.csv``, ``metadata.jsonl``    ``file_name`` beside ``text``, ``caption`` or ``label``; in the folder
                                        of each split, or above them
``train-00000-of-00002.parquet``        the same columns, with images as bytes or as paths
``labels.csv``                          ``file,label`` and perhaps ``split``
====================================  ===================================================================
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sightline.data.dataset import split_name, split_of_path
from sightline.data.parquet import ParquetFile, ParquetImages, parquet_names
from sightline.data.sources import Files, text_of
from sightline.data.tables import Row, read_table

__all__ = [
    "IMAGE_COLUMNS",
    "LABELS",
    "ImageRow",
    "ImageTable",
    "caption_texts",
    "is_caption",
    "is_image_column",
    "is_image_table",
    "label_column",
    "label_name",
    "read_image_table",
    "table_files",
]

IMAGE_COLUMNS = ("image", "image_name", "filename", "file_name", "file", "name", "path", "image_path", "img")
_CAPTION_COLUMN = re.compile(
    r"(captions?|comments?|texts?|sentences?|sentences_raw|raw|descriptions?)|(caption|sentence)[ _]?\d+"
)
_LABEL_COLUMNS = ("label", "labels", "class", "class_name", "category", "fine_label")
LABELS = "labels.csv"
_METADATA = ("metadata.csv", "metadata.jsonl", "metadata.tsv", "metadata.parquet")
_LABELS = ("labels.csv", "labels.tsv")


@dataclass(frozen=True, slots=True)
class ImageRow:
    """One row: an image and what is said of it.

    Attributes:
        image: Its path in the folder or zip, or its name in the parquet file.
        captions: Those that there are.
        label: Its class, if it has one.
        split: The split that is stated, if one is.
    """

    image: str
    captions: tuple[str, ...]
    label: str | None
    split: str | None


@dataclass(frozen=True)
class ImageTable:
    """The rows of one set.

    Attributes:
        layout: ``imagefolder``, ``parquet`` or ``labels.csv``.
        file: The first of its files, for sentences.
        columns: Their columns.
        rows: All rows.
        images: Where the images are.
        classes: The names of the classes in their order, where the table has them.
    """

    layout: str
    file: str
    columns: tuple[str, ...]
    rows: list[ImageRow]
    images: Files
    classes: tuple[str, ...] | None = None

    @property
    def has_captions(self) -> bool:
        """Whether a column holds captions."""
        return any(map(is_caption, self.columns))

    @property
    def has_labels(self) -> bool:
        """Whether a column holds classes."""
        return label_column(self.columns) is not None


def is_caption(column: str) -> bool:
    """Whether a column holds captions, by its name."""
    return _CAPTION_COLUMN.fullmatch(column.lower()) is not None


def is_image_column(column: str) -> bool:
    """Whether a column names images, by its name."""
    return column.lower() in IMAGE_COLUMNS


def label_column(columns: Sequence[str]) -> str | None:
    """The column that holds classes, by its name."""
    return next((name for name in _LABEL_COLUMNS if name in columns), None)


def is_image_table(name: str) -> bool:
    """Whether a file is such a table by its name: parquet, ``metadata.csv``, or any JSON lines."""
    last = name.rpartition("/")[2].lower()
    return last in _METADATA or last in _LABELS or last.endswith((".parquet", ".jsonl"))


def table_files(names: Sequence[str]) -> tuple[str, list[str]] | None:
    """The layout and the tables of a set, if it is one of these; the nearest to the top of each name."""
    last = {name: name.rpartition("/")[2].lower() for name in names}
    for layout, known in (("imagefolder", _METADATA), (LABELS, _LABELS)):
        found = [name for name in names if last[name] in known]
        if found:
            return layout, found
    found = parquet_names(names)
    return ("parquet", found) if found else None


def read_image_table(files: Files, names: Sequence[str], only: str | None = None) -> ImageTable | None:
    """Read the tables of a set; None if there are none.

    Args:
        files: The folder or zip.
        names: Every file in it.
        only: The table, if the user has named it.

    Raises:
        ImportError: If it is parquet, and pyarrow is not installed.
        ValueError: If a table is damaged, or has no column of images.
    """
    found = (
        ("parquet" if only.lower().endswith(".parquet") else "imagefolder", [only])
        if only
        else table_files(names)
    )
    if found is None:
        return None
    layout, tables = found
    if parquet_names(tables):
        return _parquet(files, parquet_names(tables))
    rows: list[ImageRow] = []
    columns: dict[str, None] = {}
    for name in tables:
        content = read_table(text_of(files.read(name), name), name)
        own = dict.fromkeys(key for row in content for key in row)
        image = _image_column(list(own), name) if content else ""
        folder = name.rpartition("/")[0]
        rows += [_row(row, own, _joined(folder, row.get(image)), None) for row in content]
        columns |= own
    if not rows:
        raise _no_rows(tables[0], files)
    return ImageTable(layout, tables[0], tuple(columns), rows, files)


def _parquet(files: Files, names: Sequence[str]) -> ImageTable:
    shards = [ParquetFile(files, name) for name in names]
    rows: list[ImageRow] = []
    columns: dict[str, None] = {}
    image_columns: list[tuple[ParquetFile, str]] = []
    classes: tuple[str, ...] | None = None
    for shard in shards:
        held = [column for column in shard.columns if shard.holds_bytes(column)]
        image = held[0] if held else _image_column(shard.columns, shard.name)
        plain = {column.lower(): column for column in shard.columns if column not in (*held, image)}
        label = label_column(list(plain))
        own = shard.class_names(plain[label]) if label else None
        if classes is not None and own != classes:
            raise ValueError(
                f"all files of a set must have the same classes, {shard.name!r} has others than {names[0]!r}"
            )
        classes = own
        split = split_of_path(shard.name)
        content = shard.rows(list(plain.values()))
        content = [{key.lower(): value for key, value in row.items()} for row in content] or [{}] * len(shard)
        rows += [_row(row, plain, f"{shard.name}/{i}", split, own) for i, row in enumerate(content)]
        image_columns.append((shard, image))
        columns |= dict.fromkeys((image.lower(), *plain))
    if not rows:
        raise _no_rows(names[0], files)
    return ImageTable("parquet", names[0], tuple(columns), rows, ParquetImages(files, image_columns), classes)


def _no_rows(name: str, files: Files) -> ValueError:
    return ValueError(f"there must be images, {name!r} in {files.where!r} has no rows; add some")


def _row(
    row: Row, columns: dict[str, Any], image: str, split: str | None, classes: tuple[str, ...] | None = None
) -> ImageRow:
    captions = [text for column in columns if is_caption(column) for text in caption_texts(row.get(column))]
    label = label_column(list(columns))
    stated = row.get("split")
    if isinstance(stated, str) and stated.strip():
        split = split_name(stated)
    folder = image.rpartition("/")[0]
    return ImageRow(
        image,
        tuple(captions),
        label_name(row.get(label), classes) if label else None,
        split or split_of_path(f"{folder}/-"),
    )


def _image_column(columns: Sequence[str], name: str) -> str:
    small = {column.lower(): column for column in columns}
    for known in ("file_name", *IMAGE_COLUMNS):
        if known in small:
            return small[known]
    raise ValueError(
        "a table of images has a column that names them, such as file_name, "
        f"{name!r} has {', '.join(columns) or 'none'}; name its columns in the first line"
    )


def _joined(folder: str, image: Any) -> str:
    if not isinstance(image, str) or not image.strip():
        return ""
    image = image.strip().replace("\\", "/").removeprefix("./")
    return f"{folder}/{image}" if folder else image


def caption_texts(value: Any) -> list[str]:
    """The captions in a cell: one, a list of them, or as Karpathy has them, under ``raw``."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return caption_texts(value.get("raw"))
    return [text for one in value for text in caption_texts(one)] if isinstance(value, list) else []


def label_name(value: Any, classes: tuple[str, ...] | None) -> str | None:
    """The class in a cell, by its name; a number counts the names, where there are some."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if classes is not None and isinstance(value, int):
        return classes[value] if 0 <= value < len(classes) else None
    if isinstance(value, str | int):
        return str(value).strip() or None
    return None
