"""Which kind of set lies at a place, found out by looking, and the reader for it.

One line a kind in :data:`READERS`: a new kind of data is a new line.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from sightline.data.captions import read_captions
from sightline.data.captions_formats import is_caption_file
from sightline.data.class_folders import is_image
from sightline.data.classes import read_classes
from sightline.data.dataset import Dataset, split_of_path
from sightline.data.dates import DATES, dates_set
from sightline.data.digits import digits
from sightline.data.image_tables import LABELS, is_caption, is_image_column, label_column, table_files
from sightline.data.pair_files import TABLES, parallel_names
from sightline.data.pairs import read_pairs
from sightline.data.parquet import ParquetFile, parquet_names
from sightline.data.scenes import scenes_set
from sightline.data.shard_files import TAR, find_shards
from sightline.data.shard_readers import ParquetShard, TarShard
from sightline.data.shard_rows import CAPTION, IMAGE, LABEL, PAIR
from sightline.data.sources import Files, Folder, files_of, text_of
from sightline.data.tables import read_table
from sightline.shapes import did_you_mean

__all__ = ["READERS", "Reader", "kind_of", "open_dataset"]

SCENES, DIGITS = "scenes", "digits"
SCENE_COUNTS = (800, 100, 100)  # of each split, enough to see what they are like


@dataclass(frozen=True, kw_only=True)
class Reader:
    """How sets of a kind are opened.

    Attributes:
        read: From a path, with the options that it has.
        embedded: The set that needs no files.
        build: Makes that set.
        options: What ``read`` can be told: ``seed``, ``source``, ``target``.
    """

    read: Callable[..., Dataset[Any]]
    embedded: str
    build: Callable[..., Dataset[Any]]
    options: tuple[str, ...]


READERS = MappingProxyType(
    {
        "caption": Reader(
            read=read_captions,
            embedded=SCENES,
            build=lambda seed=0: scenes_set(*SCENE_COUNTS, seed),
            options=("seed",),
        ),
        "translate": Reader(
            read=lambda path, **options: read_pairs(path, strict=False, **options),
            embedded=DATES,
            build=dates_set,
            options=("seed", "source", "target"),
        ),
        "classify": Reader(
            read=lambda path, **options: read_classes(path, strict=False, **options),
            embedded=DIGITS,
            build=digits,
            options=("seed",),
        ),
    }
)


def open_dataset(place: Path | str, kind: str | None = None, **options: Any) -> Dataset[Any]:
    """Open a set of any kind, to look at it.

    Args:
        place: A folder, a zip, a file, or an embedded set's name.
        kind: ``caption``, ``translate`` or ``classify``; None finds out: the only one that has what was asked
            for, else by looking.
        options: What was asked for, ``seed``, ``source``, ``target``; None counts as not asked for.

    Raises:
        ValueError: If the kind is unknown, or has no such option.
    """
    if kind is not None and kind not in READERS:
        raise ValueError(f"unknown kind of data {kind!r}, {did_you_mean(kind, READERS)}")
    asked = {name for name, value in options.items() if value is not None}
    able = [name for name, reader in READERS.items() if asked <= set(reader.options)]
    kind = kind or (able[0] if len(able) == 1 else kind_of(place))
    reader = READERS[kind]
    for name, value in options.items():
        if value is not None and name not in reader.options:
            has = ", ".join(f"--{option}" for option in reader.options)
            raise ValueError(
                f"data to {kind} has no --{name}, got {value!r} for {str(place)!r}; it has {has}"
            )
    known = {name: value for name, value in options.items() if value is not None}
    if str(place) == reader.embedded:
        return reader.build(**known)
    return reader.read(Path(place), **known)


def kind_of(place: Path | str) -> str:  # noqa: PLR0911 - a kind each
    """The kind of data at a place: of an embedded set by its name, else by the files that are there.

    Where nothing tells, it is ``caption``, whose reader has the sentence for that.
    """
    for kind, reader in READERS.items():
        if str(place) == reader.embedded:
            return kind
    path = Path(place)
    try:
        if (shards := find_shards(path)) is not None:
            return _kind_of_shard(shards)
    except (OSError, ValueError):  # what is wrong is said by the reader
        return "caption"
    if path.suffix.lower() == ".npz":
        return "classify"
    if path.is_file() and path.suffix.lower() != ".zip":
        return _kind_of_file(Folder(path.parent), path.name)
    try:
        files = files_of(path)
        return _kind_of_files(files, files.names(), path)
    except (OSError, ValueError):  # what is wrong is said by the reader
        return "caption"


def _kind_of_shard(paths: Sequence[Path]) -> str:
    """By what the examples of the first shard have."""
    shard = TarShard(paths[0]) if paths[0].suffix.lower() == TAR else ParquetShard(paths[0])
    has = int(np.bitwise_or.reduce(shard.index.rows["roles"], initial=0))
    if has & PAIR and not has & IMAGE:
        return "translate"
    return "classify" if has & LABEL and not has & CAPTION else "caption"


def _kind_of_file(files: Files, name: str) -> str:
    """By a table's columns."""
    if not name.lower().endswith(TABLES):
        return "caption"
    columns = _columns(files, name)
    if not any(map(is_image_column, columns)):
        is_other = name.lower().endswith((".json", ".txt")) and not _has_tab(files, name) and not columns
        return "caption" if is_other or is_caption_file(name) else "translate"
    return "classify" if label_column(columns) and not any(map(is_caption, columns)) else "caption"


def _kind_of_files(files: Files, names: Sequence[str], path: Path) -> str:
    """By the names of the files, and by the columns of tables whose names don't tell."""
    lasts = [name.rpartition("/")[2] for name in names]
    others = [x for x in lasts if split_of_path(x) and not is_image(x) and "." in x]
    texts = [x for x in others if not x.lower().endswith((".json", ".csv", ".txt", ".npz", ".parquet"))]
    if texts or _are_parallel(path):
        return "translate"
    if any(map(is_caption_file, names)):
        return "caption"
    tables = table_files(names)
    if tables is not None:
        return "classify" if tables[0] == LABELS else _kind_of_file(files, tables[1][0])
    pictures = [name for name in names if is_image(name)]
    if not pictures and any(name.lower().endswith(TABLES) for name in names):
        return "translate"
    return "classify" if any("/" in name for name in pictures) and not _has_json(names) else "caption"


def _are_parallel(path: Path) -> bool:
    try:
        return bool(parallel_names(path))
    except ImportError:  # without babel no ending is a language's
        return False


def _columns(files: Files, name: str) -> list[str]:
    """The columns of a table, in small letters; none if it is no table."""
    try:
        if parquet_names([name]):
            shard = ParquetFile(files, name)
            held = ["image" for column in shard.columns if shard.holds_bytes(column)]
            return [*held, *(column.lower() for column in shard.columns)]
        rows = read_table(text_of(files.read(name), name), name)
    except ValueError:
        return []
    return list(dict.fromkeys(key for row in rows[:100] for key in row))


def _has_tab(files: Files, name: str) -> bool:
    return b"\t" in files.read(name)[:4096]


def _has_json(names: Sequence[str]) -> bool:
    return any(name.lower().endswith(".json") for name in names)
