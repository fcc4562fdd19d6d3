"""Images with captions: read from a folder or a zip in any of the usual layouts, or from shards."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from sightline.data.caption_set import CLEANING, DRAWN_SIZE, CaptionedImage, CaptionSet, clean
from sightline.data.captions_formats import read_records
from sightline.data.captions_parsers import CaptionRecord
from sightline.data.dataset import STATED, Problem, hash_split, split_name
from sightline.data.image_files import ImageFiles
from sightline.data.shard_captions import read_caption_shards
from sightline.data.shard_files import find_shards
from sightline.data.sources import Folder, Index, files_of

__all__ = ["CLEANING", "DRAWN_SIZE", "CaptionSet", "CaptionedImage", "clean", "read_captions"]

_FILES = (".json", ".jsonl", ".txt", ".csv", ".tsv", ".token", ".parquet")


def read_captions(path: Path | str, *, seed: int = 0) -> CaptionSet:
    """Read a set of images with captions; its layout is found out by looking.

    Layouts: Karpathy's ``dataset*.json``; COCO's ``captions_*.json``, one a split; Flickr's ``captions.txt``
    or ``*token.txt``, with lists such as ``trainImages.txt``; a table ``captions.csv`` with the columns
    image, caption and perhaps split; Hugging Face's ``metadata.csv`` or ``metadata.jsonl`` with file_name and
    text, and parquet. Images may lie in any folder of the tree. Tar and parquet shards are read as a training
    goes (``shard_captions.py``). Nothing is written.

    Args:
        path: A folder, a zip, a caption file in a folder, or shards by their folder or a pattern.
        seed: Where no split is stated, the images are put in the order of a hash of seed and name; the first
            tenth is val, the second test (at least one each of three images or more), the rest train. Where
            some are stated, the other images join train.

    Returns:
        The set. Images that are missing or have no caption are in its ``problems``, never fatal.

    Raises:
        FileNotFoundError: If there is nothing at the path.
        ValueError: If there are no captions, none of the images is there, or a text is not UTF-8.
    """
    path = Path(path)
    if (shards := find_shards(path)) is not None:
        return read_caption_shards(shards, source=str(path), seed=seed)
    only = path.name if path.is_file() and path.suffix.lower() in _FILES else None
    files = Folder(path.parent) if only else files_of(path)
    if only and path.resolve().parent.name == "annotations":  # COCO keeps its images beside that folder
        files, only = Folder(path.resolve().parents[1]), f"annotations/{path.name}"
    found = read_records(files, files.names(), only)
    usable, problems = _usable(found.records)
    if not usable:
        raise ValueError(f"not one image that {found.file!r} names can be used: {problems[0].sentence}")
    index = Index(found.images.names())
    usable = [_in_folder_of_split(one, index, found.folder) for one in usable]
    paths = _apart({one.image: index.find(one.image, near=found.folder) for one in usable})
    there = [one for one in usable if paths[one.image]]
    if not there:
        raise ValueError(
            f"none of the {len(paths)} images that {found.file!r} names is in {files.where!r}, "
            f"the first is {usable[0].image!r}"
        )
    problems += [
        Problem("missing", name, f"the image {name!r} is not in {files.where!r}, or more than once")
        for name, at in paths.items()
        if not at
    ]
    stated = any(one.split for one in there)
    dealt = {} if stated else hash_split((one.image for one in there), seed=seed)
    records = [
        CaptionedImage(one.image, tuple(one.captions), one.split or dealt.get(one.image, "train"))
        for one in there
    ]
    images = ImageFiles(found.images, {name: at for name, at in paths.items() if at})
    rule = STATED if stated else f"a tenth val, a tenth test, by a hash of seed {seed} and the name"
    return CaptionSet(tuple(records), images, tuple(problems), str(path), found.layout, rule)


def _usable(found: Iterable[CaptionRecord]) -> tuple[list[CaptionRecord], list[Problem]]:
    """Entries with a name and a caption that says something; of the others, the problem."""
    usable, problems = [], []
    for i, one in enumerate(found):
        captions = [" ".join(caption.split()) for caption in one.captions if clean(caption)]
        if one.image and captions:
            usable.append(CaptionRecord(one.image, captions, one.split))
            if less := len(one.captions) - len(captions):
                sentence = f"{less} of {len(one.captions)} captions of {one.image!r} hold no word"
                problems.append(Problem("no word", one.image, sentence))
        elif one.image:
            sentence = f"the image {one.image!r} has no caption with a word in it"
            problems.append(Problem("no caption", one.image, sentence))
        else:
            problems.append(Problem("no name", f"entry {i}", f"entry {i} of the captions names no image"))
    return usable, problems


def _in_folder_of_split(record: CaptionRecord, index: Index, near: str) -> CaptionRecord:
    """The record, with the one folder that its split tells, where several have an image of its name.

    COCO's ``captions_val2017.json`` means ``val2017/1.jpg``, though there is a ``train2017/1.jpg`` too.
    """
    if record.split is None or index.find(record.image, near=near) is not None:
        return record
    same = [path for path in index.same_name(record.image) if _folder_split(path) == record.split]
    return CaptionRecord(same[0], record.captions, record.split) if len(same) == 1 else record


def _folder_split(path: str) -> str:
    """The split that the folder of a file is named after: ``train2017/1.jpg`` is of train."""
    return split_name(path.rpartition("/")[0].rpartition("/")[2].rstrip("0123456789"))


def _apart(paths: dict[str, str | None]) -> dict[str, str | None]:
    """Where two names have found one file, it is that of the name that tells its folders.

    A set whose ``train/1.jpg`` is missing must not take ``val/1.jpg`` for it.
    """
    claims = Counter(paths.values())

    def is_meant(name: str, at: str | None) -> bool:
        return claims[at] == 1 or f"/{at}".endswith("/" + name.replace("\\", "/").removeprefix("./"))

    return {name: at if is_meant(name, at) else None for name, at in paths.items()}
