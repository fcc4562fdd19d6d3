"""Which files of a folder or zip hold captions, and in which layout: found out by looking."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from sightline.data.captions_parsers import CaptionRecord, parse_json, parse_lines
from sightline.data.dataset import split_name
from sightline.data.image_tables import (
    LABELS,
    is_image_table,
    read_image_table,
    table_files,
)
from sightline.data.sources import Files, text_of

__all__ = ["CaptionFiles", "is_caption_file", "read_records"]

_LIST = re.compile(r"(?:^|[._])(train|dev|val|valid|test)(?:images)?\.txt$", re.IGNORECASE)
_OTHER_TASKS = re.compile(r"(dataset_info|instances|person_keypoints|stuff|panoptic|image_info)")


@dataclass(frozen=True)
class CaptionFiles:
    """What the caption files of a set say.

    Attributes:
        layout: ``Karpathy``, ``COCO``, ``Flickr``, ``table``, ``imagefolder`` or ``parquet``.
        file: The first of them, for sentences.
        records: The images that they name.
        images: Where these are.
        folder: Where names begin, if not at the top.
    """

    layout: str
    file: str
    records: list[CaptionRecord]
    images: Files
    folder: str = ""


def read_records(files: Files, names: list[str], only: str | None = None) -> CaptionFiles:
    """Find the caption files and read them.

    Args:
        files: The folder or zip.
        names: Every file in it.
        only: The caption file, if the user has named it.
    """
    if not names:
        raise ValueError(f"there must be images and captions, {files.where!r} is empty")
    if is_image_table(only) if only else table_comes_first(names):
        return _image_table(files, names, only)
    chosen = [only] if only else _caption_files(names, files.where)
    kinds, found = [], []
    for name in chosen:
        text = text_of(files.read(name), name)
        kind, part = parse_json(text, name) if name.lower().endswith(".json") else parse_lines(text, name)
        if kind == "Flickr":
            _take_lists(part, files, name, names)
        kinds.append(kind)
        found += part
    if not any(one.captions for one in found):
        raise ValueError(f"there must be captions, {chosen[0]!r} in {files.where!r} holds none")
    return CaptionFiles(kinds[0], chosen[0], found, files, chosen[0].rpartition("/")[0])


def table_comes_first(names: list[str]) -> bool:
    """Whether a set is in metadata files or parquet, and no caption file of another layout is there."""
    found = table_files(names)
    return found is not None and found[0] != LABELS and not any(map(is_caption_file, names))


def is_caption_file(name: str) -> bool:
    """Whether a file is one that captions usually come in, by its name."""
    last = name.rpartition("/")[2].lower()
    return any(test(last) for test in _NAMED)


def _image_table(files: Files, names: list[str], only: str | None) -> CaptionFiles:
    table = read_image_table(files, names, only)
    assert table is not None  # noqa: S101  there is one
    if not table.has_captions:
        raise ValueError(
            f"there must be captions, {table.file!r} in {files.where!r} has the columns "
            f"{', '.join(table.columns)}; call one text or caption"
        )
    records: dict[tuple[str, str | None], CaptionRecord] = {}
    for row in table.rows:  # an image may have a row for each of its captions
        record = records.setdefault((row.image, row.split), CaptionRecord(row.image, [], row.split))
        record.captions += row.captions
    return CaptionFiles(table.layout, table.file, list(records.values()), table.images)


_NAMED: tuple[Callable[[str], bool], ...] = (
    lambda x: x.startswith("dataset") and x.endswith(".json") and not x.startswith("dataset_info"),
    lambda x: x.startswith("captions_") and x.endswith(".json"),
    lambda x: x.endswith(("token.txt", ".token")) and "lemma" not in x,
    lambda x: x in ("captions.csv", "captions.tsv", "captions.txt", "results.csv"),
)


def _is_other_json(last: str) -> bool:
    return last.endswith(".json") and not _OTHER_TASKS.match(last)


def _caption_files(names: list[str], where: str) -> list[str]:
    """The caption files of a set: the first kind of name that is there, nearest to the top."""
    for i, test in enumerate((*_NAMED, _is_other_json)):
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
        "captions_*.json, captions.txt, *token.txt, captions.csv, metadata.csv, metadata.jsonl or *.parquet"
    )


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
            split_of |= dict.fromkeys(listed, split_name(match[1]))
    for one in found:
        one.split = one.split or split_of.get(one.image) or split_of.get(_stem(one.image))


def _stem(name: str) -> str:
    return re.sub(r"\.\w{3,4}$", "", name)


def _listed(names: list[str]) -> str:
    shown = ", ".join(map(repr, names[:3]))
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
